"""robosuite's arms as a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recap.errors import InputError, one_of
from recap.robot import RobotSpec
from recap.suites import Options, Suite
from recap.types import F64, Observation, TaskContext
from recap_worlds.robosuite.tasks import SEEN, TASKS, UNSEEN, task_named

if TYPE_CHECKING:
    from recap.evaluation.agents import Trial
    from recap.features.describer import TermDescriber
    from recap.retrieval.config import RetrievalConfig
    from recap_worlds.robosuite.expert import Expert
    from recap_worlds.robosuite.world import RobosuiteWorld

GROUPS = {"seen": SEEN, "unseen": UNSEEN, "all": (*SEEN, *UNSEEN)}


class RobosuiteSuite(Suite):
    """Seven tasks for four arms with their own grippers; Panda is the target."""

    name: ClassVar[str] = "robosuite"
    default_retrieval: ClassVar[str] = "robosuite-parts"
    options: ClassVar[Options] = {"embodiment": "panda", "kp": 150.0, "poses": "true"}

    def check(self, options: Options) -> Options:
        """Options with known arms and settings."""
        from recap_worlds.robosuite.world import arm_named

        known = super().check(options)
        arm_named(str(known["embodiment"]))
        one_of("poses", str(known["poses"]), ("true", "none"))
        if not 1 <= float(known["kp"]) <= 300:
            raise InputError(f"kp {known['kp']} is out of range: give 1 to 300, such as 30")
        return known

    def tasks(self, options: Options) -> tuple[str, ...]:
        """Seen and unseen tasks."""
        return tuple(TASKS)

    def seen(self) -> frozenset[str]:
        """The training tasks."""
        return frozenset(task.key for task in SEEN)

    def expand(self, name: str) -> Sequence[str]:
        """A task, or a group: seen, unseen, all."""
        return [task.key for task in GROUPS[name]] if name in GROUPS else (self.task_key(name),)

    def robot(self, options: Options) -> RobotSpec:
        """One arm in tool space."""
        from recap_worlds.robosuite.world import ARM

        return ARM

    def context(self, options: Options) -> TaskContext:
        """The embodiment."""
        return TaskContext(str(options.get("embodiment", "")))

    def embodied(self, embodiment: str) -> Options:
        """The arm."""
        return {"embodiment": embodiment} if embodiment else {}

    def max_steps(self, task: str, options: Options) -> int:
        """The limit of the task."""
        return task_named(task).max_steps

    def make(self, options: Options) -> RobosuiteWorld:
        """A world with one arm at a table."""
        from recap_worlds.robosuite.world import RobosuiteWorld

        return RobosuiteWorld(
            str(options["embodiment"]), float(options["kp"]), poses=str(options["poses"]) == "true"
        )

    def expert(self, options: Options) -> Any:
        """The scripted experts."""
        return Experts(str(options["embodiment"]))

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """`robosuite-parts` and a control."""
        from recap_worlds.robosuite.retrieval import RETRIEVALS

        return RETRIEVALS


class Experts:
    """The scripted expert of the task in each slot."""

    image_size: int | None = None

    def __init__(self, embodiment: str) -> None:
        self._embodiment = embodiment
        self._experts: dict[int, Expert] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start the trial's task."""
        from recap_worlds.robosuite.expert import Expert

        self._experts[slot] = Expert(trial.task, self._embodiment)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Actions of the slots' experts."""
        pairs = zip(slots, observations, strict=True)
        return np.array([self._experts[slot].act(seen) for slot, seen in pairs], np.float64)
