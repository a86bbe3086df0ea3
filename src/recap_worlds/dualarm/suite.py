"""Two arms at a table as a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recap.errors import InputError, one_of
from recap.robot import RobotSpec
from recap.suites import Options, Suite
from recap.types import F64, U8, Observation, TaskContext
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.dualarm.robotwin_tasks import SEEN, UNSEEN

if TYPE_CHECKING:
    from recap.evaluation.agents import Trial
    from recap.features.describer import TermDescriber
    from recap.pool.view import PoolSource
    from recap.retrieval.config import RetrievalConfig
    from recap.training.config import TrainConfig
    from recap_worlds.dualarm.env import DualArmEnv
    from recap_worlds.dualarm.expert import Expert

POLICIES = ("dualarm-small",)
CHOICES = {"split": ("clean", "randomised"), "wording": ("seen", "unseen")}


class DualArmSuite(Suite):
    """Household tasks for two arms."""

    name: ClassVar[str] = "dualarm"
    default_retrieval: ClassVar[str] = "dualarm-parts"
    options: ClassVar[Options] = {"embodiment": "viperx", "split": "clean", "wording": "seen"}

    def check(self, options: Options) -> Options:
        """Options with a known robot, split and wording."""
        from recap_worlds.dualarm.robots import robot_named

        known = super().check(options)
        robot_named(str(known["embodiment"]))
        for name, choices in CHOICES.items():
            one_of(name, str(known[name]), choices)
        return known

    def tasks(self, options: Options) -> tuple[str, ...]:
        """The ten tasks of the paper's protocol."""
        return (*SEEN, *UNSEEN)

    def seen(self) -> frozenset[str]:
        """The training tasks."""
        return frozenset(SEEN)

    def task_key(self, name: str) -> str:
        """Any implemented task."""
        from recap_worlds.dualarm.tasks import task_named

        return task_named(name).key

    def expand(self, name: str) -> Sequence[str]:
        """A task, or a group: seen, unseen, all, level1 … level6."""
        from recap_worlds.dualarm.tasks import tasks_named

        return tasks_named(name)

    def robot(self, options: Options) -> RobotSpec:
        """Two arms."""
        return TWO_ARMS

    def context(self, options: Options) -> TaskContext:
        """Empty: retrieval does not use the embodiment here."""
        return TaskContext()

    def embodied(self, embodiment: str) -> Options:
        """The embodiment."""
        return {"embodiment": embodiment} if embodiment else {}

    def max_steps(self, task: str, options: Options) -> int:
        """The limit of the task."""
        from recap_worlds.dualarm.tasks import task_named

        return task_named(task).max_steps

    def make(self, options: Options) -> DualArmWorld:
        """A world with one table."""
        return DualArmWorld(str(options["embodiment"]), str(options["split"]), str(options["wording"]))

    def expert(self, options: Options) -> Any:
        """The scripted experts."""
        return ArmsExperts()

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """The paper's retrieval, and retrieval by parts."""
        from recap_worlds.dualarm.retrieval import RETRIEVALS

        return RETRIEVALS

    def policies(self) -> Mapping[str, Path]:
        """The included policies."""
        return {name: Path(__file__).parents[1] / "assets" / name for name in POLICIES}

    def pools(self) -> Mapping[str, str]:
        """Small pools to try a training."""
        from recap_worlds.dualarm.pools import DEBUG_POOLS, TASK

        return {name: f"{robot}: a few of {TASK}" for name, robot in DEBUG_POOLS.items()}

    def open_pool(self, name: str) -> PoolSource:
        """Open a debug pool."""
        from recap_worlds.dualarm.pools import open_debug

        return open_debug(name)

    def training_presets(self) -> Mapping[str, TrainConfig]:
        """The recipes."""
        from recap_worlds.dualarm.recipes import RECIPES

        return RECIPES


class DualArmWorld:
    """A table with two arms; the metric is success."""

    control_hz = 20.0

    def __init__(self, embodiment: str, split: str, wording: str) -> None:
        self._embodiment, self._split, self._wording = embodiment, split, wording
        self._env: DualArmEnv | None = None

    @property
    def env(self) -> DualArmEnv:
        """The environment of the running task."""
        if self._env is None:
            raise InputError("the table has not been reset yet: call reset first")
        return self._env

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Start an episode. The table is kept while the task is the same, because a reset is faster."""
        from recap_worlds.dualarm.env import DualArmEnv

        if self._env is None or self._env.task.key != task:
            self.close()
            # Images are rendered when an agent needs them, not at every step.
            self._env = DualArmEnv(task, self._embodiment, split=self._split, image_size=0)
        self._env.reset(seed=seed, options={"wording": self._wording})
        return {"success": 0.0}

    def observe(self, image_size: int | None) -> Observation:
        """Always poses; images if a size is given."""
        return self.env.observe(image_size or 0)

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """One control step."""
        return {"success": float(self.env.step(action)[2])}, False

    def render(self) -> U8:
        """An image of the table."""
        picture: U8 = np.asarray(self.env.render(), np.uint8)
        return picture

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()
            self._env = None


class ArmsExperts:
    """The scripted expert of the task in each slot."""

    image_size: int | None = None

    def __init__(self) -> None:
        self._experts: dict[int, Expert] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start the trial's task."""
        from recap_worlds.dualarm.expert import Expert

        self._experts[slot] = Expert(trial.task)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Actions of the slots' experts."""
        pairs = zip(slots, observations, strict=True)
        return np.array([self._experts[slot].act(seen) for slot, seen in pairs], np.float64)
