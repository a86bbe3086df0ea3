"""The specification of an evaluation: agent, world, tasks, seeds and settings, as in a run directory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from recap import config as configs
from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.evaluation.worlds import find_suite, made
from recap.suites import Suite
from recap.types import Scalar


def threshold_key(threshold: float) -> str:
    """A threshold as it is written in results: 0.85."""
    return f"{threshold:g}"


@dataclass(frozen=True)
class EvalSpec:
    """An evaluation; equal specs give equal results, on any number of processes."""

    agent: AgentConfig  # its `policy` may also be expert, hold, or package.module:factory
    env: str  # a suite by name, package.module:factory, or a Gymnasium id
    options: Mapping[str, Scalar] = field(default_factory=dict)  # of the world
    env_map: str | None = None  # file with the meaning of a Gymnasium environment's observation
    tasks: tuple[str, ...] = ()  # keys; none: all
    seeds: tuple[int, ...] = ()  # none: the suite's
    max_steps: int | None = None  # of an episode; none: as the task defines it
    thresholds: tuple[float, ...] = ()  # of the suite's metric; an episode ends when the last one is passed
    pool: str | None = None  # demonstrations to retrieve from; None: the suite's own
    pool_version: int | None = None  # the pool's version when the run began
    objects: Literal["truth", "pixels"] = "truth"  # source of poses; pixels: the agent gets no true ones
    pose_noise: tuple[float, float] = (0.0, 0.0)  # on objects at each observation: position, degrees

    def __post_init__(self) -> None:
        suite = self.suite
        if not (self.tasks and self.seeds and self.thresholds):
            suite = made(suite)  # missing values come from the suite; then all can be checked
        given = {
            "options": suite.check(self.options),
            "tasks": tuple(suite.task_key(task) for task in self.tasks) or suite.tasks(self.options),
            "seeds": self.seeds or tuple(suite.seeds),
            "thresholds": self.thresholds or suite.thresholds,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        _check_distinct("task", self.tasks)
        _check_distinct("seed", self.seeds)
        if min(self.seeds) < 0:
            raise InputError(f"seed {min(self.seeds)} is negative: give whole numbers from 0 up")
        if self.max_steps is not None and self.max_steps < 1:
            raise InputError(f"max_steps {self.max_steps} leaves no time to act: give 1 or more")
        rising = all(a < b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False))
        if not rising or not all(math.isfinite(t) for t in self.thresholds):
            raise InputError(f"thresholds {self.thresholds} are not ascending: give them as 0.85, 0.95")
        if not all(0 <= x < math.inf for x in self.pose_noise):
            raise InputError(f"pose_noise {self.pose_noise} is not a deviation: give 0 or more, such as 4,4")
        if any(self.pose_noise) and self.objects == "pixels":
            raise InputError("poses from pixels have their own noise: give --pose-noise with --objects truth")
        if self.objects == "pixels":
            suite.estimator(self.options)  # raises an error if there is none

    @property
    def suite(self) -> Suite:
        """The suite with the worlds."""
        return find_suite(self.env, self.env_map)

    def trials(self) -> list[Trial]:
        """All episodes: every seed of a task before the next task."""
        return [Trial(task, seed) for task in self.tasks for seed in self.seeds]

    @property
    def task_keys(self) -> tuple[str, ...]:
        """The tasks in the order of the results."""
        return self.suite.ordered(self.tasks)

    @property
    def seen_keys(self) -> frozenset[str]:
        """The tasks that policies are trained on."""
        return self.suite.seen()

    def steps_of(self, task: str) -> int:
        """The maximum number of steps in an episode."""
        return self.max_steps or self.suite.max_steps(task, self.options)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        values: dict[str, Any] = configs.plain(self)
        return values

    @classmethod
    def from_json(cls, values: object, what: str = "the config") -> EvalSpec:
        """The inverse of `to_json`; unknown keys and values of another type are errors."""
        return configs.read(cls, values, what)

    def with_agent(self, **changes: Any) -> EvalSpec:
        """The same spec with changes to its agent."""
        return replace(self, agent=replace(self.agent, **changes))


def _check_distinct(what: str, values: Iterable[str | int]) -> None:
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            raise InputError(f"{what} {value} is given twice: give each {what} once")
        seen.add(value)
    if not seen:
        raise InputError(f"no {what}s to evaluate: give at least one {what}")
