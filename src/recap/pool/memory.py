"""A pool of episodes in memory, and the common base of all views."""

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
    """One version of a pool; descriptors are computed once and kept in memory."""

    def __init__(self, version: int, episode_ids: Sequence[str]) -> None:
        self.version, self.episode_ids = version, tuple(episode_ids)
        self._descriptors: dict[str, Descriptors] = {}

    def __len__(self) -> int:
        return len(self.episode_ids)

    def __iter__(self) -> Iterator[Episode]:
        return map(self.episode, self.episode_ids)

    def view(self) -> Self:
        """The view itself, which never changes."""
        return self

    @abstractmethod
    def episode(self, episode_id: str) -> Episode:
        """One episode; its images are decoded on demand."""

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Descriptors of every frame of the given or all episodes."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            rows = (describe(describer, episode) for episode in self)
            n_frames = sum(map(len, self))
            self._descriptors[fingerprint] = assemble(describer, self.episode_ids, rows, n_frames)
        return picked(self._descriptors[fingerprint], ids)


class MemoryView(EpisodeView):
    """One version of episodes in memory."""

    robot: RobotSpec | None = None  # the pool's description

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
        """Descriptors of every frame; cached for all episodes."""
        if ids is not None:
            episodes = [self.episode(name) for name in ids]
            return assemble(
                describer, ids, (describe(describer, e) for e in episodes), sum(map(len, episodes))
            )
        if describer.fingerprint not in self._descriptors:
            found = self._extended(describer)
            if found is not None:
                self._descriptors[found.fingerprint] = found
        return super().descriptors(describer)

    def _extended(self, describer: Describer) -> Descriptors | None:
        """For a describer with one additional term: that term, added to the descriptors of its base."""
        base, own = getattr(describer, "base", None), getattr(describer, "added", None)
        if base is None or own is None:
            return None
        known, more = self.descriptors(base), self.descriptors(own, self.episode_ids)
        if not np.array_equal(known.starts, more.starts):  # an episode lacks what one of them reads
            return None
        terms = {**known.terms, **more.terms}
        return replace(known, fingerprint=describer.fingerprint, terms={n: terms[n] for n in describer.dims})


class MemoryPool:
    """A source with its newest version in memory."""

    def __init__(self, episodes: Sequence[Episode] = ()) -> None:
        self._view = MemoryView(episodes)

    def view(self) -> MemoryView:
        return self._view

    def add(self, *episodes: Episode) -> None:
        """Add a version with these episodes at its end."""
        self._view = MemoryView([*self._view, *episodes], self._view.version + 1)
