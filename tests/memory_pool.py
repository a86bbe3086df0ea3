"""A pool in memory, for tests: a fixed list of episodes, or one that grows."""

from collections.abc import Sequence

import numpy as np

from recap.pool.view import Describer
from recap.types import Descriptors, Episode


class MemoryView:
    """One version of it."""

    def __init__(self, episodes: Sequence[Episode], version: int = 1) -> None:
        self._episodes = {episode.id: episode for episode in episodes}
        self.version = version
        self.episode_ids = tuple(self._episodes)

    def episode(self, episode_id: str) -> Episode:
        return self._episodes[episode_id]

    def descriptors(self, describer: Describer) -> Descriptors:
        rows = [describer.describe(episode) for episode in self._episodes.values()]
        starts = np.cumsum([0, *(len(e) for e in self._episodes.values())])
        empty = {name: np.zeros((0, d), np.float32) for name, d in describer.dims.items()}
        terms = {name: np.concatenate([empty[name], *(r[name] for r in rows)]) for name in describer.dims}
        return Descriptors(describer.fingerprint, self.episode_ids, starts.astype(np.int64), terms)


class MemoryPool:
    """Its newest version."""

    def __init__(self, episodes: Sequence[Episode] = ()) -> None:
        self._view = MemoryView(episodes)

    def view(self) -> MemoryView:
        return self._view

    def add(self, *episodes: Episode) -> None:
        old = [self._view.episode(i) for i in self._view.episode_ids]
        self._view = MemoryView([*old, *episodes], self._view.version + 1)
