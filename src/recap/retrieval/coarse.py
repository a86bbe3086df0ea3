"""Stage 1 for large pools: rows grouped round centres, of which only the nearest groups are searched."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from recap.compiled import compiled_reordering
from recap.retrieval.index import I64
from recap.types import F32

N_ROUNDS = 6
N_SAMPLES_A_CENTER = 40
REBUILD_SHARE = 0.25  # of rows that came after the groups were made: they are all searched until then


@compiled_reordering
def _nearest_in_groups(
    rows: F32, query: F32, order: I64, begins: I64, groups: I64, n_grouped: int, n: int
) -> tuple[I64, F32]:
    """The n nearest rows among the groups' and those after the first `n_grouped`, in order."""
    best_rows = np.full(n, -1, np.int64)
    best = np.full(n, np.inf, np.float32)
    for g in range(groups.shape[0] + 1):
        last = g == groups.shape[0]
        first = n_grouped if last else begins[groups[g]]
        past = rows.shape[0] if last else begins[groups[g] + 1]
        for k in range(first, past):
            i = k if last else order[k]
            total = np.float32(0.0)
            for c in range(rows.shape[1]):
                d = rows[i, c] - query[c]
                total += d * d
            if total >= best[n - 1]:
                continue
            slot = n - 1
            while slot > 0 and best[slot - 1] > total:
                best[slot], best_rows[slot] = best[slot - 1], best_rows[slot - 1]
                slot -= 1
            best[slot], best_rows[slot] = total, i
    return best_rows, best


def _nearest_center(rows: F32, centers: F32) -> I64:
    """The nearest centre's number for each row, in chunks that fit the cache."""
    squared = (centers**2).sum(axis=1)
    out = np.empty(len(rows), np.int64)
    for i in range(0, len(rows), 8192):
        part = rows[i : i + 8192]
        out[i : i + 8192] = (squared - 2 * part @ centers.T).argmin(axis=1)
    return out


@dataclass(frozen=True)
class CoarseIndex:
    """Rows grouped by k-means; the search is exact within the groups that it visits."""

    rows: F32  # (n, D), grouped ones first
    centers: F32  # (c, D)
    order: I64  # (n_grouped,) rows group by group
    begins: I64  # (c + 1,)

    @property
    def n_grouped(self) -> int:
        """Rows that were there when the groups were made."""
        return len(self.order)

    def search(self, query: F32, n: int, n_probes: int = 8) -> tuple[I64, F32]:
        """About the n nearest rows, and their squared distances, in order."""
        away = ((self.centers - query) ** 2).sum(axis=1)
        groups = np.argpartition(away, min(n_probes, len(away) - 1))[:n_probes].astype(np.int64)
        return _nearest_in_groups(self.rows, query, self.order, self.begins, groups, self.n_grouped, n)

    def grown_to(self, rows: F32) -> CoarseIndex:
        """The same groups over more rows, of which the first are the old ones; anew when many came."""
        if len(rows) > self.n_grouped * (1 + REBUILD_SHARE):
            return build_coarse(rows)
        return CoarseIndex(rows, self.centers, self.order, self.begins)


def build_coarse(rows: F32, seed: int = 0) -> CoarseIndex:
    """Group the rows round about √n centres, found by k-means on a sample."""
    rng = np.random.default_rng(seed)
    n_centers = max(1, min(len(rows), round(math.sqrt(len(rows)))))
    sample = rows[rng.permutation(len(rows))[: n_centers * N_SAMPLES_A_CENTER]]
    centers = sample[:n_centers].copy()
    for _ in range(N_ROUNDS):
        group = _nearest_center(sample, centers)
        counts = np.bincount(group, minlength=n_centers)
        sums = np.zeros_like(centers)
        np.add.at(sums, group, sample)
        filled = counts > 0
        centers[filled] = sums[filled] / counts[filled, None]
    group = _nearest_center(rows, centers)
    order = np.argsort(group, kind="stable").astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_centers))]).astype(np.int64)
    return CoarseIndex(rows, centers, order, begins)
