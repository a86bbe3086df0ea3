"""A pool of episodes that are in memory already: for training, scripts and tests."""

from __future__ import annotations

from collections.abc import Sequence

from recap.pool.derived import assemble, describe
from recap.pool.view import Describer
from recap.types import Descriptors, Episode


class MemoryView:
    """One version of it."""

    def __init__(self, episodes: Sequence[Episode], version: int = 1) -> None:
        self._episodes = {episode.id: episode for episode in episodes}
        self.version = version
        self.episode_ids = tuple(self._episodes)
        self._descriptors: dict[str, Descriptors] = {}

    def episode(self, episode_id: str) -> Episode:
        """One of them."""
        return self._episodes[episode_id]

    def descriptors(self, describer: Describer) -> Descriptors:
        """Every frame described, once."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            rows = [describe(describer, episode) for episode in self._episodes.values()]
            self._descriptors[fingerprint] = assemble(describer, self.episode_ids, rows)
        return self._descriptors[fingerprint]


class MemoryPool:
    """A source whose newest version is in memory."""

    def __init__(self, episodes: Sequence[Episode] = ()) -> None:
        self._view = MemoryView(episodes)

    def view(self) -> MemoryView:
        """The newest version."""
        return self._view

    def add(self, *episodes: Episode) -> None:
        """Make a version with these at its end."""
        old = [self._view.episode(i) for i in self._view.episode_ids]
        self._view = MemoryView([*old, *episodes], self._view.version + 1)
