"""Reads LeRobot datasets (v2.0, v2.1, v3), written by ReCAP or others, and reports damage."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.lazy import Made
from recap.pool import lerobot_meta as meta
from recap.pool.importers.encoded import parquet_frame
from recap.pool.importers.mapping import IMAGE, OBJECT, Kind, SourceKey, check_name
from recap.pool.importers.source import (
    Damage,
    RawEpisode,
    Reader,
    as_dataset_error,
    as_matrix,
    check_fps,
    check_size,
)
from recap.pool.lerobot_meta import INFO_PATH, INTEGERS, Feature, Film, Row, width_of
from recap.types import F64, U8
from recap.video import VideoFrames, video_length

_COUNTERS = ("timestamp", *INTEGERS, "index", "task_index")
_FIELDS = {"proprio": (meta.STATE, "state"), "action": (meta.ACTION, "actions"), "goal": (meta.GOAL,)}


class LeRobotReader(Reader):
    """Columns and videos of a dataset by key; videos and images are decoded on demand."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path, self.info = path, meta.read_info(path)
        self._rows = meta.read_rows(path, self.info)
        self._features: dict[str, Feature] = self.info["features"]
        self._files: dict[Path, _DataFile] = {}
        self.fps = float(self.info["fps"])
        if fps is not None and check_fps(fps) != self.fps:
            raise InputError(f"{path} says {self.fps:g} fps, not {fps:g}: leave --fps out, resample later")
        if not self._rows:
            raise DatasetError(f"{path} has no episodes; there is nothing to import")
        with as_dataset_error(path, INFO_PATH):
            length = self._rows[0].length
            self.keys = {key: _source_key(key, feature, length) for key, feature in self._features.items()}

    def __len__(self) -> int:
        return len(self._rows)

    def lengths(self) -> Sequence[int]:
        return [row.length for row in self._rows]

    def default_mapping(self) -> Mapping[str, str]:
        """LeRobot's or openpi's names; columns named `block.0`, `block.1`, … are split by object."""
        numbers = [key for key, info in self.keys.items() if info.kind == "numbers"]
        known = {field: [key for key in keys if key in numbers] for field, keys in _FIELDS.items()}
        mapping = {field: keys[0] for field, keys in known.items() if keys}
        if meta.OBJECTS in numbers:
            mapping |= _object_fields(self.keys[meta.OBJECTS])
        for key, info in self.keys.items():
            if info.kind == "images":
                camera = key.removeprefix(meta.IMAGES).removeprefix("observation.")
                mapping[IMAGE + check_name("camera", camera)] = key
        return mapping

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One episode; its videos are not opened yet."""
        row = self._rows[index]
        for key in numbers:
            check_size(f"'{key}'", (row.length, self.keys[key].width), 8)
        with as_dataset_error(self.path, f"episode {row.index}"):
            table, extra, name = self._table(row, numbers), row.extra, f"{self.path.name}/{row.index}"
            won = table[meta.SUCCESS].to_pylist()[-1] if meta.SUCCESS in table.column_names else True
            attributes = {**row.attributes, **json.loads(extra.get("attributes", "{}"))}
            absent = json.loads(str(attributes.pop(meta.ABSENT, "[]")))
            task = row.task
            if task is None and "task_index" in table.column_names:
                task = self._tasks.get(table["task_index"][0].as_py())
            return RawEpisode(
                id=extra.get("id", name),
                scene_id=extra.get("scene_id", name),
                fps=self.fps,
                timestamps=_timestamps(table, self.fps),
                numbers={key: self._values(table, key) for key in numbers},
                images={key: self._frames(row, key) for key in images},
                task=task or "",
                embodiment=extra.get("embodiment", self.info.get("robot_type") or "unknown"),
                action_space=extra.get("action_space", ""),
                success=bool(extra.get("success", won)),
                source=extra.get("source") or f"lerobot:{self.path.name}",
                attributes=attributes,
                absent=absent,
            )

    def damage(self) -> Sequence[Damage]:
        """Episodes with missing, truncated or mismatched rows or videos, and rows without an episode."""
        counts = {"total_episodes": len(self), "total_frames": sum(self.lengths())}
        found = [
            Damage(self.path, None, f"{INFO_PATH}: {key} is {self.info[key]}, the episode table has {n}")
            for key, n in counts.items()
            if self.info.get(key, n) != n
        ]
        lengths: dict[Path, int | DatasetError] = {}  # frames of each video, or its error
        for number, row in enumerate(self._rows):
            try:
                self._range(row)
                for film in row.films.values():
                    self._check_film(row, film, lengths)
            except DatasetError as error:
                found.append(Damage.of(self.path, number, error))
        return found + self._orphans()

    def _check_film(self, row: Row, film: Film, lengths: dict[Path, int | DatasetError]) -> None:
        """Check from headers that a video covers its episode."""
        if film.path not in lengths:
            try:
                lengths[film.path] = video_length(film.path, self.fps)
            except DatasetError as error:
                lengths[film.path] = error
        n, name, needed = lengths[film.path], film.path.relative_to(self.path), film.start + row.length
        if isinstance(n, DatasetError):
            raise n
        if film.length != row.length:
            raise DatasetError(f"{name}: the episode table gives it {film.length} frames, {row.length} rows")
        if film.start < 0 or needed > n or (film.alone and needed != n):
            raise DatasetError(f"{name}: it has {n} whole frames where the episode needs {needed}")

    def _orphans(self) -> list[Damage]:
        """Rows that belong to no episode of the table; they are not imported."""
        known: dict[Path, set[int]] = {}
        for row in self._rows:
            known.setdefault(row.data, set()).add(row.index)
        found = []
        for path in sorted({*(self.path / "data").rglob("*.parquet"), *known}):
            try:
                episodes = self._file(path).episodes
            except Exception:  # the episodes of this file are reported as damaged already
                continue
            lost = {number: runs for number, runs in episodes.items() if number not in known.get(path, ())}
            if lost:
                n = sum(end - begin for runs in lost.values() for begin, end in runs)
                why = f"{path.relative_to(self.path)}: {n} rows are of no episode (number {next(iter(lost))}"
                found.append(Damage(self.path, None, why + (", …)" if len(lost) > 1 else ")")))
        return found

    @cached_property
    def _tasks(self) -> Mapping[int, str]:
        return meta.read_tasks(self.path)

    def _frames(self, row: Row, key: str) -> Sequence[U8]:
        if key in row.films:
            return VideoFrames(row.films[key].path, row.films[key].start, row.length, self.fps)
        return Made(row.length, partial(parquet_frame, row.data, key, self._range(row)[0]))

    def _table(self, row: Row, keys: Collection[str]) -> Any:
        """The rows of one episode, read from their row groups and checked."""
        begin, end = self._range(row)
        file = self._file(row.data)
        first, last = np.searchsorted(file.starts, [begin, end - 1], side="right") - 1
        wanted = {*_COUNTERS, meta.SUCCESS, *keys} & set(self._features)
        with pq.ParquetFile(row.data, metadata=file.metadata) as opened:
            groups = opened.read_row_groups(range(first, last + 1), columns=sorted(wanted))
        table = groups.slice(begin - int(file.starts[first]), row.length)
        if (column_values(table["frame_index"])[:, 0] != np.arange(row.length)).any():
            raise ValueError("its frames are not in order")
        return table

    def _range(self, row: Row) -> tuple[int, int]:
        """First row and end row of an episode in its data file, found by episode index."""
        with as_dataset_error(self.path, str(row.data.relative_to(self.path))):
            found = self._file(row.data).episodes.get(row.index, [])
            n = sum(end - begin for begin, end in found)
            if n != row.length:
                raise ValueError(f"{n} rows where the episode table has {row.length}")
            if len(found) != 1:
                raise ValueError("its rows are not together")
            return found[0]

    def _file(self, path: Path) -> _DataFile:
        if path not in self._files:
            self._files[path] = _DataFile(path, self._features)
        return self._files[path]

    def _values(self, table: Any, key: str) -> F64:
        values, width = as_matrix(column_values(table[key])), width_of(self._features[key])
        if values.shape[1] != width:
            raise ValueError(f"{key} is {values.shape[1]} wide where info.json says {width}")
        if not np.isfinite(values).all():
            raise ValueError(f"{key} holds NaN or infinity")
        return values


class _DataFile:
    """Metadata of a data file: row groups, and the rows of each episode."""

    def __init__(self, path: Path, features: Mapping[str, Feature]) -> None:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            _check_schema(metadata.schema.to_arrow_schema(), features)
            numbers = column_values(file.read(columns=["episode_index"])["episode_index"])[:, 0]
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self.starts = np.cumsum([0, *sizes[:-1]])  # first row of each row group
        self.metadata = metadata if len(sizes) > 16 else None  # else read again: maybe a file per episode
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        self.episodes: dict[int, list[tuple[int, int]]] = {}  # episode index -> its runs of rows
        for begin, end in pairwise(cuts):
            if end > begin:
                self.episodes.setdefault(int(numbers[begin]), []).append((begin, end))


def column_values(column: Any) -> NDArray[Any]:
    """Values (t, d) of an Arrow column of numbers or of lists of equal length."""
    array = pa.concat_arrays(column.chunks)
    nested = isinstance(array, pa.FixedSizeListArray | pa.ListArray | pa.LargeListArray)
    flat = array.flatten() if nested else array
    if array.null_count or flat.null_count:
        raise ValueError("values are missing")
    if nested and pc.count_distinct(pc.list_value_length(array)).as_py() != 1:
        raise ValueError("rows differ in length")
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(array), -1)
    return values


def _object_fields(key: SourceKey) -> dict[str, str]:
    """`object:block=KEY[0:3]` for columns `block.0`, `block.1`, …; other columns form one object."""
    columns: dict[str, list[int]] = {}
    for column, text in enumerate(key.names):
        name, dot, number = text.rpartition(".")
        if dot and number == str(len(columns.get(name, []))):
            columns.setdefault(name, []).append(column)
    if sum(map(len, columns.values())) != key.width:
        return {f"{OBJECT}environment": key.name}
    return {
        OBJECT + check_name("object", name): "+".join(f"{key.name}[{i}]" for i in chosen)
        if chosen[-1] - chosen[0] >= len(chosen)
        else f"{key.name}[{chosen[0]}:{chosen[-1] + 1}]"
        for name, chosen in columns.items()
    }


def _check_schema(schema: Any, features: Mapping[str, Feature]) -> None:
    for key in (key for key, feature in features.items() if feature["dtype"] == "image"):
        if key not in schema.names or not pa.types.is_struct(schema.field(key).type):
            raise ValueError(f"column '{key}' of pictures is missing")
    for key in (meta.STATE, meta.ACTION, meta.OBJECTS, meta.GOAL, "timestamp", *INTEGERS):
        if key not in features:
            continue
        if key not in schema.names:
            raise ValueError(f"column '{key}' is missing")
        kind, width = schema.field(key).type, width_of(features[key])
        nested = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
        value = kind.value_type if nested else kind
        fits = pa.types.is_integer(value) if key in INTEGERS else pa.types.is_floating(value)
        if pa.types.is_fixed_size_list(kind):
            fits = fits and kind.list_size == width
        if not fits or (not nested and width != 1):
            raise ValueError(f"'{key}' is {kind}, not {features[key]['dtype']} {features[key]['shape']}")


def _timestamps(table: Any, fps: float) -> F64:
    """Times in float64; exact if the stored float32 values are those of a constant frame rate."""
    stored = column_values(table["timestamp"])[:, 0]
    even = np.arange(len(stored)) / fps
    single = stored.astype(np.float32)
    if (np.abs(single - even) <= np.spacing(np.maximum(single, np.float32(0)))).all():
        return even
    if not (np.diff(stored) > 0).all() or not np.isfinite(stored).all():
        raise ValueError("its timestamps do not increase")
    return stored.astype(np.float64)


def _source_key(key: str, feature: Feature, length: int) -> SourceKey:
    dtype = str(feature["dtype"])
    shape = tuple(int(n) for n in feature["shape"])
    kind: Kind = "other"
    if dtype in ("video", "image"):
        kind = "images" if 3 in (shape[0], shape[-1]) else "other"
    elif dtype.startswith(("float", "int", "uint", "bool")) and key not in _COUNTERS and len(shape) <= 1:
        kind = "numbers"  # `column_values` supports only one level of lists
    inner = () if shape == (1,) and kind == "other" else shape
    names = meta.column_names(feature.get("names"))
    return SourceKey(key, (length, *inner), dtype, kind, names if len(names) == width_of(feature) else ())
