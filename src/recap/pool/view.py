"""One version of a pool, live or packed, as read by retrieval and training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from recap.robot import RobotSpec, infer_robot
from recap.types import F32, Descriptors, Episode, Frames

if TYPE_CHECKING:
    from recap.types import Requires


class Describer(Protocol):
    """Describes every frame of an episode; pool and query use the same one."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes with any setting or weight that affects the result."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Term -> width d."""

    def describe(self, episode: Frames) -> Mapping[str, F32]:
        """Term -> (t, d), finite, for each term of `dims`."""


class QueryDescriber(Describer, Protocol):
    """A describer that can be restricted to the terms that a query needs at every step."""

    @property
    def requires(self) -> Requires:
        """What a scene must have to be described."""

    @property
    def n_back(self) -> int:
        """The number of frames, up to now, on which a row may depend."""

    @property
    def from_start(self) -> bool:
        """True if a row depends on the start of the episode."""

    def only(self, names: Iterable[str]) -> QueryDescriber:
        """A describer with these terms only."""

    def by_cameras(self) -> Sequence[QueryDescriber]:
        """The describer in parts: terms that read images, and the others."""


class PoolView(Protocol):
    """One version of a pool; it never changes."""

    @property
    def version(self) -> int:
        """The version number."""

    @property
    def episode_ids(self) -> tuple[str, ...]:
        """Its episodes in the order in which they were added."""

    def episode(self, episode_id: str) -> Episode:
        """One episode; its images are decoded on demand."""

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Descriptors of every frame of the given or all episodes; missing ones are computed."""


class PoolSource(Protocol):
    """Gives the newest view: a live pool follows its newest version, a snapshot is its own."""

    def view(self) -> PoolView:
        """The newest version; returns the same object quickly while nothing changes."""


def robot_of(view: PoolView) -> RobotSpec | None:
    """The robot description of the pool, else one inferred from its first demonstration; None if empty."""
    described: RobotSpec | None = getattr(view, "robot", None)
    if described is not None or not view.episode_ids:
        return described
    return infer_robot(view.episode(view.episode_ids[0]))


def only_task(view: PoolView) -> str:
    """The instruction, if all demonstrations have the same one, else an empty string."""
    tasks = {view.episode(name).task for name in view.episode_ids}
    return tasks.pop() if len(tasks) == 1 else ""
