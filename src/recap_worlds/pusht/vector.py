"""A batch of PushT boards that step together, with Gymnasium's vector interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F64
from recap_worlds.pusht.env import PushTEnv

Step = tuple[Any, F64, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
INFO_KEYS = ("pos_agent", "vel_agent", "block_pose", "goal_pose", "coverage", "success", "is_success")


class PushTVectorEnv(VectorEnv[Any, F64, Any]):
    """`num_envs` boards in one process; takes the keywords of `PushTEnv`.

    With `autoreset_mode` NEXT_STEP a finished board is reset at the next step. With DISABLED it stays, with
    reward 0, until `reset(options={"reset_mask": mask})` selects it, so that a batch can run to its end.
    `reset` takes one seed per board, and in `options` one `goal_angle` per board, for the boards it resets.
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int = 300,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **board: Any,
    ) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs {num_envs} is no batch: give 1 or more")
        if autoreset_mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
            raise InputError("autoreset_mode SAME_STEP is not offered: use NEXT_STEP or DISABLED")
        self.boards = [PushTEnv(**board) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = autoreset_mode
        self.metadata = {**PushTEnv.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = self.boards[0].render_mode
        self.single_observation_space = self.boards[0].observation_space
        self.single_action_space = self.boards[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations: list[Any] = [None] * num_envs
        self._infos: list[dict[str, Any]] = [{}] * num_envs
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self._n_steps = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode on every board, or on those in `options["reset_mask"]`."""
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)), np.bool_)
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = list(seed) if seed is not None else [None] * self.num_envs
        if len(seeds) != self.num_envs or mask.shape != (self.num_envs,):
            raise InputError(f"there are {self.num_envs} boards: give one seed and one mask entry for each")
        columns = {name: self._column(name, values) for name, values in options.items()}
        for i in np.flatnonzero(mask):
            chosen = seeds[i]
            self._reset_board(
                int(i),
                None if chosen is None else int(chosen),
                {name: column[i] for name, column in columns.items()},
            )
        return self._batch(), self._info()

    def step(self, actions: F64) -> Step:
        """One control step on every running board: actions (num_envs, 2)."""
        if np.shape(actions) != (self.num_envs, 2):
            raise InputError(f"actions have shape {np.shape(actions)}: give ({self.num_envs}, 2)")
        if self._observations[0] is None:
            raise InputError("the boards have not been reset yet: call reset first")
        rewards = np.zeros(self.num_envs)
        for i, board in enumerate(self.boards):
            if self._terminated[i] or self._truncated[i]:
                if self.autoreset_mode == AutoresetMode.NEXT_STEP:
                    self._reset_board(i, None, {})
                continue
            observation, rewards[i], terminated, _, info = board.step(actions[i])
            self._n_steps[i] += 1
            self._observations[i], self._infos[i], self._terminated[i] = observation, info, terminated
            self._truncated[i] = not terminated and self._n_steps[i] >= self.max_episode_steps
        return self._batch(), rewards, self._terminated.copy(), self._truncated.copy(), self._info()

    def _column(self, name: str, values: Any) -> Any:
        """One option for each board; a single value is used for all."""
        wanted = (self.num_envs, 5) if name == "reset_to_state" else (self.num_envs,)
        try:
            return np.broadcast_to(values, wanted)
        except ValueError:
            raise InputError(
                f"option '{name}' has shape {np.shape(values)}: give {wanted}, or one for all"
            ) from None

    def render(self) -> tuple[Any, ...] | None:
        """The image of every board."""
        return tuple(board.render() for board in self.boards)

    def _reset_board(self, i: int, seed: int | None, options: dict[str, Any]) -> None:
        self._observations[i], self._infos[i] = self.boards[i].reset(seed=seed, options=options)
        self._terminated[i] = self._truncated[i] = False
        self._n_steps[i] = 0

    def _batch(self) -> Any:
        out: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self._observations, out)

    def _info(self) -> dict[str, Any]:
        return {key: np.array([info[key] for info in self._infos]) for key in INFO_KEYS}
