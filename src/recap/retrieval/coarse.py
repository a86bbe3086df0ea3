"""Which frames of a large pool are near a moment, by faiss: a few hundred that are then compared exactly."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.types import F32

N_EXACT = 200_000  # frames that are looked at one by one, in about a tenth of a control step
N_PROBED = 16  # cells that a search looks into for its first N_NEAR frames, more for more
N_NEAR = 64
MAX_NEAR = 16_384  # frames that are worth asking for; after that all are looked at
ROUNDED = 0.95  # of a distance between rounded rows that is surely there
MAX_NUMBER = np.float32(30_000)  # what sixteen bits hold, of a difference of two
N_TOGETHER = 200_000  # rows that are added at a time
N_TRAINED = 64  # frames that each cell is placed by
I64 = NDArray[np.int64]
log = logging.getLogger("recap.retrieval")


class Coarse:
    """Rows in cells of near ones, sixteen bits a number; rows may be added, and none goes away.

    Cells are placed by the first 200,000 rows, or twice or four times as many, whatever there are then: it
    does not matter in how many parts a pool grew to that. A running process keeps its cells.
    """

    def __init__(self, rows: F32) -> None:
        faiss: Any = importlib.import_module("faiss")
        first, n_cells = _cells(len(rows))
        sample = np.linspace(0, min(first, len(rows)) - 1, N_TRAINED * n_cells).astype(np.int64)
        self._lock = threading.Lock()
        self._ask = faiss.SearchParametersIVF
        self._index: Any = faiss.index_factory(_padded(rows[:1]).shape[1], f"IVF{n_cells},SQfp16")
        self._index.cp.min_points_per_centroid = 1  # what it says of few rows does not concern a user
        self._index.train(_padded(rows[np.unique(sample)]))
        self.add(rows)

    @classmethod
    def of_bytes(cls, data: NDArray[np.uint8]) -> Coarse:
        """The inverse of `to_bytes`."""
        faiss: Any = importlib.import_module("faiss")
        found = cls.__new__(cls)
        found._lock, found._ask = threading.Lock(), faiss.SearchParametersIVF
        at = 0

        def read(n: int) -> bytes:  # `deserialize_index` copies all of it first
            nonlocal at
            at += n
            return data[at - n : at].tobytes()

        found._index = faiss.read_index(faiss.PyCallbackIOReader(read))
        return found

    def to_bytes(self) -> NDArray[np.uint8]:
        """All of it."""
        faiss: Any = importlib.import_module("faiss")
        return np.asarray(faiss.serialize_index(self._index))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def is_outgrown(self, n_rows: int) -> bool:
        """Whether so many rows would be given other cells."""
        return bool(self._index.nlist < _cells(n_rows)[1])

    def add(self, rows: F32) -> None:
        """At the end."""
        with self._lock:
            for at in range(0, len(rows), N_TOGETHER):
                self._index.add(_padded(rows[at : at + N_TOGETHER]))

    def near(self, asked: F32, k: int) -> tuple[I64, float]:
        """About k rows that are nearest to a moment (D,), and how far away, at least, all others are."""
        probed = self._ask(nprobe=min(N_PROBED * max(k // N_NEAR, 1), self._index.nlist))
        with self._lock:
            away, rows = self._index.search(_padded(asked[None]), k, params=probed)
        there = rows[0] >= 0
        last = math.sqrt(max(float(away[0, there][-1]), 0.0)) if there.any() else 0.0
        return np.asarray(rows[0, there], np.int64), ROUNDED * last


def is_many(n_frames: int) -> bool:
    """Whether looking at all of them takes too long."""
    return n_frames > N_EXACT


def _cells(n_rows: int) -> tuple[int, int]:
    """By how many of the first rows cells are placed, and how many."""
    first = N_EXACT << int(math.log2(max(n_rows / N_EXACT, 1)))
    return first, 2 ** math.ceil(math.log2(first) / 2)


def _padded(rows: F32) -> F32:
    """Rows with zeros up to a multiple of eight numbers: faiss compares those several times as fast."""
    return np.pad(np.clip(rows, -MAX_NUMBER, MAX_NUMBER), ((0, 0), (0, -rows.shape[1] % 8)))


def coarse_index(rows: F32) -> Coarse | None:
    """One of all rows where they are many, and faiss is installed."""
    if not is_many(len(rows)):
        return None
    if importlib.util.find_spec("faiss") is None:
        log.warning(
            "%d frames are compared at every look, which takes long: pip install 'recap-robot[scale]' "
            "searches them by faiss",
            len(rows),
        )
        return None
    return Coarse(rows)
