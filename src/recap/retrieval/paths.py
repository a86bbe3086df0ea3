"""Predicts the path of a task's demonstrations from the first scene, to find which image features matter.

Scenes can differ in much that is irrelevant to the task. For each task, ridge regression on the pool maps a
scene's descriptor to the demonstrated path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recap.types import F32, F64, Episode

PATH = "path"  # a weight of stage 1 that has no term
N_PHASES = 8  # points of a demonstration at which paths are compared
MIN_EPISODES = 5  # fewest episodes of a task for a prediction
MAX_EPISODES = 400  # most episodes of a task for a prediction
MAX_REFIT = 64  # with more episodes of a task, hiding one of them hardly changes the fit
RIDGES = np.geomspace(1e-4, 10.0, 21)  # times the largest eigenvalue; the least leave-one-out error wins
I64 = NDArray[np.int64]


def path_of(episode: Episode) -> F64:
    """Proprioception at evenly spaced times, concatenated."""
    times = np.linspace(0, len(episode) - 1, N_PHASES).round().astype(int)
    return np.asarray(episode.proprio[times], np.float64).ravel()


@dataclass(frozen=True)
class Paths:
    """The paths of a pool by task; `rows` are the first scenes as stage 1 compares them."""

    episodes: Sequence[Episode]
    rows: F32  # (e, D1)

    @cached_property
    def groups(self) -> list[tuple[I64, F64]]:
        """For each task with enough episodes: their indices and their paths."""
        by_task: dict[tuple[str, int], list[int]] = {}
        for number, episode in enumerate(self.episodes):
            by_task.setdefault((episode.task, episode.proprio.shape[1]), []).append(number)
        large = [group for group in by_task.values() if len(group) >= MIN_EPISODES]
        return [(np.array(group), np.stack([path_of(self.episodes[i]) for i in group])) for group in large]

    @cached_property
    def _fits(self) -> list[_Fit]:
        return [self._fit(group, paths) for group, paths in self.groups]

    def _fit(self, group: I64, paths: F64) -> _Fit:
        sample = np.unique(np.linspace(0, len(group) - 1, min(len(group), MAX_EPISODES)).astype(int))
        return _fit(self.rows[group[sample]].astype(np.float64), paths[sample])

    def costs(self, row: F32, hidden: Sequence[int] = ()) -> F64:
        """(e,) distance of each episode's path to the predicted one, in standard deviations of its task.

        Args:
            row: (D1,) the descriptor of the query's scene.
            hidden: episodes to leave out; ignored in tasks with more than MAX_REFIT episodes.
        """
        costs = np.zeros(len(self.episodes))
        for number, (group, paths) in enumerate(self.groups):
            kept = ~np.isin(group, hidden)
            if kept.all() or len(group) > MAX_REFIT:
                costs[group] = self._fits[number].costs(row, paths)
            elif kept.sum() >= MIN_EPISODES:
                costs[group] = self._fit(group[kept], paths[kept]).costs(row, paths)
        return costs


@dataclass(frozen=True)
class _Fit:
    """Ridge regression in its dual form, for one task."""

    rows: F64  # (n, D1), centred
    mean: F64  # (D1,)
    dual: F64  # (n, m)
    path_mean: F64  # (m,)
    spread: F64  # (m,)
    explained: F64  # (m,) share of each number's variance that is predicted, by leave-one-out

    def costs(self, row: F32, paths: F64) -> F64:
        """(k,) costs of paths (k, m)."""
        if not self.explained.any():
            return np.zeros(len(paths))
        # Images of another embodiment lie outside the pool's range. Only variation within that range counts.
        scene = np.clip(row.astype(np.float64) - self.mean, self.rows.min(axis=0), self.rows.max(axis=0))
        expected = (self.rows @ scene) @ self.dual
        errors = np.square((paths - self.path_mean) / self.spread - expected) @ self.explained
        return np.asarray(errors * self.explained.max() / self.explained.sum())


def _fit(rows: F64, paths: F64) -> _Fit:
    n, mean, path_mean = len(rows), rows.mean(axis=0), paths.mean(axis=0)
    centred = rows - mean
    spread = paths.std(axis=0)
    spread = np.where(spread > 1e-6 * max(float(spread.max()), 1e-12), spread, np.inf)  # constant numbers
    targets = (paths - path_mean) / spread
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values, projected = np.maximum(values, 0.0), vectors.T @ targets
    best, dual = np.full(paths.shape[1], np.inf), np.zeros_like(targets)
    for ridge in RIDGES * max(float(values[-1]), 1e-12):
        share = values / (values + ridge)
        free = 1 - 1 / n - np.square(vectors) @ share  # 1 - leverage: the part not decided by its own path
        left_out = (targets - vectors @ (share[:, None] * projected)) / np.maximum(free, 0.02)[:, None]
        error = np.square(left_out).mean(axis=0)
        if error.sum() < best.sum():
            best, dual = error, vectors @ (projected / (values + ridge)[:, None])
    return _Fit(
        centred, mean, dual, path_mean, spread, np.where(np.isfinite(spread), np.maximum(1 - best, 0), 0)
    )
