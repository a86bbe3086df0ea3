"""Installed suites of worlds, with their tasks, experts, pools, policies and recipes.

Suites are found by the entry point group `recap.worlds`. The library names no world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from recap.errors import InputError, one_of
from recap.types import F64, NO_CONTEXT, U8, Episode, Observation, Scalar, TaskContext

if TYPE_CHECKING:
    from recap.features.describer import TermDescriber
    from recap.pool.view import PoolSource
    from recap.retrieval.config import RetrievalConfig
    from recap.robot import RobotSpec
    from recap.training.config import TrainConfig

Options = Mapping[str, Scalar]


class World(Protocol):
    """One environment. It may also have `render() -> (h, w, 3)` for videos, and `close()`.

    `observe` is separate from `step`, so that images are rendered only when an agent needs them.
    """

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Begin an episode; returns the metrics at its start, by name."""

    def observe(self, image_size: int | None) -> Observation:
        """The current observation; a simulator renders images of that size, or none if it is None."""

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """Run one control period; returns metrics by name, and whether the environment ended the episode."""


class PoseEstimator(Protocol):
    """Adds the poses of objects to an observation. Make a new one per episode, since it may track poses."""

    def estimate(self, observation: Observation) -> Observation:
        """The observation with every pose that could be estimated."""


class Suite:
    """Worlds of one kind, with their tasks, pools and policies; a subclass overrides what it provides."""

    name: ClassVar[str] = ""
    metric: ClassVar[str] = "success"  # metric of the thresholds
    thresholds: ClassVar[tuple[float, ...]] = (0.5,)  # of the metric; passing the first is success
    seeds: ClassVar[Sequence[int]] = range(42, 92)
    development_seeds: ClassVar[Sequence[int]] = range(500, 505)
    default_pool: ClassVar[str | None] = None
    default_retrieval: ClassVar[str] = "world"
    options: ClassVar[Options] = {}  # settings of a world, with their defaults

    def _lacks(self, method: str) -> InputError:
        """The error for a method that a subclass must override."""
        return InputError(f"env '{self.name}' has no {method}(): override Suite.{method}")

    def check(self, options: Options) -> Options:
        """The options with defaults filled in; refuses unknown names, and text for a number."""
        for name in options:
            one_of(f"option of env '{self.name}'", name, sorted(self.options))
            is_number = isinstance(self.options[name], int | float) and not isinstance(
                self.options[name], bool
            )
            if is_number and not isinstance(options[name], int | float):
                raise InputError(f"option {name} of env '{self.name}' is a number, not '{options[name]}'")
        return {**self.options, **options}

    def tasks(self, options: Options) -> tuple[str, ...]:
        """Keys of all tasks, in the order in which results list them."""
        raise self._lacks("tasks")

    def seen(self) -> frozenset[str]:
        """Tasks that the suite's policies were trained on."""
        return frozenset()

    def task_key(self, name: str) -> str:
        """The key of a task, as results list it, from what a user typed; refuses an unknown task."""
        return one_of("task", name, self.tasks(self.check({})))

    def expand(self, name: str) -> Sequence[str]:
        """Keys of the tasks that a name stands for: one task or a group."""
        return (self.task_key(name),)

    def ordered(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Tasks in the order in which results list them."""
        return tuple(tasks)

    def title(self, task: str) -> str:
        """A readable name of a task."""
        return task.replace("_", " ")

    def robot(self, options: Options) -> RobotSpec:
        """The robot that acts in the worlds."""
        raise self._lacks("robot")

    def context(self, options: Options) -> TaskContext:
        """The context that observations do not show."""
        return NO_CONTEXT

    def make(self, options: Options) -> World:
        """Make a world."""
        raise self._lacks("make")

    def embodied(self, embodiment: str) -> Options:
        """The options that a policy of that embodiment implies."""
        return {}

    def max_steps(self, task: str, options: Options) -> int:
        """The maximum number of steps of an episode."""
        raise self._lacks("max_steps")

    def expert(self, options: Options) -> Any:
        """A scripted expert, if there is one."""
        raise InputError(f"env '{self.name}' has no expert")

    def estimator(self, options: Options) -> PoseEstimator:
        """An estimator of poses from images, if there is one."""
        raise InputError(f"env '{self.name}' cannot find poses in pixels: leave --objects out")

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """The suite's own retrievals, by name."""
        return {}

    def retrieval_for(self, target: Episode, shown: Episode) -> str | None:
        """The suite's retrieval for a target and a pool, or None if they are not of this suite."""
        return None

    def policies(self) -> Mapping[str, Path]:
        """Included trained policies, by name."""
        return {}

    def pools(self) -> Mapping[str, str]:
        """Included pools: name -> description."""
        return {}

    def open_pool(self, name: str) -> PoolSource:
        """Open an included pool."""
        raise self._lacks("open_pool")

    def dress(self, pool: Any) -> PoolSource | None:
        """A packed pool of the suite with rendered images added, or None if it is not of this suite."""
        return None

    def draw(self, episode: Episode, size: int) -> Sequence[U8] | None:
        """Render the frames of a demonstration of the suite at that size, or None if it cannot."""
        return None

    def training_presets(self) -> Mapping[str, TrainConfig]:
        """Training recipes, by name."""
        return {}

    def check_training(self, config: TrainConfig, target: Sequence[Episode]) -> None:
        """Refuse a training config that contradicts itself or the target."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


@cache
def suites() -> dict[str, Suite]:
    """All installed suites, by name."""
    found: dict[str, Suite] = {}
    for entry in plugins("recap.worlds").values():
        suite = entry.load()
        suite = suite() if isinstance(suite, type) else suite
        found[suite.name] = suite
    return found


def shipped_policies() -> dict[str, Path]:
    """The policies that installed suites include, by name."""
    return {name: path for suite in suites().values() for name, path in suite.policies().items()}


def suite_of_retrieval(name: str) -> Suite | None:
    """The suite that has a retrieval of that name."""
    return next((suite for suite in suites().values() if name in suite.retrievals()), None)
