"""Reads the meta folder of a LeRobotDataset (v2.0, v2.1, v3): features, and where each episode is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from recap.errors import DatasetError
from recap.pool.importers.source import as_dataset_error
from recap.pool.importers.strings import MAX_TEXT_BYTES
from recap.types import Scalar

VERSION = "v3.0"
STATE = "observation.state"
OBJECTS = "observation.environment_state"
GOAL = "observation.goal"
ACTION = "action"
IMAGES = "observation.images."
DONE = "next.done"
SUCCESS = "next.success"
EXTRA = "recap/"  # prefix of ReCAP's own columns of the episode table
ABSENT = "recap.absent"  # attribute: columns that only other tasks of the dataset have
INFO_PATH = "meta/info.json"
INTEGERS = ("frame_index", "episode_index")

Feature: TypeAlias = dict[str, Any]

_OLDER = ("v2.0", "v2.1")  # one file per episode
_PATHS = {
    "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
}
_PLACES = ("data/", "videos/", "meta/", "stats/", "dataset_", EXTRA)
_KNOWN = ("episode_index", "length", "tasks", "task_index")
_MAX_ATTRIBUTES = 32
_MAX_INFO_BYTES = 16 * MAX_TEXT_BYTES  # of info.json: more than any robot's feature names need
_MAX_PATH = 500  # characters of a template
_FIELDS = {"episode_chunk", "episode_index", "chunk_index", "file_index", "video_key"}
_SPEC = re.compile(r"(0?[1-9]?d)?")  # such as 03d; a larger width would allow names of any length


@dataclass(frozen=True, slots=True)
class Film:
    """The part of a video that shows one episode."""

    path: Path
    start: int  # first frame
    length: int  # frames
    alone: bool  # the file contains only this episode, so their lengths must agree


@dataclass(frozen=True, slots=True)
class Row:
    """The files of one episode and its row of the episode table."""

    index: int  # the episode index of the dataset
    length: int
    data: Path
    films: Mapping[str, Film]  # key -> film
    task: str | None  # None if only the frames give it
    extra: Mapping[str, Any]  # ReCAP's own columns without their prefix; empty in other datasets
    attributes: Mapping[str, Scalar]  # other columns of the episode table


def read_info(root: Path) -> dict[str, Any]:
    """`meta/info.json`, checked to be of a supported version."""
    if not root.is_dir():
        raise DatasetError(f"dataset {root} does not exist; check the path or collect it first")
    path = root / INFO_PATH
    if not path.is_file():
        raise DatasetError(f"dataset {root} is half-written: {INFO_PATH} is missing; collect it again")
    with as_dataset_error(root, INFO_PATH):
        if path.stat().st_size > _MAX_INFO_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes, more than a description needs")
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = info["codebase_version"]
        if version not in (VERSION, *_OLDER):
            known = ", ".join((*_OLDER, VERSION))
            raise DatasetError(f"{root} is LeRobot {version}, not {known}; convert it with LeRobot's script")
        for key in ("timestamp", *INTEGERS):
            if key not in info["features"]:
                raise ValueError(f"it has no feature '{key}'")
        if not float(info["fps"]) > 0:
            raise ValueError(f"{info['fps']} is no frame rate")
        for key in _PATHS:
            _check_template(key, info.get(key) or "")
    return info if version == VERSION else {**_PATHS, "chunks_size": 1000, **info}


def _check_template(key: str, template: str) -> None:
    """Raise a ValueError unless the template is one that LeRobot writes: known names, short numbers."""
    for _, name, spec, conversion in Formatter().parse(template[:_MAX_PATH]):
        plain = name is None or (name in _FIELDS and _SPEC.fullmatch(spec or "") and conversion is None)
        if not plain or len(template) > _MAX_PATH:
            raise ValueError(f"'{key}' is no plain template such as {_PATHS[key]}")


def read_rows(root: Path, info: Mapping[str, Any]) -> list[Row]:
    """The episode table, ordered by episode index."""
    older = info["codebase_version"] in _OLDER
    with as_dataset_error(root, "meta/episodes.jsonl" if older else "meta/episodes"):
        records = list(_lines(root / "meta/episodes.jsonl") if older else _records(root))
        rows = [_row(root, info, record, older) for record in records]
        numbers = [row.index for row in rows]
        if len(set(numbers)) != len(numbers):
            raise ValueError("an episode is listed twice")
        return sorted(rows, key=lambda row: row.index)


def read_tasks(root: Path) -> dict[int, str]:
    """Task index -> instruction; empty if there is no task table."""
    lines, table = root / "meta/tasks.jsonl", root / "meta/tasks.parquet"
    with as_dataset_error(root, "meta/tasks"):
        if lines.is_file():
            return {int(record["task_index"]): str(record["task"]) for record in _lines(lines)}
        if not table.is_file():
            return {}
        records = pq.read_table(table).to_pylist()
        nameless = "__index_level_0__"  # the name that pandas gives an index without a name
        return {int(r["task_index"]): str(r.get("task", r.get(nameless, ""))) for r in records}


def width_of(feature: Feature) -> int:
    """Numbers per frame."""
    return int(np.prod(feature["shape"]))


def column_names(names: object) -> tuple[str, ...]:
    """LeRobot's `names` as a flat list; they may be nested, or a dictionary of lists or of column indices."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, dict) and all(isinstance(at, int) for at in names.values()):
        return tuple(map(str, sorted(names, key=names.__getitem__)))
    parts = names.values() if isinstance(names, dict) else names if isinstance(names, list) else ()
    return tuple(name for part in parts for name in column_names(part))


def inside(root: Path, name: str) -> Path:
    """A file of the dataset by its relative path; paths that leave the dataset are refused."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name} is outside of the dataset")
    if path.parts[0] == "videos" and not (root / "videos").exists() and (root / "video").is_dir():
        path = Path("video", *path.parts[1:])  # some writers use this name for the folder
    return root / path


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        while line := file.readline(MAX_TEXT_BYTES + 1):
            if len(line) > MAX_TEXT_BYTES:
                raise ValueError(f"a line of {path.name} is longer than {MAX_TEXT_BYTES} characters")
            if line.strip():
                yield json.loads(line)


def _records(root: Path) -> Iterator[dict[str, Any]]:
    paths = sorted((root / "meta/episodes").glob("*/*.parquet"))
    if not paths:
        raise ValueError("there is no episode table")
    for path in paths:
        names = [name for name in pq.read_schema(path).names if not name.startswith("stats/")]
        yield from pq.read_table(path, columns=names).to_pylist()


def _row(root: Path, info: Mapping[str, Any], record: Mapping[str, Any], older: bool) -> Row:
    index, length, fps = int(record["episode_index"]), int(record["length"]), info["fps"]
    chunk = {"episode_chunk": index // int(info["chunks_size"]), "episode_index": index} if older else {}
    films: dict[str, Film] = {}
    for key in (key for key, feature in info["features"].items() if feature["dtype"] == "video"):
        place = {**(chunk or _place(record, f"videos/{key}")), "video_key": key}
        path = inside(root, info["video_path"].format(**place))
        first, end = 0.0, length / fps
        if not older:
            first, end = (record[f"videos/{key}/{at}_timestamp"] for at in ("from", "to"))
        films[key] = Film(path, round(first * fps), round((end - first) * fps), older)
    tasks = record.get("tasks")
    tasks = [tasks] if isinstance(tasks, str) else tasks
    ours = {key: value for key, value in record.items() if key.startswith(EXTRA) and value is not None}
    return Row(
        index,
        length,
        inside(root, info["data_path"].format(**(chunk or _place(record, "data")))),
        films,
        None if not tasks else str(tasks[0]),
        {key.removeprefix(EXTRA): value for key, value in ours.items()},
        _scalars(record),
    )


def _place(record: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name: int(record[f"{prefix}/{name}"]) for name in ("chunk_index", "file_index")}


def _scalars(record: Mapping[str, Any]) -> dict[str, Scalar]:
    """Other columns of the episode table, such as the scene."""
    found = {
        key[:64]: value
        for key, value in record.items()
        if key not in _KNOWN
        and not key.startswith(_PLACES)
        and isinstance(value, str | int | float | bool)
        and len(str(value)) <= 200
        and str(value) not in ("nan", "inf", "-inf")
    }
    return dict(list(found.items())[:_MAX_ATTRIBUTES])
