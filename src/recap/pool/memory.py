"""A pool of episodes that are in memory already, and what all views of a pool have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from recap.errors import InputError
from recap.pool.derived import assemble, describe, picked
from recap.pool.view import Describer
from recap.types import Descriptors, Episode

if TYPE_CHECKING:
    from recap.robot import RobotSpec


class EpisodeView(ABC):
    """One version of a pool; descriptions are computed once and kept in memory."""

    def __init__(self, version: int, episode_ids: Sequence[str]) -> None:
        self.version, self.episode_ids = version, tuple(episode_ids)
        self._descriptors: dict[str, Descriptors] = {}

    def __len__(self) -> int:
        return len(self.episode_ids)

    def __iter__(self) -> Iterator[Episode]:
        return map(self.episode, self.episode_ids)

    def view(self) -> Self:
        """It is its own newest version."""
        return self

    @abstractmethod
    def episode(self, episode_id: str) -> Episode:
        """One of them, images decoded only when asked for."""

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Every frame described, of some episodes or of all."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            rows = [describe(describer, episode) for episode in self]
            self._descriptors[fingerprint] = assemble(describer, self.episode_ids, rows)
        return picked(self._descriptors[fingerprint], ids)


class MemoryView(EpisodeView):
    """One version of episodes in memory."""

    robot: RobotSpec | None = None  # as the pool describes it

    def __init__(self, episodes: Sequence[Episode], version: int = 1, robot: RobotSpec | None = None) -> None:
        self.robot = robot or self.robot
        self._episodes = {episode.id: episode for episode in episodes}
        super().__init__(version, tuple(self._episodes))

    def episode(self, episode_id: str) -> Episode:
        try:
            return self._episodes[episode_id]
        except KeyError:
            raise InputError(f"version {self.version} has no episode {episode_id!a}") from None

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Every frame described, once where it is of all episodes."""
        if ids is not None:
            return assemble(describer, ids, [describe(describer, self.episode(name)) for name in ids])
        if describer.fingerprint not in self._descriptors:
            found = self._extended(describer)
            if found is not None:
                self._descriptors[found.fingerprint] = found
        return super().descriptors(describer)

    def _extended(self, describer: Describer) -> Descriptors | None:
        """Of a describer with one term more than another: that term, beside what the other one says."""
        base, own = getattr(describer, "base", None), getattr(describer, "added", None)
        if base is None or own is None:
            return None
        known, more = self.descriptors(base), self.descriptors(own, self.episode_ids)
        if not np.array_equal(known.starts, more.starts):  # an episode lacks what one of them reads
            return None
        terms = {**known.terms, **more.terms}
        return replace(known, fingerprint=describer.fingerprint, terms={n: terms[n] for n in describer.dims})


class MemoryPool:
    """A source whose newest version is in memory."""

    def __init__(self, episodes: Sequence[Episode] = ()) -> None:
        self._view = MemoryView(episodes)

    def view(self) -> MemoryView:
        return self._view

    def add(self, *episodes: Episode) -> None:
        """Make a version with these at its end."""
        self._view = MemoryView([*self._view, *episodes], self._view.version + 1)
