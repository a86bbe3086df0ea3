"""Confidence of a match: where its distance lies among the distances between the pool's own episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recap.retrieval.index import Index
from recap.types import F64

if TYPE_CHECKING:
    from recap.retrieval.retriever import Retriever

N_CALIBRATION = 400  # most episodes used for calibration
MAX_ROWS = 80_000_000  # most rows compared for calibration
MIN_CALIBRATION = 19  # fewest distances; with fewer, a p-value of 0.05 cannot be reached
RECALIBRATE_SHARE = 0.05  # of the pool added or removed; calibrating is slow, so it is rare


@dataclass(frozen=True)
class Calibration:
    """Sorted distances of one random moment of each episode to the rest of the pool."""

    distances: F64  # (n,)
    n_episodes: int = 0  # of the pool that was calibrated

    def confidence(self, distance: float) -> float:
        """The conformal p-value of a distance: below α for a share α of moments like those of the pool.

        nan if the pool is too small.
        """
        n = len(self.distances)
        if n < MIN_CALIBRATION:
            return math.nan
        at_least = n - int(np.searchsorted(self.distances, distance, side="left"))
        return (1 + at_least) / (n + 1)

    def is_outgrown(self, n_episodes: int) -> bool:
        """True if the pool has changed so much that a new calibration is due."""
        return abs(n_episodes - self.n_episodes) > RECALIBRATE_SHARE * self.n_episodes


def calibrate(retriever: Retriever, index: Index) -> Calibration:
    """Query the pool with a random moment of each of its episodes, excluding that episode's scene."""
    rng = np.random.default_rng(0)
    n = len(index.episode_ids)
    config = retriever.config
    every = config.n_candidates is None and not config.same_goal  # then scenes need not be ranked
    # A large pool in which everything is compared gets fewer queries. They are enough for the calibration.
    compared = len(index.frames) if every else 3 * n  # stage 1 takes longer per scene than stage 2 per frame
    cost = 1 if every and index.is_large(index.everything) else compared
    affordable = max(MAX_ROWS // max(cost, 1), 2 * MIN_CALIBRATION)
    chosen = rng.permutation(n)[: min(N_CALIBRATION, affordable)]
    distances = []
    for i in chosen:
        row = int(rng.integers(index.firsts[i], index.ends[i]))
        goal = None if np.isnan(index.goals[i]).any() else index.goals[i]
        exclude = frozenset((index.episode_ids[i], index.scene_ids[i]))
        if every:
            candidates = index.everything.without(index.hidden_by(exclude))
        else:
            candidates = retriever.nearest_scenes(index, [index.scenes[i]], goal, 1, exclude)
        _, nearest = index.nearest(index.frames[row], candidates)
        distances.append(nearest[0])
    finite = np.array([d for d in distances if np.isfinite(d)], np.float64)
    return Calibration(np.sort(finite), n)
