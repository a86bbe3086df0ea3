"""Stores each episode as one row of the table: conversion to and from Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.lazy import LazySequence
from recap.pool.blobs import BlobFrames, blob_name, encode, put_blob
from recap.pool.content import TEXTS, arrays_of, check_episode, digest_of, episode_of, meta_of
from recap.pool.files import Files
from recap.types import Episode, Scalar

_F32, _F64, _TEXT = pa.list_(pa.float32()), pa.list_(pa.float64()), pa.string()
KEYS = ("id", "sha256", "seq")  # what the index of a pool reads

SCHEMA = pa.schema(
    [
        ("id", _TEXT),
        ("sha256", _TEXT),  # of everything below except videos, which have their own hashes
        ("seq", pa.int64()),  # the order in which episodes were added
        *((key, _TEXT) for key in TEXTS[1:]),
        ("attributes", _TEXT),  # JSON
        ("fps", pa.float64()),
        ("success", pa.bool_()),
        ("n_frames", pa.int32()),
        ("timestamps", _F64),
        ("proprio", _F32),  # (t, p) row by row
        ("actions", _F32),
        ("goal", _F32),  # null if the task has none
        ("objects", _F32),  # objects concatenated
        ("object_names", pa.list_(_TEXT)),
        ("object_dims", pa.list_(pa.int32())),
        ("camera_names", pa.list_(_TEXT)),
        ("camera_sha256", pa.list_(_TEXT)),
    ]
)
_ARRAYS = ("timestamps", "proprio", "actions", "goal", "objects")
_PAIRS = {"objects": ("object_names", "object_dims"), "cameras": ("camera_names", "camera_sha256")}
_PLAIN = (*TEXTS, "attributes", "fps", "success", "n_frames")

Films: TypeAlias = Mapping[str, Mapping[str, str]]  # episode -> camera -> hash of its stored video
NO_FILMS: Films = {}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One episode as metadata and arrays, with its hash."""

    sha256: str
    meta: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @property
    def id(self) -> str:
        return str(self.meta["id"])

    @property
    def cameras(self) -> dict[str, str]:
        """Camera -> hash of its video."""
        return dict(self.meta["cameras"])

    @property
    def intact(self) -> bool:
        """True if the data match the hash."""
        return digest_of(self.meta, self.arrays) == self.sha256

    def episode(self, files: Files) -> Episode:
        """The episode; its videos are decoded on demand."""
        if not self.intact:
            raise DatasetError(f"episode {self.id!a} is damaged: run recap pool verify --repair")
        n, fps = self.meta["n_frames"], self.meta["fps"]
        images = {name: BlobFrames(files, digest, n, fps) for name, digest in self.cameras.items()}
        return episode_of(self.meta, self.arrays, images)


def with_attribute(row: Row, name: str, value: Scalar | None) -> Row:
    """A row with a new value of an attribute; None removes it. Returns the same object if nothing changes."""
    known = json.loads(row.meta["attributes"])
    if known.get(name) == value:
        return row
    known = {key: old for key, old in known.items() if key != name}
    known |= {} if value is None else {name: value}
    meta = {**row.meta, "attributes": json.dumps(known, ensure_ascii=False, allow_nan=False)}
    return Row(digest_of(meta, row.arrays), meta, row.arrays)


def take_apart(
    files: Files, episodes: Sequence[Episode], progress: Callable[[int, int], None], films: Films = NO_FILMS
) -> list[Row]:
    """Check and hash episodes and store their videos; videos left by a failed add are harmless."""
    for episode in episodes:
        check_episode(episode)
    ids = [episode.id for episode in episodes]
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise InputError(f"episode {twice!a} is given twice: give each one a name of its own")
    rows = []
    for episode in episodes:
        known = films.get(episode.id, {})
        cameras = {
            camera: known.get(camera) or put_blob(files, encode(frames, episode.fps))
            for camera, frames in episode.images.items()
        }
        meta, arrays = meta_of(episode, cameras), arrays_of(episode)
        rows.append(Row(digest_of(meta, arrays), meta, arrays))
        progress(len(rows), len(episodes))
    return rows


def keep_films(files: Files, row: Row, episode: Episode) -> None:
    """Store videos of a row again that were removed since `take_apart`."""
    for camera, digest in row.cameras.items():
        if not files.exists(blob_name(digest)):
            put_blob(files, encode(episode.images[camera], episode.fps))


def table_of(rows: Sequence[Row], seqs: Sequence[int]) -> Any:
    """Rows as an Arrow table with their sequence numbers."""
    columns: dict[str, Any] = {key: [row.meta[key] for row in rows] for key in _PLAIN}
    columns |= {key: [row.arrays.get(key) for row in rows] for key in _ARRAYS}
    columns["sha256"] = [row.sha256 for row in rows]
    columns["seq"] = list(seqs)
    for key, (names, values) in _PAIRS.items():
        columns[names] = [[name for name, _ in row.meta[key]] for row in rows]
        columns[values] = [[value for _, value in row.meta[key]] for row in rows]
    return pa.Table.from_pydict(columns, SCHEMA)


class ArrowRows(LazySequence[Row]):
    """The rows of an Arrow table, created on demand; arrays share its buffers and are read-only."""

    def __init__(self, table: Any) -> None:
        table = table.combine_chunks()  # one piece, in which a row is found at once
        self.nbytes, self.length = int(table.nbytes), len(table)
        self._columns = {name: table[name] for name in SCHEMA.names if name != "seq"}

    def _item(self, number: int) -> Row:
        cells = {name: column[number] for name, column in self._columns.items()}
        meta = {key: cells[key].as_py() for key in _PLAIN}
        for key, (names, values) in _PAIRS.items():
            pairs = zip(cells[names].as_py(), cells[values].as_py(), strict=True)
            meta[key] = [list(pair) for pair in pairs]
        lists = {key: cells[key] for key in _ARRAYS}
        arrays = {k: v.values.to_numpy(zero_copy_only=False) for k, v in lists.items() if v.is_valid}
        return Row(cells["sha256"].as_py(), meta, arrays)
