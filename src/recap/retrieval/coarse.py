"""Approximate search with faiss for large pools: selects a few hundred frames for the exact comparison."""

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

N_EXACT = 200_000  # frames up to which all are compared, which takes about a tenth of a control step
N_PROBED = 16  # cells that are searched for the first N_NEAR frames; a larger k searches more
N_NEAR = 64
MAX_NEAR = 16_384  # most frames to request; beyond that, all are compared
ROUNDED = 0.95  # lower bound of a true distance, as a share of the distance between float16 rows
MAX_NUMBER = np.float32(30_000)  # within the range of float16, also for a difference of two
N_TOGETHER = 200_000  # rows that are added at once
N_TRAINED = 64  # training rows per cell
I64 = NDArray[np.int64]
log = logging.getLogger("recap.retrieval")


class Coarse:
    """A faiss IVF index of float16 rows. Rows can be added but not removed.

    Cells are trained on the first 200,000 rows, or on 400,000, 800,000 and so on for larger pools. The result
    does not depend on the steps in which a pool grew. A running process keeps its cells.
    """

    def __init__(self, rows: F32) -> None:
        faiss: Any = importlib.import_module("faiss")
        first, n_cells = _cells(len(rows))
        sample = np.linspace(0, min(first, len(rows)) - 1, N_TRAINED * n_cells).astype(np.int64)
        self._lock = threading.Lock()
        self._ask = faiss.SearchParametersIVF
        self._index: Any = faiss.index_factory(_padded(rows[:1]).shape[1], f"IVF{n_cells},SQfp16")
        self._index.cp.min_points_per_centroid = 1  # silences a faiss warning about too few training rows
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
        """The serialized index."""
        faiss: Any = importlib.import_module("faiss")
        return np.asarray(faiss.serialize_index(self._index))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def is_outgrown(self, n_rows: int) -> bool:
        """True if an index of this many rows would have more cells."""
        return bool(self._index.nlist < _cells(n_rows)[1])

    def add(self, rows: F32) -> None:
        """Append rows."""
        with self._lock:
            for at in range(0, len(rows), N_TOGETHER):
                self._index.add(_padded(rows[at : at + N_TOGETHER]))

    def near(self, asked: F32, k: int) -> tuple[I64, float]:
        """About k rows nearest to a descriptor (D,), and a lower bound of the distance of all other rows."""
        probed = self._ask(nprobe=min(N_PROBED * max(k // N_NEAR, 1), self._index.nlist))
        with self._lock:
            away, rows = self._index.search(_padded(asked[None]), k, params=probed)
        there = rows[0] >= 0
        last = math.sqrt(max(float(away[0, there][-1]), 0.0)) if there.any() else 0.0
        return np.asarray(rows[0, there], np.int64), ROUNDED * last


def is_many(n_frames: int) -> bool:
    """True if comparing all frames takes too long."""
    return n_frames > N_EXACT


def _cells(n_rows: int) -> tuple[int, int]:
    """The number of rows that cells are trained on, and the number of cells."""
    first = N_EXACT << int(math.log2(max(n_rows / N_EXACT, 1)))
    return first, 2 ** math.ceil(math.log2(first) / 2)


def _padded(rows: F32) -> F32:
    """Pad rows with zeros to a multiple of 8 columns, which faiss compares several times faster."""
    return np.pad(np.clip(rows, -MAX_NUMBER, MAX_NUMBER), ((0, 0), (0, -rows.shape[1] % 8)))


def coarse_index(rows: F32) -> Coarse | None:
    """An index of the rows if there are many and faiss is installed, else None."""
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
