"""Reads a LeRobotDataset v3, ours or anyone's, as episodes whose images are decoded when asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError
from recap.lazy import LazySequence
from recap.pool import lerobot_format as fmt
from recap.types import F32, F64, Episode
from recap.video import VideoFrames, video_length

_COUNTERS = ("frame_index", "episode_index")


@dataclass(frozen=True, slots=True)
class _Row:
    """Where one episode lies, and what the episode table says of it."""

    length: int
    data: Path
    first_row: int  # in its data file
    videos: Mapping[str, tuple[Path, int]]  # camera -> file and first frame
    task: str
    extra: Mapping[str, Any]  # our own columns, without their prefix; empty in other datasets


class LeRobotDataset(LazySequence[Episode]):
    """A dataset on disk as a sequence of episodes; `open` makes one."""

    def __init__(self, root: Path, info: Mapping[str, Any], rows: Sequence[_Row]) -> None:
        self.root = root
        self.info = info
        self._rows = rows
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
    def features(self) -> Mapping[str, fmt.Feature]:
        """The columns and videos of the dataset, as its info.json has them."""
        features: dict[str, fmt.Feature] = self.info["features"]
        return features

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self.info["fps"])

    def __len__(self) -> int:
        return len(self._rows)

    def _item(self, number: int) -> Episode:
        with _as_dataset_error(self.root, f"episode {number}"):
            return self._episode(number)

    def check(self) -> None:
        """Read every value and decode every frame; raises a DatasetError on the first thing wrong."""
        for episode in self:  # each value is looked at when an episode is read
            for frames in episode.images.values():
                for _ in frames:  # and each frame when it is decoded
                    pass

    def _episode(self, index: int) -> Episode:
        row, extra = self._rows[index], self._rows[index].extra
        table = self._table(row)
        self._check_rows(index, table)
        goal = self._vectors(table, fmt.GOAL)
        values = self._vectors(table, fmt.OBJECTS)
        names = self.features.get(fmt.OBJECTS, {}).get("names")
        name = f"{self.root.name}/{index}"
        success = table[fmt.SUCCESS].to_pylist()[-1] if fmt.SUCCESS in table.column_names else True
        return Episode(
            id=extra.get("id", name),
            scene_id=extra.get("scene_id", name),
            task=row.task,
            embodiment=extra.get("embodiment", self.info.get("robot_type") or "unknown"),
            fps=self.fps,
            timestamps=_timestamps(table, self.fps),
            proprio=self._vectors(table, fmt.STATE),
            actions=self._vectors(table, fmt.ACTION),
            objects=fmt.split_objects(values, names) if values.shape[1] else {},
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

    def _table(self, row: _Row) -> Any:
        """The rows of one episode, read from the row groups that hold them."""
        metadata, starts = self._file(row.data)
        first, last = (
            np.searchsorted(starts, [row.first_row, row.first_row + row.length - 1], side="right") - 1
        )
        keys = [key for key, feature in self.features.items() if feature["dtype"] not in ("video", "image")]
        with pq.ParquetFile(row.data, metadata=metadata) as file:
            table = file.read_row_groups(range(first, last + 1), columns=keys)
        return table.slice(row.first_row - int(starts[first]), row.length)

    def _file(self, path: Path) -> tuple[Any, NDArray[np.int64]]:
        if path not in self._files:
            metadata = pq.read_metadata(path)
            sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._files[path] = metadata, np.cumsum([0, *sizes[:-1]])
        return self._files[path]

    def _vectors(self, table: Any, key: str) -> F32:
        """The (t, d) values of a feature; (t, 0) where the dataset has none of this name."""
        if key not in self.features:
            return np.empty((table.num_rows, 0), np.float32)
        values = fmt.column_values(table[key]).astype(np.float32)
        if values.shape[1] != _width(self.features[key]):
            raise ValueError(
                f"{key} is {values.shape[1]} wide where info.json says {_width(self.features[key])}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{key} holds NaN or infinity")
        return values

    def _check_rows(self, index: int, table: Any) -> None:
        n = self._rows[index].length
        if table.num_rows != n:
            raise ValueError(f"{table.num_rows} rows where {n} are expected")
        if (fmt.column_values(table["episode_index"]) != index).any():
            raise ValueError("its rows belong to another episode")
        if (fmt.column_values(table["frame_index"])[:, 0] != np.arange(n)).any():
            raise ValueError("its frames are not in order")

    def _check_files(self) -> None:
        expected: dict[Path, int] = {}
        for row in self._rows:
            expected[row.data] = max(expected.get(row.data, 0), row.first_row + row.length)
        for path, n_rows in expected.items():
            with _as_dataset_error(self.root, str(path.relative_to(self.root))):
                metadata, _ = self._file(path)
                if metadata.num_rows != n_rows:
                    raise ValueError(f"{metadata.num_rows} rows where the episodes have {n_rows}")
                _check_schema(metadata.schema.to_arrow_schema(), self.features)
        lengths: dict[Path, int] = {}
        for index, row in enumerate(self._rows):
            for path, start in row.videos.values():
                if path not in lengths:
                    lengths[path] = video_length(path, self.fps)
                if start < 0 or start + row.length > lengths[path]:
                    name = path.relative_to(self.root)
                    _fail(self.root, f"{name} has {lengths[path]} frames, too few for episode {index}")


def _read_info(root: Path) -> dict[str, Any]:
    if not root.is_dir():
        raise DatasetError(f"dataset {root} does not exist; check the path or collect it first")
    path = root / fmt.INFO_PATH
    if not path.is_file():
        raise DatasetError(
            f"dataset {root} is half-written: {fmt.INFO_PATH} is missing; "
            "collect it again or point to another folder"
        )
    with _as_dataset_error(root, fmt.INFO_PATH):
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = info["codebase_version"]
        if version != fmt.VERSION:
            raise DatasetError(
                f"dataset {root} is LeRobot {version}, not {fmt.VERSION}; convert it with LeRobot's script"
            )
        for key in (fmt.STATE, fmt.ACTION, "timestamp", *_COUNTERS):
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
    with _as_dataset_error(root, "meta/episodes"):
        paths = sorted((root / "meta/episodes").glob("*/*.parquet"))
        if not paths:
            raise ValueError("there is no episode table")
        records = [record for path in paths for record in _read_records(path)]
        if [record["episode_index"] for record in records] != list(range(info["total_episodes"])):
            raise ValueError(f"not the episodes 0 to {info['total_episodes'] - 1} that info.json promises")
        if sum(record["length"] for record in records) != info["total_frames"]:
            raise ValueError(f"lengths do not add up to the {info['total_frames']} frames of info.json")
        starts: dict[Path, int] = {}
        return [_row(root, info, record, starts) for record in records]


def _read_records(path: Path) -> list[dict[str, Any]]:
    names = [name for name in pq.read_schema(path).names if not name.startswith("stats/")]
    records: list[dict[str, Any]] = pq.read_table(path, columns=names).to_pylist()
    return records


def _row(root: Path, info: Mapping[str, Any], record: Mapping[str, Any], starts: dict[Path, int]) -> _Row:
    """One episode; `starts` keeps the first frame of each data file, which its first episode tells."""
    length, first = record["length"], record["dataset_from_index"]
    if length < 1 or record["dataset_to_index"] - first != length:
        raise ValueError(f"episode {record['episode_index']} has no consistent length")
    data = _file_path(root, info["data_path"], record, "data")
    cameras = [key for key, feature in info["features"].items() if feature["dtype"] == "video"]
    videos = {}
    for key in cameras:
        start_s, end_s = record[f"videos/{key}/from_timestamp"], record[f"videos/{key}/to_timestamp"]
        if round((end_s - start_s) * info["fps"]) != length:
            raise ValueError(f"episode {record['episode_index']} is not as long as its video of {key}")
        path = _file_path(root, info["video_path"], record, f"videos/{key}", video_key=key)
        videos[key.removeprefix(fmt.IMAGES).removeprefix("observation.")] = path, round(start_s * info["fps"])
    extra = {
        key.removeprefix(fmt.EXTRA): value
        for key, value in record.items()
        if key.startswith(fmt.EXTRA) and value is not None
    }
    task = record["tasks"][0] if record["tasks"] else ""
    return _Row(length, data, first - starts.setdefault(data, first), videos, task, extra)


def _file_path(root: Path, template: str, record: Mapping[str, Any], prefix: str, **names: str) -> Path:
    chunk, file = record[f"{prefix}/chunk_index"], record[f"{prefix}/file_index"]
    name = Path(template.format(chunk_index=chunk, file_index=file, **names))
    if name.is_absolute() or ".." in name.parts:  # a dataset must not point at other files of its reader
        raise ValueError(f"{name} lies outside of the dataset")
    return root / name


def _check_schema(schema: Any, features: Mapping[str, fmt.Feature]) -> None:
    for key in (fmt.STATE, fmt.ACTION, fmt.OBJECTS, fmt.GOAL, "timestamp", *_COUNTERS):
        if key not in features:
            continue
        if key not in schema.names:
            raise ValueError(f"column '{key}' is missing")
        kind = schema.field(key).type
        nested = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
        value = kind.value_type if nested else kind
        fits = pa.types.is_integer(value) if key in _COUNTERS else pa.types.is_floating(value)
        wide = not nested and _width(features[key]) != 1
        if (
            not fits
            or wide
            or (pa.types.is_fixed_size_list(kind) and kind.list_size != _width(features[key]))
        ):
            raise ValueError(
                f"column '{key}' is {kind}, not {features[key]['dtype']} {features[key]['shape']}"
            )


def _timestamps(table: Any, fps: float) -> F64:
    """Times in double precision: exact where the stored single-precision ones are those of an even clock."""
    stored = fmt.column_values(table["timestamp"])[:, 0]
    even = np.arange(len(stored)) / fps
    single = stored.astype(np.float32)
    if (np.abs(single - even) <= np.spacing(np.maximum(single, np.float32(0)))).all():
        return even
    if not (np.diff(stored) > 0).all() or not np.isfinite(stored).all():
        raise ValueError("its timestamps do not increase")
    return stored.astype(np.float64)


def _width(feature: fmt.Feature) -> int:
    return int(np.prod(feature["shape"]))


@contextmanager
def _as_dataset_error(root: Path, what: str) -> Iterator[None]:
    """Any way in which a damaged file shows itself becomes one line that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        _fail(root, f"{what}: the file is missing", error)
    except KeyError as error:
        _fail(root, f"{what}: {error} is missing", error)
    except (
        OSError,
        pa.ArrowException,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        _fail(root, f"{what}: {error or type(error).__name__}", error)


def _fail(root: Path, why: str, cause: BaseException | None = None) -> NoReturn:
    line = " ".join(why.split())
    raise DatasetError(f"dataset {root} is damaged: {line}; restore its files or collect it again") from cause
