"""Stages finished episodes as files, from which `recap.pool.lerobot_write` makes a LeRobotDataset.

A staged episode is a set of self-contained files, so that collection can be stopped and resumed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError, cause
from recap.pool import lerobot_meta as fmt
from recap.pool.content import check_episode
from recap.pool.importers.mapping import OBJECT
from recap.pool.lerobot_read import column_values
from recap.run_directory import PARTIAL, whole_file
from recap.types import F64, U8, Episode
from recap.video import CODEC, PIXEL_FORMAT, video_size, write_video

Stats: TypeAlias = dict[str, NDArray[Any]]

EXTRA_KEYS = ("id", "scene_id", "embodiment", "action_space", "success", "source")
_STAGED_META = b"recap"
_STAGED = re.compile(r"episode-(\d{6,})\.(?:parquet|.+\.mp4)")
_CAMERA = re.compile(r"[A-Za-z0-9_.-]+")
_CLOCK_TOLERANCE_S = 1e-4  # LeRobot's tolerance between a timestamp and a video frame
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_N_SAMPLED = 32  # frames of each camera and episode used for statistics
_MAX_SIDE = 150  # approximate longer side of a sampled image, pixels


def alike(episodes: Sequence[Episode]) -> Iterator[Episode]:
    """Episodes of several tasks with the objects and goals of all, because a dataset has fixed columns.

    Missing values are zero, and the attribute `recap.absent` names their columns.
    """
    widths: dict[str, int] = {}
    for episode in episodes:
        for name, values in _optional(episode).items():
            if widths.setdefault(name, values.shape[-1]) != values.shape[-1]:
                raise InputError(
                    f"{name} has {widths[name]} numbers in one task, {values.shape[-1]} in {episode.id!a}: "
                    "export each task with --task"
                )
    for episode in episodes:
        yield filled(episode, widths)


def filled(episode: Episode, widths: Mapping[str, int]) -> Episode:
    """An episode with zeros for features that only other tasks have.

    Args:
        widths: of the objects (`object:NAME`) and the goal of all tasks.
    """
    absent = [name for name in widths if name not in _optional(episode)]
    if not absent:
        return episode
    zeros = {name: np.zeros((len(episode), widths[name]), np.float32) for name in absent}
    objects = {name.removeprefix(OBJECT): value for name, value in zeros.items() if name != "goal"}
    return replace(
        episode,
        objects={**episode.objects, **objects},
        goal=zeros["goal"][0] if "goal" in zeros else episode.goal,
        attributes={**episode.attributes, fmt.ABSENT: json.dumps(absent)},
    )


def _optional(episode: Episode) -> dict[str, NDArray[Any]]:
    """Features that a task may lack, by the names of a mapping."""
    objects = {OBJECT + name: np.asarray(values) for name, values in episode.objects.items()}
    return objects if episode.goal is None else {**objects, "goal": np.asarray(episode.goal)}


def stage_episode(folder: Path, index: int, episode: Episode) -> None:
    """Write one finished episode into `folder`; its parquet file is written last and marks it as complete."""
    columns = _columns(episode)
    path = _table_path(folder, index)
    path.unlink(missing_ok=True)  # from here on an earlier episode of this index is incomplete
    cameras = {camera: _stage_camera(folder, index, episode, camera) for camera in sorted(episode.images)}
    meta = {
        **{key: getattr(episode, key) for key in (*EXTRA_KEYS, "task")},
        "success": bool(episode.success),
        "attributes": dict(episode.attributes),
        "fps": float(episode.fps),
        "state_dim": episode.proprio.shape[1],
        "action_dim": episode.actions.shape[1],
        "objects": {name: episode.objects[name].shape[1] for name in sorted(episode.objects)},
        "goal_dim": 0 if episode.goal is None else len(episode.goal),
        "cameras": cameras,
    }
    text = json.dumps(meta, sort_keys=True, allow_nan=False).encode()
    with whole_file(path) as partial:
        table = pa.table(columns).replace_schema_metadata({_STAGED_META: text})
        pq.write_table(table, partial, compression="snappy")


def staged_indices(folder: Path) -> set[int]:
    """Indices of complete episodes; removes files of interrupted stages, so none may be running."""
    whole = whole_indices(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        partial = path.name.startswith(".episode-") and path.name.endswith(PARTIAL)
        match = _STAGED.fullmatch(path.name)
        if partial or (match and int(match[1]) not in whole):
            path.unlink()
    return whole


def whole_indices(folder: Path) -> set[int]:
    return {int(path.stem.removeprefix("episode-")) for path in folder.glob("episode-[0-9]*.parquet")}


def _table_path(folder: Path, index: int) -> Path:
    return folder / f"episode-{index:06d}.parquet"


def _video_path(folder: Path, index: int, camera: str) -> Path:
    return folder / f"episode-{index:06d}.{camera}.mp4"


def _columns(episode: Episode) -> dict[str, Any]:
    """The checked Arrow columns of an episode."""
    check_episode(episode, for_pool=False)
    t = len(episode)
    even = np.arange(t) / episode.fps
    if np.abs(np.asarray(episode.timestamps) - even).max() > _CLOCK_TOLERANCE_S:
        raise InputError(f"episode {episode.id!a}: timestamps are not frame / {episode.fps:g}; resample it")
    for camera in episode.images:
        if not _CAMERA.fullmatch(camera):
            raise InputError(f"camera '{camera}' cannot name a file: use letters, digits, '_', '-' and '.'")
    objects = {f"object '{name}'": episode.objects[name] for name in sorted(episode.objects)}
    vectors = {fmt.STATE: episode.proprio, fmt.ACTION: episode.actions, **objects}
    if episode.goal is not None:
        vectors[fmt.GOAL] = np.tile(np.asarray(episode.goal), (t, 1))
    for what, values in vectors.items():
        if values.shape[1] == 0:
            raise InputError(f"episode {episode.id!a}: {what} is {values.shape}, not ({t}, 1 or more)")
    if objects:
        vectors[fmt.OBJECTS] = np.concatenate([np.asarray(v, np.float32) for v in objects.values()], axis=1)
    columns = {"timestamp": pa.array(np.asarray(episode.timestamps, np.float64))}
    for key in (key for key in (fmt.STATE, fmt.ACTION, fmt.OBJECTS, fmt.GOAL) if key in vectors):
        values = np.ascontiguousarray(vectors[key], np.float32)
        flat, width = pa.array(values.reshape(-1)), values.shape[1]  # LeRobot stores width 1 as plain numbers
        columns[key] = flat if width == 1 else pa.FixedSizeListArray.from_arrays(flat, width)
    return columns


def _stage_camera(folder: Path, index: int, episode: Episode, camera: str) -> dict[str, Any]:
    """Write the video of one camera; returns its size and the statistics of a sample of its frames."""
    path, sample = _video_path(folder, index, camera), list[U8]()
    write_video(path, _sampled(episode.images[camera], len(episode), sample), episode.fps)
    width, height = video_size(path)
    pixels = np.concatenate([frame.reshape(-1, 3) for frame in sample]) / 255.0  # each channel in [0, 1]
    stats: dict[str, Any] = {key: v.reshape(3, 1, 1).tolist() for key, v in _reduce(pixels).items()}
    return {"height": height, "width": width, "stats": stats | {"count": [len(sample)]}}


def _sampled(frames: Iterable[U8], n_frames: int, sample: list[U8]) -> Iterator[U8]:
    """Yield the same frames and append an even sample of them, downscaled, to `sample`."""
    wanted = np.linspace(0, n_frames - 1, min(n_frames, _N_SAMPLED)).round().astype(int).tolist()
    for i, frame in enumerate(frames):
        if i in wanted:
            stride = max(1, max(frame.shape[:2]) // _MAX_SIDE)
            sample.append(frame[::stride, ::stride].copy())
        yield frame


def _reduce(rows: F64) -> Stats:
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    plain = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    return plain | dict(zip(QUANTILES, quantiles, strict=True))


@dataclass(frozen=True, slots=True)
class Staged:
    """One staged episode: its table, metadata and videos."""

    table: Any  # pyarrow table: timestamp (f64) and the vectors
    meta: Mapping[str, Any]
    videos: Mapping[str, Path]  # camera -> file

    @classmethod
    def load(cls, folder: Path, index: int) -> Staged:
        path = _table_path(folder, index)
        try:
            table = pq.read_table(path)
            meta = json.loads(table.schema.metadata[_STAGED_META])
            videos = {camera: _video_path(folder, index, camera) for camera in meta["cameras"]}
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"staged {path} is damaged: {cause(error)}; remove, collect it again"
            ) from error
        for video in videos.values():
            if not video.is_file():
                raise DatasetError(f"staged {path} has lost {video.name}; remove and collect it again")
        return cls(table, meta, videos)

    def features(self) -> dict[str, fmt.Feature]:
        """The `features` of info.json for this episode."""
        meta = self.meta
        features = {fmt.STATE: _vector(meta["state_dim"]), fmt.ACTION: _vector(meta["action_dim"])}
        if meta["objects"]:
            names = [f"{name}.{i}" for name, width in meta["objects"].items() for i in range(width)]
            features[fmt.OBJECTS] = _vector(len(names), names)
        if meta["goal_dim"]:
            features[fmt.GOAL] = _vector(meta["goal_dim"])
        for camera, info in meta["cameras"].items():
            features[fmt.IMAGES + camera] = _video(info["height"], info["width"], meta["fps"])
        features["timestamp"] = _vector(1)
        for key in ("frame_index", "episode_index", "index", "task_index"):
            features[key] = {"dtype": "int64", "shape": [1], "names": None}
        for key in (fmt.DONE, fmt.SUCCESS):
            features[key] = {"dtype": "bool", "shape": [1], "names": None}
        return features

    def stats(self, table: Any) -> dict[str, Stats]:
        """Statistics of the columns, and those of the cameras from staging."""
        found = {}
        for key in table.column_names:
            rows: F64 = column_values(table[key]).astype(np.float64)
            found[key] = _reduce(rows) | {"count": np.array([len(rows)])}
        for camera in sorted(self.videos):
            stats = self.meta["cameras"][camera]["stats"]
            found[fmt.IMAGES + camera] = {key: np.array(value) for key, value in stats.items()}
        return found


def _vector(width: int, names: Sequence[str] | None = None) -> fmt.Feature:
    return {"dtype": "float32", "shape": [width], "names": list(names) if names else None}


def _video(height: int, width: int, fps: float) -> fmt.Feature:
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


def whole_number(value: float) -> int | float:
    """LeRobot writes whole rates as integers."""
    return int(value) if float(value).is_integer() else float(value)
