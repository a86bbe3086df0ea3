"""The searches of `index` in numpy, for when numba is not installed."""

from __future__ import annotations

import numpy as np

from recap.retrieval.coarse import I64
from recap.types import F32, F64

EACH_BEGIN = -2  # a value of `follow_row`: the first frame of each episode


def plain_squared_distances(rows: F32, query: F32) -> F32:
    """|row − query|² of every row: (n,)."""
    apart = rows - query
    return np.asarray(np.einsum("ij,ij->i", apart, apart), np.float32)


def plain_nearest_frames(
    frames: F32,
    query: F32,
    firsts: I64,
    ends: I64,
    candidates: I64,
    added: F64,
    avoid_rows: I64,
    avoid_add: F64,
    radius: float,
    n: int,
    follow_row: int,
    follow_bonus: float,
    follow_fade: float,
) -> tuple[I64, F64]:
    """Same as `nearest_frames`; equal distances keep the order of the search."""
    spans = [(int(firsts[c]), int(ends[c])) for c in candidates]
    rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(*span) for span in spans)])
    lengths = [end - begin for begin, end in spans]
    costs = [plain_squared_distances(frames[begin:end], query) for begin, end in spans]
    total = np.concatenate([np.zeros(0, np.float32), *costs]) + np.repeat(added, lengths).astype(np.float32)
    distances = np.sqrt(total.astype(np.float64))
    if follow_bonus:
        targets = [begin if follow_row == EACH_BEGIN else follow_row for begin, _ in spans]
        followed = [begin <= target < end for target, (begin, end) in zip(targets, spans, strict=True)]
        away = np.abs(rows - np.repeat(targets, lengths))
        bonus = np.maximum(0.0, follow_bonus - follow_fade * away)
        distances -= np.where(np.repeat(followed, lengths), bonus, 0.0)
    for row, more in zip(avoid_rows, avoid_add, strict=True):
        distances[plain_squared_distances(frames[rows], frames[row]) < radius * radius] += more
    near = np.arange(len(distances))
    if n < len(distances):
        near = np.flatnonzero(distances <= np.partition(distances, n - 1)[n - 1])
    best = near[np.argsort(distances[near], kind="stable")[:n]]
    short = n - len(best)
    return (
        np.concatenate([rows[best], np.full(short, -1, np.int64)]),
        np.concatenate([distances[best], np.full(short, np.inf)]),
    )
