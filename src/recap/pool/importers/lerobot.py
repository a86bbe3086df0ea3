"""Any LeRobotDataset v3 with a state and an action, its other columns by a mapping of keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import DatasetError, InputError
from recap.pool import lerobot_format as fmt
from recap.pool.importers.mapping import IMAGE, OBJECT, Kind, SourceKey, check_name
from recap.pool.importers.source import RawEpisode, as_dataset_error, as_matrix, check_fps, check_size
from recap.pool.lerobot_read import LeRobotDataset

_COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_NUMBERS = ("float", "int", "uint", "bool")


class LeRobotReader:
    """The dataset's own reader, and the columns which that one does not keep."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        self._dataset = LeRobotDataset.open(path)
        if fps is not None and check_fps(fps) != self._dataset.fps:
            raise InputError(
                f"{path} says {self._dataset.fps:g} frames per second, not {fps:g}: "
                "leave --fps out, and resample what was read"
            )
        with as_dataset_error(path, fmt.INFO_PATH):
            length = self._dataset._rows[0].length if len(self._dataset) else 0
            self._keys = {
                key: _source_key(key, feature, length) for key, feature in self._dataset.features.items()
            }
        if not len(self._dataset):
            raise DatasetError(f"{path} has no episodes; there is nothing to import")

    def __len__(self) -> int:
        return len(self._dataset)

    def lengths(self) -> Sequence[int]:
        """From the episode table."""
        return [row.length for row in self._dataset._rows]

    def keys(self) -> Mapping[str, SourceKey]:
        """What info.json says each frame has."""
        return self._keys

    def default_mapping(self) -> Mapping[str, str]:
        """LeRobot's own names; objects apart where their columns are named `block.0`, `block.1`, …"""
        mapping = {"proprio": fmt.STATE, "action": fmt.ACTION}
        if fmt.OBJECTS in self._keys and self._keys[fmt.OBJECTS].kind == "numbers":
            mapping |= self._default_objects()
        if fmt.GOAL in self._keys and self._keys[fmt.GOAL].kind == "numbers":
            mapping["goal"] = fmt.GOAL
        for key, info in self._keys.items():
            if info.kind == "images":
                mapping[IMAGE + check_name("camera", _camera(key))] = key
        return mapping

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One episode; its videos stay closed."""
        episode = self._dataset[index]
        row = self._dataset._rows[index]
        for key in numbers:
            check_size(f"'{key}'", (row.length, self._keys[key].width), 8)
        with as_dataset_error(self.path, f"episode {index}"):
            table = self._dataset._table(row)
            values = {key: self._values(table, key) for key in numbers}
        return RawEpisode(
            id=episode.id,
            scene_id=episode.scene_id,
            fps=episode.fps,
            timestamps=episode.timestamps,
            numbers=values,
            images={key: episode.images[_camera(key)] for key in images},
            task=episode.task,
            embodiment=episode.embodiment,
            action_space=episode.action_space,
            success=episode.success,
            source=episode.source or f"lerobot:{self.path.name}",
            attributes=episode.attributes,
        )

    def _values(self, table: Any, key: str) -> Any:
        values = as_matrix(fmt.column_values(table[key]))
        if values.shape[1] != self._keys[key].width:
            raise ValueError(
                f"{key} is {values.shape[1]} wide, not {self._keys[key].width} as info.json says"
            )
        return values

    def _default_objects(self) -> dict[str, str]:
        """`object:block=observation.environment_state[0:3]`, from the names of the columns."""
        width = self._keys[fmt.OBJECTS].width
        numbered = np.arange(width, dtype=np.float32)[None]
        found = {}
        for name, columns in fmt.split_objects(
            numbered, self._dataset.features[fmt.OBJECTS].get("names")
        ).items():
            chosen = columns[0].astype(int).tolist()
            together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
            pieces = [f"[{chosen[0]}:{chosen[-1] + 1}]"] if together else [f"[{i}]" for i in chosen]
            found[OBJECT + check_name("object", name)] = "+".join(fmt.OBJECTS + piece for piece in pieces)
        return found


def _source_key(key: str, feature: fmt.Feature, length: int) -> SourceKey:
    dtype = str(feature["dtype"])
    shape = tuple(int(n) for n in feature["shape"])
    if dtype == "video":
        kind: Kind = "images"
    elif dtype.startswith(_NUMBERS) and key not in _COUNTERS and len(shape) <= 1:
        kind = "numbers"  # nested lists are left alone: the reader of columns keeps one level
    else:
        kind = "other"
    inner = () if shape == (1,) and kind == "other" else shape
    return SourceKey(key, (length, *inner), dtype, kind)


def _camera(key: str) -> str:
    return key.removeprefix(fmt.IMAGES).removeprefix("observation.")
