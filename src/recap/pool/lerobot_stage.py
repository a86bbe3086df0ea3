"""Finished episodes as self-contained files, so that a collection can be stopped and taken up again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.pool.lerobot_format import ACTION, GOAL, OBJECTS, STATE, Feature, dataset_features, matrix_column
from recap.pool.lerobot_stats import FrameSample, Stats
from recap.run_directory import PARTIAL, whole_file
from recap.types import Episode
from recap.video import write_video

_META = b"recap"
_CLOCK_TOLERANCE_S = 1e-4  # what LeRobot allows between a timestamp and a frame of its video
_CAMERA = re.compile(r"[A-Za-z0-9_.-]+")
_STAGED = re.compile(r"episode-(\d{6,})\.(?:parquet|.+\.mp4)")


@dataclass(frozen=True, slots=True)
class StagedEpisode:
    """One staged episode: its table, what else is known of it, and where its videos are."""

    table: Any  # pyarrow table: timestamp (f64) and the vectors
    meta: Mapping[str, Any]
    videos: Mapping[str, Path]  # camera -> file

    def features(self) -> dict[str, Feature]:
        """The dataset features this episode fits into."""
        meta = self.meta
        return dataset_features(
            state_dim=meta["state_dim"],
            action_dim=meta["action_dim"],
            objects=meta["objects"],
            goal_dim=meta["goal_dim"],
            cameras={name: (c["height"], c["width"]) for name, c in meta["cameras"].items()},
            fps=meta["fps"],
        )

    def image_stats(self, camera: str) -> Stats:
        """The statistics of one camera, taken when the episode was staged."""
        return {key: np.array(value) for key, value in self.meta["cameras"][camera]["stats"].items()}


def stage_episode(folder: Path, index: int, episode: Episode) -> None:
    """Write one finished episode into `folder`; its parquet file appears last and says that it is whole."""
    columns = _columns(episode)
    _check_attributes(episode)
    _check_cameras(episode)
    sign = _table_path(folder, index)
    sign.unlink(missing_ok=True)  # an earlier episode of this index is no longer whole from here on
    cameras = {camera: _stage_camera(folder, index, episode, camera) for camera in sorted(episode.images)}
    meta = json.dumps(_meta(episode, cameras), sort_keys=True, allow_nan=False).encode()
    table = pa.table(columns).replace_schema_metadata({_META: meta})
    with whole_file(sign) as partial:
        pq.write_table(table, partial, compression="snappy")


def staged_indices(folder: Path) -> set[int]:
    """The whole episodes in `folder`; removes what interrupted stages left, so call it while none runs."""
    whole = complete_indices(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        partial = path.name.startswith(".episode-") and path.name.endswith(PARTIAL)
        match = _STAGED.fullmatch(path.name)
        if partial or (match and int(match[1]) not in whole):
            path.unlink()
    return whole


def complete_indices(folder: Path) -> set[int]:
    """The whole episodes in `folder`; touches nothing."""
    return {int(path.stem.removeprefix("episode-")) for path in folder.glob("episode-[0-9]*.parquet")}


def load_staged(folder: Path, index: int) -> StagedEpisode:
    """Read one staged episode back, its videos as paths."""
    path = _table_path(folder, index)
    try:
        table = pq.read_table(path)
        meta = json.loads(table.schema.metadata[_META])
        videos = {camera: _video_path(folder, index, camera) for camera in meta["cameras"]}
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(
            f"staged episode {path} is damaged: {why}; remove it and collect it again"
        ) from error
    for video in videos.values():
        if not video.is_file():
            raise DatasetError(
                f"staged episode {path} has lost its video {video.name}; remove it and collect it again"
            )
    return StagedEpisode(table, meta, videos)


def _table_path(folder: Path, index: int) -> Path:
    return folder / f"episode-{index:06d}.parquet"


def _video_path(folder: Path, index: int, camera: str) -> Path:
    return folder / f"episode-{index:06d}.{camera}.mp4"


def _stage_camera(folder: Path, index: int, episode: Episode, camera: str) -> dict[str, Any]:
    sample = FrameSample(episode.images[camera], len(episode))
    write_video(_video_path(folder, index, camera), sample, episode.fps)
    height, width = sample.shape[:2]
    stats = {key: value.tolist() for key, value in sample.stats().items()}
    return {"height": height, "width": width, "stats": stats}


def _meta(episode: Episode, cameras: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": episode.id,
        "scene_id": episode.scene_id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "action_space": episode.action_space,
        "success": bool(episode.success),
        "source": episode.source,
        "attributes": dict(episode.attributes),
        "fps": float(episode.fps),
        "state_dim": episode.proprio.shape[1],
        "action_dim": episode.actions.shape[1],
        "objects": {name: episode.objects[name].shape[1] for name in sorted(episode.objects)},
        "goal_dim": 0 if episode.goal is None else len(episode.goal),
        "cameras": cameras,
    }


def _columns(episode: Episode) -> dict[str, Any]:
    """The arrow columns of an episode, checked."""
    t = len(episode)
    if t == 0:
        raise InputError(f"episode '{episode.id}' is empty: leave it out")
    _check_clock(episode)
    vectors = {STATE: episode.proprio, ACTION: episode.actions}
    objects = {
        name: _checked(episode, f"object '{name}'", episode.objects[name]) for name in sorted(episode.objects)
    }
    if objects:
        vectors[OBJECTS] = np.concatenate(list(objects.values()), axis=1)
    if episode.goal is not None:
        vectors[GOAL] = np.tile(np.asarray(episode.goal), (t, 1))
    columns = {key: matrix_column(_checked(episode, key, value)) for key, value in vectors.items()}
    return {"timestamp": pa.array(np.asarray(episode.timestamps, np.float64)), **columns}


def _checked(episode: Episode, what: str, values: NDArray[Any]) -> NDArray[np.float32]:
    array = np.asarray(values, np.float32)
    if array.ndim != 2 or len(array) != len(episode) or array.shape[1] == 0:
        raise InputError(f"episode '{episode.id}': {what} is {array.shape}, not ({len(episode)}, 1 or more)")
    if not np.isfinite(array).all():
        raise InputError(f"episode '{episode.id}': {what} holds NaN or infinity; leave the episode out")
    return array


def _check_clock(episode: Episode) -> None:
    if not (np.isfinite(episode.fps) and episode.fps > 0):
        raise InputError(f"episode '{episode.id}': {episode.fps} is no frame rate; give a positive one")
    even = np.arange(len(episode)) / episode.fps
    if not np.abs(np.asarray(episode.timestamps) - even).max() <= _CLOCK_TOLERANCE_S:
        raise InputError(
            f"episode '{episode.id}': timestamps are not frame / {episode.fps:g} seconds; resample it first"
        )


def _check_cameras(episode: Episode) -> None:
    for camera, frames in episode.images.items():
        if not _CAMERA.fullmatch(camera):
            raise InputError(f"camera '{camera}' cannot name a file: use letters, digits, '_', '-' and '.'")
        if len(frames) != len(episode):
            raise InputError(
                f"episode '{episode.id}' has {len(frames)} frames of '{camera}' for {len(episode)} steps"
            )


def _check_attributes(episode: Episode) -> None:
    for key, value in episode.attributes.items():
        if not isinstance(value, str | int | float) or (isinstance(value, float) and not np.isfinite(value)):
            raise InputError(
                f"episode '{episode.id}': attribute '{key}' is not text, a finite number or a bool"
            )
