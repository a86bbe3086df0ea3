"""Where trials are run: one interface to several environments side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from recap.types import F64, Observation

if TYPE_CHECKING:
    from recap.envs.dualarm.env import DualArmEnv
    from recap.evaluation.agents import Trial
    from recap.evaluation.spec import EvalSpec

SUCCESS = 0.5  # the threshold where progress is 0 or 1


class World(Protocol):
    """Environments in slots; progress is a number that is compared with the spec's thresholds."""

    action_dim: int

    def start(self, joining: Mapping[int, Trial]) -> Mapping[int, float]:
        """Begin an episode in each of these slots; slot -> progress."""
        ...

    def observe(self, slot: int, image_size: int | None) -> Observation:
        """What is seen there; no pictures without a size."""
        ...

    def step(self, actions: Mapping[int, F64]) -> Mapping[int, float]:
        """One step in each of these slots; slot -> progress."""
        ...

    def max_steps(self, slot: int) -> int:
        """How long its episode may last."""
        ...

    def drawn(self, slot: int) -> Any:
        """The environment itself, which can `render()`."""
        ...


def make_world(spec: EvalSpec, n_slots: int) -> World:
    """The spec's world."""
    return PushTWorld(spec, n_slots) if spec.env == "pusht" else DualArmWorld(spec)


class PushTWorld:
    """Boards; progress is coverage."""

    action_dim = 2

    def __init__(self, spec: EvalSpec, n_slots: int) -> None:
        from gymnasium.vector import AutoresetMode

        from recap.envs.pusht.vector import PushTVectorEnv

        self._spec = spec
        self._env = PushTVectorEnv(
            n_slots,
            max_episode_steps=spec.max_steps,
            autoreset_mode=AutoresetMode.DISABLED,
            pusher=spec.pusher,
            block=spec.block,
            success_threshold=max(spec.thresholds),
        )

    def start(self, joining: Mapping[int, Trial]) -> Mapping[int, float]:
        """Put block and goal where the trials want them."""
        slots = range(self._env.num_envs)
        _, info = self._env.reset(
            seed=[joining[s].seed if s in joining else None for s in slots],
            options={
                "reset_mask": [s in joining for s in slots],
                "goal_angle": [joining[s].goal_angle if s in joining else 0.0 for s in slots],
            },
        )
        return {slot: float(info["coverage"][slot]) for slot in joining}

    def observe(self, slot: int, image_size: int | None) -> Observation:
        """With poses only where they are to come from the truth."""
        return self._env.boards[slot].observe(image_size, self._spec.objects == "truth")

    def step(self, actions: Mapping[int, F64]) -> Mapping[int, float]:
        """Idle boards are given anything."""
        all_actions = np.zeros((self._env.num_envs, self.action_dim))
        for slot, action in actions.items():
            all_actions[slot] = action
        *_, info = self._env.step(all_actions)
        return {slot: float(info["coverage"][slot]) for slot in actions}

    def max_steps(self, slot: int) -> int:
        """The same on every board."""
        return self._spec.max_steps

    def drawn(self, slot: int) -> Any:
        """The board."""
        return self._env.boards[slot]


class DualArmWorld:
    """Tables with two arms, one a slot; progress is 1 when the task is done."""

    action_dim = 20

    def __init__(self, spec: EvalSpec) -> None:
        self._spec = spec
        self._envs: dict[int, DualArmEnv] = {}

    def start(self, joining: Mapping[int, Trial]) -> Mapping[int, float]:
        """A slot keeps its table while the task is the same: making one takes longer than a reset."""
        from recap.envs.dualarm.env import DualArmEnv

        spec = self._spec
        for slot, trial in joining.items():
            if slot not in self._envs or self._envs[slot].task.key != trial.task:
                if slot in self._envs:
                    self._envs.pop(slot).close()
                # Pictures are drawn when an agent looks, not at every step.
                self._envs[slot] = DualArmEnv(trial.task, spec.embodiment, split=spec.split, image_size=0)
            self._envs[slot].reset(seed=trial.seed, options={"wording": spec.wording})
        return dict.fromkeys(joining, 0.0)

    def observe(self, slot: int, image_size: int | None) -> Observation:
        """Poses always, pictures where a size is given."""
        return self._envs[slot].observe(image_size or 0)

    def step(self, actions: Mapping[int, F64]) -> Mapping[int, float]:
        """One after the other."""
        return {slot: float(self._envs[slot].step(action)[2]) for slot, action in actions.items()}

    def max_steps(self, slot: int) -> int:
        """As its task has it."""
        return self._envs[slot].task.max_steps

    def drawn(self, slot: int) -> Any:
        """The environment."""
        return self._envs[slot]
