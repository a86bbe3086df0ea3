"""A scripted expert that solves PushT with either pusher, any goal and any block."""

from __future__ import annotations

import numpy as np

from recap.errors import InputError
from recap.geometry import transform_points
from recap.types import F64, Observation
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.planner import Plan, Planner, Scene
from recap_worlds.pusht.pushers import pusher_named
from recap_worlds.pusht.simulator import initial_state, make_body

SURPRISE = 6.0  # px between expected and actual block pose above which to replan
PATIENCE = 5  # fewest steps of a plan before that


class Expert:
    """Plans a push, executes it, and plans again from the new observation.

    Args:
        pusher: `disc` or `triangle`.
        block: the block's name.
        speed: 1 is the usual speed; 0.5 takes twice as long.
        style: 0 takes the cheapest way; any other number prefers its own contacts.
    """

    image_size: int | None = None

    def __init__(self, pusher: str, block: str = "tee", speed: float = 1.0, style: int = 0) -> None:
        if not 0.2 <= speed <= 3.0:
            raise InputError(f"speed {speed} is out of range: give 0.2 to 3")
        self.shape = block_named(block)
        self.body = make_body(self.shape, pusher_named(pusher))
        self.planner = Planner(self.body, self.shape.outline, float(speed))
        self.style = style
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start an episode; the same seed and observations give the same actions."""
        self._rng = np.random.default_rng([seed, self.style])
        self._contact_style: F64 | None = None
        if self.style:
            rng = np.random.default_rng([self.style, 17])
            self._contact_style = np.stack([rng.uniform(0, 2 * np.pi, 3), 6.0 / np.arange(1, 4)], axis=1)
        self._plan: Plan | None = None
        self._step = 0
        self._velocity = np.zeros(2)

    def act(self, observation: Observation) -> F64:
        """The next target position of the pusher: (2,)."""
        if observation.goal is None or "block" not in observation.objects:
            raise InputError("the expert needs the block's pose and the goal in the observation")
        block = np.asarray(observation.objects["block"], np.float64)
        state = initial_state(self.body, np.asarray(observation.proprio, np.float64), block)
        if self._plan is None or self._step >= len(self._plan.targets) or self._is_surprised(state):
            state[2:4] = self._velocity
            goal = np.array([*transform_points(observation.goal, self.body.offset), observation.goal[2]])
            self._plan = self.planner.plan(
                Scene(state, goal, self.shape.angle_period), self._rng, self._contact_style
            )
            self._step = 0
        if self._plan is None:  # no push is possible: move towards the middle of the board
            self._velocity = np.zeros(2)
            return np.asarray(state[:2] + 0.1 * (np.array([256.0, 256.0]) - state[:2]))
        target: F64 = self._plan.targets[self._step].copy()
        self._velocity = self._plan.states[self._step, 2:4]
        self._step += 1
        return target

    def _is_surprised(self, state: F64) -> bool:
        if self._plan is None or self._step < PATIENCE:
            return False
        expected = self._plan.states[self._step - 1]
        return bool(np.hypot(*(state[4:6] - expected[4:6])) + 60 * abs(state[6] - expected[6]) > SURPRISE)
