"""Statistics in the shapes LeRobot normalises with: of one episode, and of many put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap.types import F64, U8

Stats: TypeAlias = dict[str, NDArray[Any]]

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
N_FRAMES = 32  # sampled for the statistics of one episode's camera
_MAX_SIDE = 150  # pixels; larger images are thinned out


def vector_stats(values: NDArray[Any]) -> Stats:
    """Statistics over the rows of (t, d) or (t,) values."""
    rows: F64 = np.asarray(values, np.float64).reshape(len(values), -1)
    return _reduce(rows) | {"count": np.array([len(rows)])}


class FrameSample:
    """Lets frames pass and keeps an even, bounded sample of them for their statistics."""

    def __init__(self, frames: Iterable[U8], n_frames: int) -> None:
        self._frames = frames
        self._wanted = set(np.linspace(0, n_frames - 1, min(n_frames, N_FRAMES)).round().astype(int).tolist())
        self._kept: list[U8] = []
        self.shape: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[U8]:
        for i, frame in enumerate(self._frames):
            self.shape = frame.shape
            if i in self._wanted:
                stride = max(1, max(frame.shape[:2]) // _MAX_SIDE)
                self._kept.append(frame[::stride, ::stride].copy())
            yield frame

    def stats(self) -> Stats:
        """Statistics of each channel scaled to [0, 1], as (3, 1, 1) arrays."""
        pixels = np.concatenate([frame.reshape(-1, 3) for frame in self._kept]) / 255.0
        shaped = {key: value.reshape(3, 1, 1) for key, value in _reduce(pixels).items()}
        return shaped | {"count": np.array([len(self._kept)])}


def aggregate(parts: Sequence[Stats]) -> Stats:
    """Statistics of all episodes from those of each; quantiles are weighted means, as in LeRobot."""
    n = np.array([int(part["count"][0]) for part in parts], np.float64)
    stacked = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
    weights = (n / n.sum()).reshape(-1, *[1] * (stacked["mean"].ndim - 1))
    mean = (stacked["mean"] * weights).sum(0)
    variance = ((stacked["std"] ** 2 + (stacked["mean"] - mean) ** 2) * weights).sum(0)
    whole = {
        "min": stacked["min"].min(0),
        "max": stacked["max"].max(0),
        "mean": mean,
        "std": np.sqrt(variance),
    }
    return (
        whole
        | {key: (stacked[key] * weights).sum(0) for key in QUANTILES}
        | {"count": np.array([int(n.sum())])}
    )


def _reduce(rows: F64) -> Stats:
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return {
        "min": rows.min(0),
        "max": rows.max(0),
        "mean": rows.mean(0),
        "std": rows.std(0),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }
