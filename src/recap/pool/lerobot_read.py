"""Reads a LeRobotDataset v3, ours or anyone's: its names and columns, its episodes, and the importer.

Images are decoded when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.lazy import LazySequence
from recap.pool.importers.mapping import IMAGE, OBJECT, Kind, SourceKey, check_name
from recap.pool.importers.source import RawEpisode, as_dataset_error, as_matrix, check_fps, check_size
from recap.types import F32, F64, Episode
from recap.video import VideoFrames, video_length

VERSION = "v3.0"
STATE = "observation.state"
OBJECTS = "observation.environment_state"
GOAL = "observation.goal"
ACTION = "action"
IMAGES = "observation.images."
DONE = "next.done"
SUCCESS = "next.success"
EXTRA = "recap/"  # our own columns of the episode table
INFO_PATH = "meta/info.json"

Feature: TypeAlias = dict[str, Any]

_INTEGERS = ("frame_index", "episode_index")
_COUNTERS = ("timestamp", *_INTEGERS, "index", "task_index")


@dataclass(frozen=True, slots=True)
class _Row:
    """Where the files of one episode are, and what the episode table says of it."""

    length: int
    data: Path
    first_row: int  # in its data file
    videos: Mapping[str, tuple[Path, int]]  # camera -> file and first frame
    task: str
    extra: Mapping[str, Any]  # our own columns, without their prefix; empty in other datasets


class LeRobotDataset(LazySequence[Episode]):
    """A dataset on disk as a sequence of episodes; `open` makes one."""

    def __init__(self, root: Path, info: Mapping[str, Any], rows: Sequence[_Row]) -> None:
        self.root, self.info, self._rows = root, info, rows
        self.lengths = [row.length for row in rows]  # frames of each episode
        self._files: dict[Path, tuple[Any, NDArray[np.int64]]] = {}  # metadata, first row of each row group

    @classmethod
    def open(cls, root: Path) -> LeRobotDataset:
        """Open a dataset after a cheap check: files, schemas, counts and video lengths, but no values."""
        info = _read_info(root)
        dataset = cls(root, info, _read_rows(root, info))
        dataset._check_files()
        return dataset

    def __reduce__(self) -> tuple[Callable[[Path], LeRobotDataset], tuple[Path]]:
        return LeRobotDataset.open, (self.root,)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The columns and videos of the dataset, as its info.json has them."""
        features: dict[str, Feature] = self.info["features"]
        return features

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self.info["fps"])

    def __len__(self) -> int:
        return len(self._rows)

    def _item(self, number: int) -> Episode:
        return self.read(number, ())[0]

    def check(self) -> None:
        """Read every value and decode every frame; raises a DatasetError on the first thing wrong."""
        for episode in self:  # each value is looked at when an episode is read
            for frames in episode.images.values():
                for _ in frames:  # and each frame when it is decoded
                    pass

    def read(self, index: int, keys: Collection[str]) -> tuple[Episode, dict[str, NDArray[Any]]]:
        """One episode, and the (t, d) values of these columns."""
        with as_dataset_error(self.root, f"episode {index}"):
            table = self._table(index)
            return self._episode(index, table), {key: self._values(table, key) for key in keys}

    def _episode(self, index: int, table: Any) -> Episode:
        row, extra = self._rows[index], self._rows[index].extra
        goal, values = self._vectors(table, GOAL), self._vectors(table, OBJECTS)
        name = f"{self.root.name}/{index}"
        success = table[SUCCESS].to_pylist()[-1] if SUCCESS in table.column_names else True
        return Episode(
            id=extra.get("id", name),
            scene_id=extra.get("scene_id", name),
            task=row.task,
            embodiment=extra.get("embodiment", self.info.get("robot_type") or "unknown"),
            fps=self.fps,
            timestamps=_timestamps(table, self.fps),
            proprio=self._vectors(table, STATE),
            actions=self._vectors(table, ACTION),
            objects=split_objects(values, self.features[OBJECTS].get("names")) if values.shape[1] else {},
            goal=goal[0].copy() if goal.shape[1] else None,
            images={
                camera: VideoFrames(path, start, row.length, self.fps)
                for camera, (path, start) in row.videos.items()
            },
            action_space=extra.get("action_space", ""),
            success=bool(extra.get("success", success)),
            source=extra.get("source", ""),
            attributes=json.loads(extra.get("attributes", "{}")),
        )

    def _table(self, index: int) -> Any:
        """The rows of one episode, read from the row groups that hold them, and checked."""
        row = self._rows[index]
        metadata, starts = self._file(row.data)
        ends = [row.first_row, row.first_row + row.length - 1]
        first, last = np.searchsorted(starts, ends, side="right") - 1
        keys = [key for key, feature in self.features.items() if feature["dtype"] not in ("video", "image")]
        with pq.ParquetFile(row.data, metadata=metadata) as file:
            groups = file.read_row_groups(range(first, last + 1), columns=keys)
        table = groups.slice(row.first_row - int(starts[first]), row.length)
        if table.num_rows != row.length:
            raise ValueError(f"{table.num_rows} rows where {row.length} are expected")
        if (column_values(table["episode_index"]) != index).any():
            raise ValueError("its rows belong to another episode")
        if (column_values(table["frame_index"])[:, 0] != np.arange(row.length)).any():
            raise ValueError("its frames are not in order")
        return table

    def _file(self, path: Path) -> tuple[Any, NDArray[np.int64]]:
        if path not in self._files:
            metadata = pq.read_metadata(path)
            sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._files[path] = metadata, np.cumsum([0, *sizes[:-1]])
        return self._files[path]

    def _values(self, table: Any, key: str) -> NDArray[Any]:
        values, width = column_values(table[key]), _width(self.features[key])
        if values.shape[1] != width:
            raise ValueError(f"{key} is {values.shape[1]} wide where info.json says {width}")
        return values

    def _vectors(self, table: Any, key: str) -> F32:
        """The (t, d) values of a feature; (t, 0) where the dataset has none of this name."""
        if key not in self.features:
            return np.empty((table.num_rows, 0), np.float32)
        values = self._values(table, key).astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{key} holds NaN or infinity")
        return values

    def _check_files(self) -> None:
        expected: dict[Path, int] = {}
        for row in self._rows:
            expected[row.data] = max(expected.get(row.data, 0), row.first_row + row.length)
        for path, n_rows in expected.items():
            with as_dataset_error(self.root, str(path.relative_to(self.root))):
                metadata, _ = self._file(path)
                if metadata.num_rows != n_rows:
                    raise ValueError(f"{metadata.num_rows} rows where the episodes have {n_rows}")
                _check_schema(metadata.schema.to_arrow_schema(), self.features)
        lengths: dict[Path, int] = {}
        for index, row in enumerate(self._rows):
            for path, start in row.videos.values():
                if path not in lengths:
                    lengths[path] = video_length(path, self.fps)
                with as_dataset_error(self.root, str(path.relative_to(self.root))):
                    if start < 0 or start + row.length > lengths[path]:
                        raise ValueError(f"{lengths[path]} frames are too few for episode {index}")


class LeRobotReader:
    """The importer: any dataset with a state and an action, its other columns by a mapping of keys."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        self._dataset = LeRobotDataset.open(path)
        if fps is not None and check_fps(fps) != self._dataset.fps:
            raise InputError(
                f"{path} says {self._dataset.fps:g} frames per second, not {fps:g}: "
                "leave --fps out, and resample what was read"
            )
        if not len(self._dataset):
            raise DatasetError(f"{path} has no episodes; there is nothing to import")
        with as_dataset_error(path, INFO_PATH):
            length = self._dataset.lengths[0]
            self.keys = {
                key: _source_key(key, feature, length) for key, feature in self._dataset.features.items()
            }

    def __len__(self) -> int:
        return len(self._dataset)

    def lengths(self) -> Sequence[int]:
        """From the episode table."""
        return self._dataset.lengths

    def default_mapping(self) -> Mapping[str, str]:
        """LeRobot's own names; objects apart where their columns are named `block.0`, `block.1`, …"""
        mapping = {"proprio": STATE, "action": ACTION}
        if OBJECTS in self.keys and self.keys[OBJECTS].kind == "numbers":
            mapping |= self._default_objects()
        if GOAL in self.keys and self.keys[GOAL].kind == "numbers":
            mapping["goal"] = GOAL
        for key, info in self.keys.items():
            if info.kind == "images":
                mapping[IMAGE + check_name("camera", _camera(key))] = key
        return mapping

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One episode; its videos stay closed."""
        for key in numbers:
            check_size(f"'{key}'", (self._dataset.lengths[index], self.keys[key].width), 8)
        episode, values = self._dataset.read(index, numbers)
        with as_dataset_error(self.path, f"episode {index}"):
            matrices = {key: as_matrix(value) for key, value in values.items()}
        return RawEpisode(
            id=episode.id,
            scene_id=episode.scene_id,
            fps=episode.fps,
            timestamps=episode.timestamps,
            numbers=matrices,
            images={key: episode.images[_camera(key)] for key in images},
            task=episode.task,
            embodiment=episode.embodiment,
            action_space=episode.action_space,
            success=episode.success,
            source=episode.source or f"lerobot:{self.path.name}",
            attributes=episode.attributes,
        )

    def _default_objects(self) -> dict[str, str]:
        """`object:block=observation.environment_state[0:3]`, from the names of the columns."""
        numbered = np.arange(self.keys[OBJECTS].width, dtype=np.float32)[None]
        found = {}
        for name, columns in split_objects(numbered, self._dataset.features[OBJECTS].get("names")).items():
            chosen = columns[0].astype(int).tolist()
            together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
            pieces = [f"[{chosen[0]}:{chosen[-1] + 1}]"] if together else [f"[{i}]" for i in chosen]
            found[OBJECT + check_name("object", name)] = "+".join(OBJECTS + piece for piece in pieces)
        return found


def column_values(column: Any) -> NDArray[Any]:
    """The (t, d) values of an arrow column of numbers or of lists, whose lengths must be equal."""
    array = pa.concat_arrays(column.chunks)
    nested = isinstance(array, pa.FixedSizeListArray | pa.ListArray | pa.LargeListArray)
    flat = array.flatten() if nested else array
    if array.null_count or flat.null_count:
        raise ValueError("values are missing")
    if nested and pc.count_distinct(pc.list_value_length(array)).as_py() != 1:
        raise ValueError("rows differ in length")
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(array), -1)
    return values


def split_objects(values: F32, names: object) -> dict[str, F32]:
    """Objects by name from columns named `block.0`, `block.1`, …; other columns stay together as one."""
    columns: dict[str, list[int]] = {}
    for column, text in enumerate(names if isinstance(names, list) else []):
        name, dot, number = text.rpartition(".") if isinstance(text, str) else ("", "", "")
        if dot and number == str(len(columns.get(name, []))):
            columns.setdefault(name, []).append(column)
    if sum(map(len, columns.values())) != values.shape[1]:
        return {"environment": values}
    return {name: values[:, chosen] for name, chosen in columns.items()}


def _read_info(root: Path) -> dict[str, Any]:
    if not root.is_dir():
        raise DatasetError(f"dataset {root} does not exist; check the path or collect it first")
    path = root / INFO_PATH
    if not path.is_file():
        raise DatasetError(
            f"dataset {root} is half-written: {INFO_PATH} is missing; "
            "collect it again or point to another folder"
        )
    with as_dataset_error(root, INFO_PATH):
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = info["codebase_version"]
        if version != VERSION:
            raise DatasetError(
                f"dataset {root} is LeRobot {version}, not {VERSION}; convert it with LeRobot's script"
            )
        for key in (STATE, ACTION, "timestamp", *_INTEGERS):
            if key not in info["features"]:
                raise ValueError(f"it has no feature '{key}'")
        images = [key for key, feature in info["features"].items() if feature["dtype"] == "image"]
        if images:
            raise DatasetError(f"dataset {root} keeps {images[0]} as single images; encode them as video")
        if not float(info["fps"]) > 0:
            raise ValueError(f"{info['fps']} is no frame rate")
    return info


def _read_rows(root: Path, info: Mapping[str, Any]) -> list[_Row]:
    """The episode table, checked against info.json."""
    with as_dataset_error(root, "meta/episodes"):
        paths = sorted((root / "meta/episodes").glob("*/*.parquet"))
        if not paths:
            raise ValueError("there is no episode table")
        records: list[dict[str, Any]] = []
        for path in paths:
            names = [name for name in pq.read_schema(path).names if not name.startswith("stats/")]
            records += pq.read_table(path, columns=names).to_pylist()
        if [record["episode_index"] for record in records] != list(range(info["total_episodes"])):
            raise ValueError(f"not the episodes 0 to {info['total_episodes'] - 1} that info.json lists")
        if sum(record["length"] for record in records) != info["total_frames"]:
            raise ValueError(f"lengths do not add up to the {info['total_frames']} frames of info.json")
        starts: dict[Path, int] = {}
        return [_row(root, info, record, starts) for record in records]


def _row(root: Path, info: Mapping[str, Any], record: Mapping[str, Any], starts: dict[Path, int]) -> _Row:
    """One episode; `starts` keeps the first frame of each data file, known from its first episode."""
    length, first = record["length"], record["dataset_from_index"]
    if length < 1 or record["dataset_to_index"] - first != length:
        raise ValueError(f"episode {record['episode_index']} has no consistent length")
    data = _file_path(root, info["data_path"], record, "data")
    videos = {}
    for key in (key for key, feature in info["features"].items() if feature["dtype"] == "video"):
        start_s, end_s = record[f"videos/{key}/from_timestamp"], record[f"videos/{key}/to_timestamp"]
        if round((end_s - start_s) * info["fps"]) != length:
            raise ValueError(f"episode {record['episode_index']} is not as long as its video of {key}")
        path = _file_path(root, info["video_path"], record, f"videos/{key}", video_key=key)
        videos[_camera(key)] = path, round(start_s * info["fps"])
    ours = {key: value for key, value in record.items() if key.startswith(EXTRA) and value is not None}
    extra = {key.removeprefix(EXTRA): value for key, value in ours.items()}
    task = record["tasks"][0] if record["tasks"] else ""
    return _Row(length, data, first - starts.setdefault(data, first), videos, task, extra)


def _file_path(root: Path, template: str, record: Mapping[str, Any], prefix: str, **names: str) -> Path:
    chunk, file = record[f"{prefix}/chunk_index"], record[f"{prefix}/file_index"]
    name = Path(template.format(chunk_index=chunk, file_index=file, **names))
    if name.is_absolute() or ".." in name.parts:  # a dataset must not point at other files of its reader
        raise ValueError(f"{name} is outside of the dataset")
    return root / name


def _check_schema(schema: Any, features: Mapping[str, Feature]) -> None:
    for key in (STATE, ACTION, OBJECTS, GOAL, "timestamp", *_INTEGERS):
        if key not in features:
            continue
        if key not in schema.names:
            raise ValueError(f"column '{key}' is missing")
        kind, width = schema.field(key).type, _width(features[key])
        nested = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
        value = kind.value_type if nested else kind
        fits = pa.types.is_integer(value) if key in _INTEGERS else pa.types.is_floating(value)
        if pa.types.is_fixed_size_list(kind):
            fits = fits and kind.list_size == width
        if not fits or (not nested and width != 1):
            raise ValueError(
                f"column '{key}' is {kind}, not {features[key]['dtype']} {features[key]['shape']}"
            )


def _timestamps(table: Any, fps: float) -> F64:
    """Times in double precision: exact where the stored single-precision ones are those of an even clock."""
    stored = column_values(table["timestamp"])[:, 0]
    even = np.arange(len(stored)) / fps
    single = stored.astype(np.float32)
    if (np.abs(single - even) <= np.spacing(np.maximum(single, np.float32(0)))).all():
        return even
    if not (np.diff(stored) > 0).all() or not np.isfinite(stored).all():
        raise ValueError("its timestamps do not increase")
    return stored.astype(np.float64)


def _width(feature: Feature) -> int:
    return int(np.prod(feature["shape"]))


def _camera(key: str) -> str:
    return key.removeprefix(IMAGES).removeprefix("observation.")


def _source_key(key: str, feature: Feature, length: int) -> SourceKey:
    dtype = str(feature["dtype"])
    shape = tuple(int(n) for n in feature["shape"])
    kind: Kind = "other"
    if dtype == "video":
        kind = "images"
    elif dtype.startswith(("float", "int", "uint", "bool")) and key not in _COUNTERS and len(shape) <= 1:
        kind = "numbers"  # nested lists are not read: `column_values` keeps one level
    inner = () if shape == (1,) and kind == "other" else shape
    names = column_names(feature.get("names"))
    return SourceKey(key, (length, *inner), dtype, kind, names if len(names) == _width(feature) else ())


def column_names(names: object) -> tuple[str, ...]:
    """LeRobot's `names` as a flat list: it may be nested, or a dictionary of lists or of column numbers."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, dict) and all(isinstance(at, int) for at in names.values()):
        return tuple(map(str, sorted(names, key=names.__getitem__)))
    parts = names.values() if isinstance(names, dict) else names if isinstance(names, list) else ()
    return tuple(name for part in parts for name in column_names(part))
