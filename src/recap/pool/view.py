"""What retrieval and training read: one version of a pool, live or packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from recap.robot import RobotSpec, infer_robot
from recap.types import F32, Descriptors, Episode, Frames

if TYPE_CHECKING:
    from recap.types import Requires


class Describer(Protocol):
    """Describes every frame of an episode; the same one serves pool and query."""

    @property
    def fingerprint(self) -> str:
        """Changes with any setting or weight that changes a description."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Term -> width d."""

    def describe(self, episode: Frames) -> Mapping[str, F32]:
        """Term -> (t, d), finite, for each term of `dims`."""


class QueryDescriber(Describer, Protocol):
    """A describer that can also be asked for less, as a query needs it at every step."""

    @property
    def requires(self) -> Requires:
        """What a scene must have to be described."""

    @property
    def n_back(self) -> int:
        """How many frames, up to now, a row may depend on."""

    @property
    def from_start(self) -> bool:
        """Whether a row depends on how the episode began."""

    def only(self, names: Iterable[str]) -> QueryDescriber:
        """The same description, of these terms alone."""

    def by_cameras(self) -> Sequence[QueryDescriber]:
        """The same description in parts, terms that read images apart from the others."""


class PoolView(Protocol):
    """One whole version of a pool; it never changes."""

    @property
    def version(self) -> int:
        """Which one."""

    @property
    def episode_ids(self) -> tuple[str, ...]:
        """Its episodes in a stable order, the order in which they were added."""

    def episode(self, episode_id: str) -> Episode:
        """One of them, images decoded only when asked for."""

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Every frame described, of some episodes or of `episode_ids`; what is missing is computed."""


class PoolSource(Protocol):
    """Something that always knows the newest view: a live pool follows its head, a snapshot is its own."""

    def view(self) -> PoolView:
        """The newest version, cheaply: the same object as before while nothing changed."""


def robot_of(view: PoolView) -> RobotSpec | None:
    """As the pool describes it, or as its first demonstration suggests; None of an empty one."""
    described: RobotSpec | None = getattr(view, "robot", None)
    if described is not None or not view.episode_ids:
        return described
    return infer_robot(view.episode(view.episode_ids[0]))


def only_task(view: PoolView) -> str:
    """The instruction, where all demonstrations have the same one; else none."""
    tasks = {view.episode(name).task for name in view.episode_ids}
    return tasks.pop() if len(tasks) == 1 else ""
