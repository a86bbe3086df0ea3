"""Names, paths and features of a LeRobotDataset v3; the writer and the reader both take them from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recap.types import F32
from recap.video import CODEC, PIXEL_FORMAT

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
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

Feature: TypeAlias = dict[str, Any]


def matrix_column(values: NDArray[Any]) -> Any:
    """An arrow column of (t, d) values; LeRobot stores d = 1 as plain numbers."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    width = values.shape[1] if values.ndim == 2 else 1
    return flat if width == 1 else pa.FixedSizeListArray.from_arrays(flat, width)


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


def object_names(objects: Mapping[str, int]) -> list[str]:
    """One name for each column of the object features, such as `block.0`, from the width of each object."""
    return [f"{name}.{i}" for name, width in objects.items() for i in range(width)]


def split_objects(values: F32, names: object) -> dict[str, F32]:
    """The inverse of `object_names`; columns named in any other way stay together as one object."""
    parts = [name.rpartition(".") for name in names] if _are_strings(names) else []
    columns: dict[str, list[int]] = {}
    for column, (name, dot, number) in enumerate(parts):
        if dot and number == str(len(columns.get(name, []))):
            columns.setdefault(name, []).append(column)
    if sum(map(len, columns.values())) != values.shape[1]:
        return {"environment": values}
    return {name: values[:, chosen] for name, chosen in columns.items()}


def dataset_features(
    *,
    state_dim: int,
    action_dim: int,
    objects: Mapping[str, int],
    goal_dim: int,
    cameras: Mapping[str, tuple[int, int]],
    fps: float,
) -> dict[str, Feature]:
    """The `features` of info.json; objects give widths, cameras (height, width)."""
    features = {STATE: _vector(state_dim), ACTION: _vector(action_dim)}
    if objects:
        names = object_names(objects)
        features[OBJECTS] = _vector(len(names), names)
    if goal_dim:
        features[GOAL] = _vector(goal_dim)
    for camera, (height, width) in cameras.items():
        features[IMAGES + camera] = _video(height, width, fps)
    features["timestamp"] = _vector(1)
    for key in ("frame_index", "episode_index", "index", "task_index"):
        features[key] = {"dtype": "int64", "shape": [1], "names": None}
    for key in (DONE, SUCCESS):
        features[key] = {"dtype": "bool", "shape": [1], "names": None}
    return features


def whole_number(value: float) -> int | float:
    """LeRobot writes rates as integers where they are."""
    return int(value) if float(value).is_integer() else float(value)


def _vector(width: int, names: Sequence[str] | None = None) -> Feature:
    return {"dtype": "float32", "shape": [width], "names": list(names) if names else None}


def _video(height: int, width: int, fps: float) -> Feature:
    return {
        "dtype": "video",
        "shape": [height, width, 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": height,
            "video.width": width,
            "video.codec": CODEC,
            "video.pix_fmt": PIXEL_FORMAT,
            "video.fps": whole_number(fps),
            "video.channels": 3,
            "video.is_depth_map": False,
            "has_audio": False,
        },
    }


def _are_strings(names: object) -> TypeGuard[list[str]]:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)
