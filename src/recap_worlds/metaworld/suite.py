"""Meta-World as a suite."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recap.errors import InputError
from recap.robot import RobotSpec, load_robot
from recap.suites import Options, Suite
from recap.types import F64, Observation
from recap_worlds.metaworld.tasks import SEEN, TASKS, instruction, tasks_named
from recap_worlds.metaworld.world import (
    DOWN,
    MAX_STEPS,
    NOMINAL,
    STEP_M,
    Commands,
    Hand,
    MetaWorld,
    commands,
    expert_state,
)

if TYPE_CHECKING:
    from recap.evaluation.agents import Trial
    from recap.features.describer import TermDescriber
    from recap.retrieval.config import RetrievalConfig
    from recap.training.config import TrainConfig

MAX_OFFSET = 0.1  # m
ROBOT_FILE = Path(__file__).with_name("robot.yaml")


class MetaWorldSuite(Suite):
    """Fifty tasks of one arm: 45 for training, 5 unseen."""

    name: ClassVar[str] = "metaworld"
    seeds: ClassVar[Sequence[int]] = range(10_000, 10_050)
    default_retrieval: ClassVar[str] = "metaworld-objects"
    options: ClassVar[Options] = {"offset_y": 0.0, "offset_z": 0.0}

    def check(self, options: Options) -> Options:
        """Options with finger offsets within the limits."""
        found = super().check(options)
        for name in self.options:
            if not abs(float(found[name])) <= MAX_OFFSET:
                raise InputError(
                    f"{name} {found[name]} is out of range: give -{MAX_OFFSET} to {MAX_OFFSET} m"
                )
        return found

    def tasks(self, options: Options) -> tuple[str, ...]:
        """All tasks, seen ones first."""
        return TASKS

    def seen(self) -> frozenset[str]:
        """The training tasks of ML45."""
        return frozenset(SEEN)

    def expand(self, name: str) -> Sequence[str]:
        """A task, or a group: seen, unseen, all."""
        return tasks_named(name)

    def title(self, task: str) -> str:
        """The instruction."""
        return instruction(task)

    def robot(self, options: Options) -> RobotSpec:
        """The arm."""
        return load_robot(ROBOT_FILE)

    def max_steps(self, task: str, options: Options) -> int:
        """Meta-World's limit."""
        return MAX_STEPS

    def make(self, options: Options) -> MetaWorld:
        """A world with these fingers."""
        return MetaWorld(_hand(options))

    def expert(self, options: Options) -> Experts:
        """Meta-World's experts."""
        return Experts(_hand(options))

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """`metaworld-objects`, which uses object positions, and a control."""
        from recap_worlds.metaworld.retrieval import RETRIEVALS

        return RETRIEVALS

    def training_presets(self) -> Mapping[str, TrainConfig]:
        """The recipes."""
        from recap_worlds.metaworld.recipes import RECIPES

        return RECIPES


def _hand(options: Options) -> Hand:
    return Hand(float(options["offset_y"]), float(options["offset_z"]))


class Experts:
    """Meta-World's scripted expert of the task in each slot; it reads true poses."""

    image_size: int | None = None

    def __init__(self, hand: Hand = NOMINAL) -> None:
        self._hand = hand
        self._experts: dict[int, Any] = {}
        self._commands: dict[int, Commands] = {}
        self._sent: dict[int, F64] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start the trial's task."""
        from metaworld.policies import ENV_POLICY_MAP

        self._experts[slot] = ENV_POLICY_MAP[f"{trial.task}-v3"]()
        self._commands[slot] = commands(trial.task)
        self._sent[slot] = self._commands[slot].start

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Absolute targets: the expert's step added to the last commanded position."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its gains exceed the largest step
            return np.array([self._act(slot, seen) for slot, seen in zip(slots, observations, strict=True)])

    def _act(self, slot: int, seen: Observation) -> F64:
        state = expert_state(seen.proprio, seen.objects, self._hand)
        action = np.clip(np.asarray(self._experts[slot].get_action(state), np.float64), -1.0, 1.0)
        corners = self._commands[slot]
        self._sent[slot] = np.clip(self._sent[slot] + STEP_M * action[:3], corners.low, corners.high)
        return np.array([*self._sent[slot], *DOWN, (1.0 - action[3]) / 2.0])
