"""Worlds that are installed: each brings its tasks, experts, pools, policies and recipes.

A suite is found by the entry point group `recap.worlds`. The library knows no world by name.
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
    """One environment. It may also have `render() -> (h, w, 3)` for films, and `close()`.

    Observing is apart from stepping, so that images are drawn only when an agent looks.
    """

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Begin an episode: metrics by name, as they are at its start."""

    def observe(self, image_size: int | None) -> Observation:
        """What is seen now; a simulator draws images of that size, and none where it is None."""

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """One control period: metrics by name, and whether the environment ended the episode."""


class PoseEstimator(Protocol):
    """Adds the poses of objects to an observation; one for each episode, since it may track them."""

    def estimate(self, observation: Observation) -> Observation:
        """The observation with every pose that is found."""


class Suite:
    """Worlds of one kind and what comes along; a world of your own overrides what it has."""

    name: ClassVar[str] = ""
    metric: ClassVar[str] = "success"  # that thresholds are about
    thresholds: ClassVar[tuple[float, ...]] = (0.5,)  # of the metric: success is to pass the first one
    seeds: ClassVar[Sequence[int]] = range(42, 92)
    development_seeds: ClassVar[Sequence[int]] = range(500, 505)
    default_pool: ClassVar[str | None] = None
    default_retrieval: ClassVar[str] = "world"
    options: ClassVar[Options] = {}  # settings of a world, with their defaults

    def _lacks(self, method: str) -> InputError:
        """What a suite of one's own forgot to override."""
        return InputError(f"env '{self.name}' has no {method}(): override Suite.{method}")

    def check(self, options: Options) -> Options:
        """The options with defaults filled in; an unknown one, or a word for a number, is refused."""
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
        """Tasks that its policies are trained on."""
        return frozenset()

    def task_key(self, name: str) -> str:
        """A task as results write it, from what a person writes; an unknown one is refused."""
        return one_of("task", name, self.tasks(self.check({})))

    def expand(self, name: str) -> Sequence[str]:
        """Tasks by the name of one or of a group."""
        return (self.task_key(name),)

    def ordered(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Tasks in the order in which results list them."""
        return tuple(tasks)

    def title(self, task: str) -> str:
        """A task in words."""
        return task.replace("_", " ")

    def robot(self, options: Options) -> RobotSpec:
        """Who acts there."""
        raise self._lacks("robot")

    def context(self, options: Options) -> TaskContext:
        """What observations do not show."""
        return NO_CONTEXT

    def make(self, options: Options) -> World:
        """A world."""
        raise self._lacks("make")

    def embodied(self, embodiment: str) -> Options:
        """The options that a policy of that embodiment implies."""
        return {}

    def max_steps(self, task: str, options: Options) -> int:
        """Of an episode."""
        raise self._lacks("max_steps")

    def expert(self, options: Options) -> Any:
        """A scripted agent, where there is one."""
        raise InputError(f"env '{self.name}' has no expert")

    def estimator(self, options: Options) -> PoseEstimator:
        """Poses from pixels, where there is such."""
        raise InputError(f"env '{self.name}' cannot find poses in pixels: leave --objects out")

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """Retrievals of its own, by name."""
        return {}

    def retrieval_for(self, target: Episode, shown: Episode) -> str | None:
        """Its retrieval for such a target and such a pool; None: they are not its own."""
        return None

    def policies(self) -> Mapping[str, Path]:
        """Trained policies that come along, by name."""
        return {}

    def pools(self) -> Mapping[str, str]:
        """Pools that come along: name -> what is in it."""
        return {}

    def open_pool(self, name: str) -> PoolSource:
        """One of them."""
        raise self._lacks("open_pool")

    def dress(self, pool: Any) -> PoolSource | None:
        """A packed pool of its own demonstrations with images that can be drawn; None: it is not its own."""
        return None

    def draw(self, episode: Episode, size: int) -> Sequence[U8] | None:
        """The frames of one of its demonstrations at that size; None: it cannot, or it is not its own."""
        return None

    def training_presets(self) -> Mapping[str, TrainConfig]:
        """Recipes by name."""
        return {}

    def check_training(self, config: TrainConfig, target: Sequence[Episode]) -> None:
        """Refuse a training that contradicts itself."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """What installed packages add to a group of entry points, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


@cache
def suites() -> dict[str, Suite]:
    """Every suite that is installed, by name."""
    found: dict[str, Suite] = {}
    for entry in plugins("recap.worlds").values():
        suite = entry.load()
        suite = suite() if isinstance(suite, type) else suite
        found[suite.name] = suite
    return found


def shipped_policies() -> dict[str, Path]:
    """Policies that come with installed suites."""
    return {name: path for suite in suites().values() for name, path in suite.policies().items()}


def suite_of_retrieval(name: str) -> Suite | None:
    """The suite that has a retrieval of that name."""
    return next((suite for suite in suites().values() if name in suite.retrievals()), None)
