"""Reads a LeRobotDataset (v2.0, v2.1, v3), ours or anyone's: its episodes, its damage, and the importer.

Images are decoded when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.lazy import LazySequence
from recap.pool.importers.encoded import ParquetFrames
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
from recap.pool.lerobot_meta import (
    ABSENT,
    ACTION,
    GOAL,
    IMAGES,
    INFO_PATH,
    INTEGERS,
    OBJECTS,
    STATE,
    SUCCESS,
    Feature,
    Film,
    Row,
    column_names,
    read_info,
    read_rows,
    read_tasks,
    width_of,
)
from recap.types import F32, F64, U8, Episode
from recap.video import VideoFrames, video_length

_COUNTERS = ("timestamp", *INTEGERS, "index", "task_index")
_STATES, _ACTIONS = (STATE, "state"), (ACTION, "actions")  # LeRobot's name, and openpi's


class LeRobotDataset(LazySequence[Episode]):
    """A dataset on disk as a sequence of episodes; `open` makes one."""

    def __init__(self, root: Path, info: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self.root, self.info, self.rows = root, info, rows
        self.lengths = [row.length for row in rows]  # frames of each episode
        self._files: dict[Path, _DataFile] = {}

    @classmethod
    def open(cls, root: Path, *, whole: bool = True) -> LeRobotDataset:
        """Open a dataset; `whole` refuses one with damage that files and headers show, values unread."""
        info = read_info(root)
        dataset = cls(root, info, read_rows(root, info))
        if whole and dataset.damage:
            raise DatasetError(str(dataset.damage[0]))
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
        return len(self.rows)

    def _item(self, number: int) -> Episode:
        return self.read(number, ())[0]

    def check(self) -> None:
        """Read every value and decode every frame; raises a DatasetError on the first thing wrong."""
        for episode in self:  # each value is looked at when an episode is read
            for frames in episode.images.values():
                for _ in frames:  # and each frame when it is decoded
                    pass

    @cached_property
    def damage(self) -> list[Damage]:
        """Episodes whose rows or films are missing, cut off or of another length, and rows of no episode."""
        counts = {"total_episodes": len(self.rows), "total_frames": sum(self.lengths)}
        found = [
            Damage(self.root, None, f"{INFO_PATH}: {key} is {self.info[key]}, the episode table has {n}")
            for key, n in counts.items()
            if self.info.get(key, n) != n
        ]
        lengths: dict[Path, int | str] = {}  # frames of each film, or why it cannot be read
        for number, row in enumerate(self.rows):
            why = next((why for film in row.films.values() if (why := self._fault(row, film, lengths))), None)
            try:
                self._range(row)
            except DatasetError as error:
                why = str(error).removeprefix(f"{self.root}, ")
            if why is not None:
                found.append(Damage(self.root, number, why))
        return found + self._orphans()

    def read(self, number: int, keys: Collection[str]) -> tuple[Episode, dict[str, NDArray[Any]]]:
        """One episode, and the (t, d) values of these columns."""
        with as_dataset_error(self.root, f"episode {self.rows[number].index}"):
            table = self._table(self.rows[number], keys)
            return self._episode(self.rows[number], table), {k: self._values(table, k) for k in keys}

    def _episode(self, row: Row, table: Any) -> Episode:
        extra, name = row.extra, f"{self.root.name}/{row.index}"
        goal, values = self._vectors(table, GOAL), self._vectors(table, OBJECTS)
        attributes = {**row.attributes, **json.loads(extra.get("attributes", "{}"))}
        absent = json.loads(str(attributes.pop(ABSENT, "[]")))
        objects = split_objects(values, self.features[OBJECTS].get("names")) if values.shape[1] else {}
        success = table[SUCCESS].to_pylist()[-1] if SUCCESS in table.column_names else True
        return Episode(
            id=extra.get("id", name),
            scene_id=extra.get("scene_id", name),
            task=self._task(row, table),
            embodiment=extra.get("embodiment", self.info.get("robot_type") or "unknown"),
            fps=self.fps,
            timestamps=_timestamps(table, self.fps),
            proprio=self._vectors(table, STATE),
            actions=self._vectors(table, ACTION),
            objects={name: each for name, each in objects.items() if OBJECT + name not in absent},
            goal=goal[0].copy() if goal.shape[1] and "goal" not in absent else None,
            images={_camera(key): self._frames(row, key) for key in self._pictures},
            action_space=extra.get("action_space", ""),
            success=bool(extra.get("success", success)),
            source=extra.get("source", ""),
            attributes=attributes,
        )

    def absent(self, number: int) -> tuple[str, ...]:
        """Fields that only other tasks of the dataset have."""
        attributes = json.loads(self.rows[number].extra.get("attributes", "{}"))
        return tuple(json.loads(attributes.get(ABSENT, "[]")))

    @cached_property
    def _pictures(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] in ("video", "image")]

    @cached_property
    def _tasks(self) -> Mapping[int, str]:
        return read_tasks(self.root)

    def _task(self, row: Row, table: Any) -> str:
        if row.task is None and "task_index" in table.column_names:
            return self._tasks.get(table["task_index"][0].as_py(), "")
        return row.task or ""

    def _frames(self, row: Row, key: str) -> Sequence[U8]:
        if key in row.films:
            return VideoFrames(row.films[key].path, row.films[key].start, row.length, self.fps)
        return ParquetFrames(row.data, key, self._range(row)[0], row.length, self.root)

    def _table(self, row: Row, keys: Collection[str]) -> Any:
        """The rows of one episode, read from the row groups that hold them, and checked."""
        begin, end = self._range(row)
        file = self._file(row.data)
        first, last = np.searchsorted(file.starts, [begin, end - 1], side="right") - 1
        wanted = {*_COUNTERS, STATE, ACTION, OBJECTS, GOAL, SUCCESS, *keys} & set(self.features)
        with pq.ParquetFile(row.data, metadata=file.metadata) as opened:
            groups = opened.read_row_groups(range(first, last + 1), columns=sorted(wanted))
        table = groups.slice(begin - int(file.starts[first]), row.length)
        if (column_values(table["frame_index"])[:, 0] != np.arange(row.length)).any():
            raise ValueError("its frames are not in order")
        return table

    def _range(self, row: Row) -> tuple[int, int]:
        """The first row of an episode in its data file and the one after the last, found by their numbers."""
        with as_dataset_error(self.root, str(row.data.relative_to(self.root))):
            found = self._file(row.data).episodes.get(row.index, [])
            n = sum(end - begin for begin, end in found)
            if n != row.length:
                raise ValueError(f"{n} rows where the episode table has {row.length}")
            if len(found) != 1:
                raise ValueError("its rows are not together")
            return found[0]

    def _file(self, path: Path) -> _DataFile:
        if path not in self._files:
            if len(self._files) >= 256:  # older datasets have a file an episode
                self._files.clear()
            self._files[path] = _DataFile(path, self.features)
        return self._files[path]

    def _values(self, table: Any, key: str) -> NDArray[Any]:
        values, width = column_values(table[key]), width_of(self.features[key])
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

    def _fault(self, row: Row, film: Film, lengths: dict[Path, int | str]) -> str | None:
        """Why a film does not show its episode."""
        if film.path not in lengths:
            try:
                lengths[film.path] = video_length(film.path, self.fps)
            except DatasetError as error:
                lengths[film.path] = str(error)
        n, name = lengths[film.path], film.path.relative_to(self.root)
        if isinstance(n, str):
            return n
        if film.length != row.length:
            return f"{name}: the episode table gives it {film.length} frames and {row.length} rows"
        if film.start < 0 or film.start + row.length > n or (film.alone and n != row.length):
            needed = film.start + row.length
            return f"{name}: it has {n} whole frames where the episode needs {needed}"
        return None

    def _orphans(self) -> list[Damage]:
        """Rows that are of no episode of the table: they may be another's, so nothing is taken from them."""
        known: dict[Path, set[int]] = {}
        for row in self.rows:
            known.setdefault(row.data, set()).add(row.index)
        found = []
        for path in sorted({*(self.root / "data").rglob("*.parquet"), *known}):
            try:
                episodes = self._file(path).episodes.items() if path.is_file() else ()
            except Exception:  # whatever it is, its episodes are damaged, and named
                continue
            lost = [(i, spans) for i, spans in episodes if i not in known.get(path, ())]
            if lost:
                n = sum(end - begin for _, spans in lost for begin, end in spans)
                why = f"{path.relative_to(self.root)}: {n} rows are of no episode (number {lost[0][0]}"
                why += ", …)" if len(lost) > 1 else ")"
                found.append(Damage(self.root, None, why))
        return found


class _DataFile:
    """What is known of a data file without its values: row groups, and the rows of each episode."""

    def __init__(self, path: Path, features: Mapping[str, Feature]) -> None:
        self.metadata = pq.read_metadata(path)
        _check_schema(self.metadata.schema.to_arrow_schema(), features)
        sizes = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        self.starts = np.cumsum([0, *sizes[:-1]])  # first row of each row group
        numbers = column_values(pq.read_table(path, columns=["episode_index"])["episode_index"])[:, 0]
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        self.episodes: dict[int, list[tuple[int, int]]] = {}  # number -> its runs of rows
        for begin, end in pairwise(cuts):
            if end > begin:
                self.episodes.setdefault(int(numbers[begin]), []).append((begin, end))


class LeRobotReader(Reader):
    """The importer: any dataset; its columns by a mapping of keys."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        self._dataset = LeRobotDataset.open(path, whole=False)
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

    def damage(self) -> Sequence[Damage]:
        """What files and headers show."""
        return self._dataset.damage

    def default_mapping(self) -> Mapping[str, str]:
        """LeRobot's own names; objects apart where their columns are named `block.0`, `block.1`, …"""
        fields = {"proprio": _STATES, "action": _ACTIONS}
        found = {name: [key for key in keys if key in self.keys] for name, keys in fields.items()}
        mapping = {name: keys[0] for name, keys in found.items() if keys}
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
            absent=self._dataset.absent(index),
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


def _check_schema(schema: Any, features: Mapping[str, Feature]) -> None:
    for key in (key for key, feature in features.items() if feature["dtype"] == "image"):
        if key not in schema.names or not pa.types.is_struct(schema.field(key).type):
            raise ValueError(f"column '{key}' of pictures is missing")
    for key in (STATE, ACTION, OBJECTS, GOAL, "timestamp", *INTEGERS):
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


def _camera(key: str) -> str:
    return key.removeprefix(IMAGES).removeprefix("observation.")


def _source_key(key: str, feature: Feature, length: int) -> SourceKey:
    dtype = str(feature["dtype"])
    shape = tuple(int(n) for n in feature["shape"])
    kind: Kind = "other"
    if dtype in ("video", "image"):
        kind = "images" if 3 in (shape[0], shape[-1]) else "other"
    elif dtype.startswith(("float", "int", "uint", "bool")) and key not in _COUNTERS and len(shape) <= 1:
        kind = "numbers"  # nested lists are not read: `column_values` keeps one level
    inner = () if shape == (1,) and kind == "other" else shape
    names = column_names(feature.get("names"))
    return SourceKey(key, (length, *inner), dtype, kind, names if len(names) == width_of(feature) else ())
