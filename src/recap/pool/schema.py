"""One row of the table for each episode: how it is written to Arrow and read back, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.pool.blobs import BlobFrames, encode, put_blob
from recap.pool.content import TEXTS, arrays_of, check_episode, digest_of, episode_of, meta_of
from recap.pool.files import Files
from recap.types import Episode

_F32, _F64, _TEXT = pa.list_(pa.float32()), pa.list_(pa.float64()), pa.string()
KEYS = ("id", "sha256", "seq")  # what the index of a pool reads

SCHEMA = pa.schema(
    [
        ("id", _TEXT),
        ("sha256", _TEXT),  # of everything below but the films, which have their own
        ("seq", pa.int64()),  # the order in which episodes were added
        *((key, _TEXT) for key in TEXTS[1:]),
        ("attributes", _TEXT),  # JSON
        ("fps", pa.float64()),
        ("success", pa.bool_()),
        ("n_frames", pa.int32()),
        ("timestamps", _F64),
        ("proprio", _F32),  # (t, p) row by row
        ("actions", _F32),
        ("goal", _F32),  # null where the task has none
        ("objects", _F32),  # one object after the other
        ("object_names", pa.list_(_TEXT)),
        ("object_dims", pa.list_(pa.int32())),
        ("camera_names", pa.list_(_TEXT)),
        ("camera_sha256", pa.list_(_TEXT)),
    ]
)
_ARRAYS = ("timestamps", "proprio", "actions", "goal", "objects")
_PLAIN = (*TEXTS, "attributes", "fps", "success", "n_frames")


@dataclass(frozen=True, slots=True)
class Row:
    """One episode taken apart."""

    sha256: str
    meta: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @property
    def id(self) -> str:
        """The episode's."""
        return str(self.meta["id"])

    @property
    def cameras(self) -> dict[str, str]:
        """Camera -> hash of its film."""
        return dict(self.meta["cameras"])

    @property
    def intact(self) -> bool:
        """Whether this is what was written."""
        return digest_of(self.meta, self.arrays) == self.sha256

    def episode(self, files: Files) -> Episode:
        """Put together, films decoded when asked for."""
        if not self.intact:
            raise DatasetError(
                f"episode {self.id!a} is damaged: its data have changed; run recap pool verify --repair"
            )
        n, fps = self.meta["n_frames"], self.meta["fps"]
        images = {name: BlobFrames(files, digest, n, fps) for name, digest in self.cameras.items()}
        return episode_of(self.meta, self.arrays, images)


def take_apart(files: Files, episodes: Sequence[Episode], progress: Callable[[int, int], None]) -> list[Row]:
    """Episodes checked, hashed and their films kept; films of a failed add are harmless leftovers."""
    for episode in episodes:
        check_episode(episode)
    ids = [episode.id for episode in episodes]
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise InputError(f"episode {twice!a} is given twice: give each one a name of its own")
    rows = []
    for episode in episodes:
        cameras = {
            camera: put_blob(files, encode(frames, episode.fps)) for camera, frames in episode.images.items()
        }
        meta, arrays = meta_of(episode, cameras), arrays_of(episode)
        rows.append(Row(digest_of(meta, arrays), meta, arrays))
        progress(len(rows), len(episodes))
    return rows


def table_of(rows: Sequence[Row], seqs: Sequence[int]) -> Any:
    """Rows as an Arrow table, with their numbers in the order of adding."""
    columns: dict[str, Any] = {key: [row.meta[key] for row in rows] for key in _PLAIN}
    columns["sha256"] = [row.sha256 for row in rows]
    columns["seq"] = list(seqs)
    columns["object_names"] = [[name for name, _ in row.meta["objects"]] for row in rows]
    columns["object_dims"] = [[width for _, width in row.meta["objects"]] for row in rows]
    columns["camera_names"] = [[name for name, _ in row.meta["cameras"]] for row in rows]
    columns["camera_sha256"] = [[digest for _, digest in row.meta["cameras"]] for row in rows]
    for key in _ARRAYS:
        columns[key] = _list_column([row.arrays.get(key) for row in rows], SCHEMA.field(key).type)
    arrays = [
        columns[field.name] if field.name in _ARRAYS else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def rows_of(table: Any) -> list[Row]:
    """The rows of an Arrow table; arrays look into its buffers and cannot be written to."""
    plain = {key: table[key].to_pylist() for key in (*_PLAIN, "sha256")}
    pairs = {
        "objects": (table["object_names"].to_pylist(), table["object_dims"].to_pylist()),
        "cameras": (table["camera_names"].to_pylist(), table["camera_sha256"].to_pylist()),
    }
    lists = {key: _slices(table[key]) for key in _ARRAYS}
    rows = []
    for i in range(table.num_rows):
        meta: dict[str, Any] = {key: plain[key][i] for key in _PLAIN}
        for key, (names, values) in pairs.items():
            meta[key] = [list(pair) for pair in zip(names[i], values[i], strict=True)]
        arrays = {key: value for key, values in lists.items() if (value := values[i]) is not None}
        rows.append(Row(plain["sha256"][i], meta, arrays))
    return rows


def _list_column(values: Sequence[NDArray[Any] | None], kind: Any) -> Any:
    """A list column without a trip through Python numbers, which would cost most of an append."""
    sizes = [0 if value is None else len(value) for value in values]
    flat = np.concatenate([value for value in values if value is not None] or [np.empty(0)])
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int32())
    mask = pa.array([value is None for value in values])
    items = pa.array(flat, kind.value_type)
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)


def _slices(column: Any) -> list[NDArray[Any] | None]:
    found: list[NDArray[Any] | None] = []
    for chunk in column.chunks:
        offsets = chunk.offsets.to_numpy()
        values = chunk.values.to_numpy(zero_copy_only=False)
        nulls = chunk.is_null().to_pylist()
        found += [
            None if null else values[a:b] for null, a, b in zip(nulls, offsets[:-1], offsets[1:], strict=True)
        ]
    return found
