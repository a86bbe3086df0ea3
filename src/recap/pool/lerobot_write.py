"""Writes a LeRobotDataset v3: finished episodes are staged one by one, then put together.

A staged episode is a set of self-contained files, so that a collection can be stopped and resumed. The
dataset appears whole or not at all.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError, RunDirectoryError
from recap.pool import lerobot_meta as fmt
from recap.pool.content import check_episode
from recap.pool.importers.mapping import OBJECT
from recap.pool.lerobot_read import column_values
from recap.run_directory import PARTIAL, whole_file
from recap.types import F64, U8, Episode
from recap.video import CODEC, PIXEL_FORMAT, concatenate_videos, video_size, write_video

STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

Stats: TypeAlias = dict[str, NDArray[Any]]

_MB = 1024**2
_EXTRA_KEYS = ("id", "scene_id", "embodiment", "action_space", "success", "source")
_STAGED_META = b"recap"
_STAGED = re.compile(r"episode-(\d{6,})\.(?:parquet|.+\.mp4)")
_CAMERA = re.compile(r"[A-Za-z0-9_.-]+")
_CLOCK_TOLERANCE_S = 1e-4  # what LeRobot allows between a timestamp and a frame of its video
_QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_N_SAMPLED = 32  # frames for the statistics of one episode's camera
_MAX_SIDE = 150  # pixels of a sampled image, about


@dataclass(frozen=True, slots=True)
class Sizes:
    """When the next file and the next folder begin; LeRobot's own limits."""

    data_mb: float = 100
    video_mb: float = 200
    chunk_size: int = 1000  # files in a folder


def alike(episodes: Sequence[Episode]) -> Iterator[Episode]:
    """Episodes of several tasks with the objects and goals of all: a dataset has the same columns in each.

    What an episode does not have is zero, and its attribute `recap.absent` says so to the reader.
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
        absent = [name for name in widths if name not in _optional(episode)]
        zeros = {name: np.zeros((len(episode), widths[name]), np.float32) for name in absent}
        objects = {name.removeprefix(OBJECT): value for name, value in zeros.items() if name != "goal"}
        yield (
            episode
            if not absent
            else replace(
                episode,
                objects={**episode.objects, **objects},
                goal=zeros["goal"][0] if "goal" in zeros else episode.goal,
                attributes={**episode.attributes, fmt.ABSENT: json.dumps(absent)},
            )
        )


def _optional(episode: Episode) -> dict[str, NDArray[Any]]:
    """What a task may lack, by the names of a mapping."""
    objects = {OBJECT + name: np.asarray(values) for name, values in episode.objects.items()}
    return objects if episode.goal is None else {**objects, "goal": np.asarray(episode.goal)}


def stage_episode(folder: Path, index: int, episode: Episode) -> None:
    """Write one finished episode into `folder`; its parquet file is written last and marks it as whole."""
    columns = _columns(episode)
    path = _table_path(folder, index)
    path.unlink(missing_ok=True)  # an earlier episode of this index is no longer whole from here on
    cameras = {camera: _stage_camera(folder, index, episode, camera) for camera in sorted(episode.images)}
    meta = {
        **{key: getattr(episode, key) for key in (*_EXTRA_KEYS, "task")},
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
    """The whole episodes in `folder`; removes what interrupted stages left, so call it while none runs."""
    whole = _whole_indices(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        partial = path.name.startswith(".episode-") and path.name.endswith(PARTIAL)
        match = _STAGED.fullmatch(path.name)
        if partial or (match and int(match[1]) not in whole):
            path.unlink()
    return whole


def assemble(
    folder: Path,
    n_episodes: int,
    root: Path,
    *,
    robot_type: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    sizes: Sizes | None = None,
) -> None:
    """Merge the staged episodes 0..n-1 into a dataset at `root`; equal episodes give equal bytes.

    Args:
        robot_type: for info.json; by default the embodiment, where all episodes share one.
        progress: called with (done, total) steps of work.
    """
    if n_episodes < 1:
        raise InputError("cannot assemble a dataset of no episodes: collect at least one")
    missing = sorted(set(range(n_episodes)) - _whole_indices(folder))
    if missing:
        raise DatasetError(
            f"{len(missing)} of {n_episodes} episodes are not in {folder}, first {missing[0]}; collect them"
        )
    with _whole_directory(root) as temporary:
        _Assembly(folder, n_episodes, temporary, robot_type, progress, sizes or Sizes()).run()


def _whole_indices(folder: Path) -> set[int]:
    return {int(path.stem.removeprefix("episode-")) for path in folder.glob("episode-[0-9]*.parquet")}


def _table_path(folder: Path, index: int) -> Path:
    return folder / f"episode-{index:06d}.parquet"


def _video_path(folder: Path, index: int, camera: str) -> Path:
    return folder / f"episode-{index:06d}.{camera}.mp4"


def _columns(episode: Episode) -> dict[str, Any]:
    """The arrow columns of an episode, checked."""
    check_episode(episode, for_pool=False)
    t = len(episode)
    even = np.arange(t) / episode.fps
    if np.abs(np.asarray(episode.timestamps) - even).max() > _CLOCK_TOLERANCE_S:
        raise InputError(
            f"episode {episode.id!a}: timestamps are not frame / {episode.fps:g} seconds; resample it first"
        )
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
        columns[key] = _matrix_column(np.asarray(vectors[key], np.float32))
    return columns


def _matrix_column(values: NDArray[np.float32]) -> Any:
    """An arrow column of (t, d) values; LeRobot stores d = 1 as plain numbers."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return flat if values.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _stage_camera(folder: Path, index: int, episode: Episode, camera: str) -> dict[str, Any]:
    """Write the video of one camera; returns its size and its statistics, from a sample of its frames."""
    path, sample = _video_path(folder, index, camera), list[U8]()
    write_video(path, _sampled(episode.images[camera], len(episode), sample), episode.fps)
    width, height = video_size(path)
    pixels = np.concatenate([frame.reshape(-1, 3) for frame in sample]) / 255.0  # each channel in [0, 1]
    stats: dict[str, Any] = {key: v.reshape(3, 1, 1).tolist() for key, v in _reduce(pixels).items()}
    return {"height": height, "width": width, "stats": stats | {"count": [len(sample)]}}


def _sampled(frames: Iterable[U8], n_frames: int, sample: list[U8]) -> Iterator[U8]:
    """The same frames; an even, bounded sample of them is added to `sample`, large images thinned out."""
    wanted = np.linspace(0, n_frames - 1, min(n_frames, _N_SAMPLED)).round().astype(int).tolist()
    for i, frame in enumerate(frames):
        if i in wanted:
            stride = max(1, max(frame.shape[:2]) // _MAX_SIDE)
            sample.append(frame[::stride, ::stride].copy())
        yield frame


def _reduce(rows: F64) -> Stats:
    quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0)
    plain = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    return plain | dict(zip(_QUANTILES, quantiles, strict=True))


def _aggregate(parts: Sequence[Stats]) -> Stats:
    """Statistics of all episodes from those of each; quantiles are weighted means, as in LeRobot."""
    n = np.array([int(part["count"][0]) for part in parts], np.float64)
    stacked = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
    weights = (n / n.sum()).reshape(-1, *[1] * (stacked["mean"].ndim - 1))
    mean = (stacked["mean"] * weights).sum(0)
    variance = ((stacked["std"] ** 2 + (stacked["mean"] - mean) ** 2) * weights).sum(0)
    return {
        "min": stacked["min"].min(0),
        "max": stacked["max"].max(0),
        "mean": mean,
        "std": np.sqrt(variance),
        **{key: (stacked[key] * weights).sum(0) for key in _QUANTILES},
        "count": np.array([int(n.sum())]),
    }


@dataclass(frozen=True, slots=True)
class _Staged:
    """One staged episode: its table, what else is known of it, and where its videos are."""

    table: Any  # pyarrow table: timestamp (f64) and the vectors
    meta: Mapping[str, Any]
    videos: Mapping[str, Path]  # camera -> file

    @classmethod
    def load(cls, folder: Path, index: int) -> _Staged:
        path = _table_path(folder, index)
        try:
            table = pq.read_table(path)
            meta = json.loads(table.schema.metadata[_STAGED_META])
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
        return cls(table, meta, videos)

    def features(self) -> dict[str, fmt.Feature]:
        """The `features` of info.json that this episode fits into."""
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
        """Statistics of the columns, and those of the cameras, which were taken at staging."""
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
            "video.fps": _whole_number(fps),
            "video.channels": 3,
            "video.is_depth_map": False,
            "has_audio": False,
        },
    }


def _whole_number(value: float) -> int | float:
    """LeRobot writes rates as integers where they are."""
    return int(value) if float(value).is_integer() else float(value)


@contextmanager
def _whole_directory(root: Path) -> Iterator[Path]:
    """Yield a hidden directory beside `root`, renamed to `root` on success and removed on any error."""
    if root.exists():
        raise RunDirectoryError(f"{root} already exists; choose another name or remove it first")
    temporary = root.with_name(f".{root.name}{PARTIAL}")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed run
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.rename(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@dataclass(slots=True)
class _Roll:
    """Counts bytes and says which file of which chunk the next piece goes to."""

    limit: float  # bytes
    chunk_size: int
    number: int = 0
    used: int = 0

    def place(self, size: int) -> tuple[int, int]:
        if self.used and self.used + size >= self.limit:
            self.number, self.used = self.number + 1, 0
        self.used += size
        return divmod(self.number, self.chunk_size)


@dataclass(slots=True)
class _Assembly:
    """One dataset being built; the fields below the line grow on the way."""

    folder: Path
    n_episodes: int
    root: Path
    robot_type: str | None
    progress: Callable[[int, int], None] | None
    sizes: Sizes
    # ---
    features: dict[str, fmt.Feature] = field(default_factory=dict)
    fps: float = 0.0
    cameras: tuple[str, ...] = ()
    n_frames: int = 0
    n_done: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    embodiments: set[str] = field(default_factory=set)
    videos: list[Mapping[str, Path]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the episode table
    stats: dict[str, list[Stats]] = field(default_factory=dict)

    def run(self) -> None:
        self._write_data()
        for camera in self.cameras:
            self._write_videos(camera)
        self._write_tasks()
        self._write_episodes()
        total = {key: _aggregate(parts) for key, parts in self.stats.items()}
        plain = {key: {name: v.tolist() for name, v in stats.items()} for key, stats in total.items()}
        self._write_json(STATS_PATH, plain)
        self._write_json(fmt.INFO_PATH, self._info())

    def _write_data(self) -> None:
        roll = _Roll(self.sizes.data_mb * _MB, self.sizes.chunk_size)
        with ExitStack() as stack:
            writer: Any = None
            written_to: tuple[int, int] | None = None
            for index in range(self.n_episodes):
                episode = _Staged.load(self.folder, index)
                self._fit(index, episode)
                table = self._frame_table(index, episode)
                place = roll.place(table.nbytes)
                if place != written_to:
                    stack.close()  # the file before is finished
                    path = self._path(DATA_PATH, *place)
                    writer = stack.enter_context(pq.ParquetWriter(path, table.schema, compression="snappy"))
                    written_to = place
                writer.write_table(table)
                self._note(index, episode, table, place)
                self._step()

    def _fit(self, index: int, episode: _Staged) -> None:
        """All episodes of a dataset have the same features."""
        features, fps = episode.features(), episode.meta["fps"]
        if index == 0:
            self.features, self.fps = features, fps
            self.cameras = tuple(sorted(episode.videos))
        if (features, fps) != (self.features, self.fps):
            differ = sorted(k for k in features | self.features if features.get(k) != self.features.get(k))
            raise InputError(
                f"episode {index} ('{episode.meta['id']}') differs from the first in "
                f"{', '.join(differ) or 'fps'}; assemble them as separate datasets"
            )

    def _frame_table(self, index: int, episode: _Staged) -> Any:
        n = episode.table.num_rows
        task = self.tasks.setdefault(episode.meta["task"], len(self.tasks))
        frame = np.arange(n, dtype=np.int64)
        last = frame == n - 1
        made = {
            "timestamp": episode.table["timestamp"].to_numpy().astype(np.float32),
            "frame_index": frame,
            "episode_index": np.full(n, index, np.int64),
            "index": frame + self.n_frames,
            "task_index": np.full(n, task, np.int64),
            fmt.DONE: last,
            fmt.SUCCESS: last & episode.meta["success"],
        }
        keys = [key for key, feature in self.features.items() if feature["dtype"] != "video"]
        return pa.table({key: pa.array(made[key]) if key in made else episode.table[key] for key in keys})

    def _note(self, index: int, episode: _Staged, table: Any, place: tuple[int, int]) -> None:
        """Remember what the episode table and the statistics need of this episode."""
        meta = episode.meta
        row = {
            "episode_index": index,
            "tasks": [meta["task"]],
            "length": table.num_rows,
            "data/chunk_index": place[0],
            "data/file_index": place[1],
            "dataset_from_index": self.n_frames,
            "dataset_to_index": self.n_frames + table.num_rows,
        }
        for key, part in episode.stats(table).items():
            self.stats.setdefault(key, []).append(part)
            row |= {f"stats/{key}/{name}": value.tolist() for name, value in part.items()}
        row |= {fmt.EXTRA + key: meta[key] for key in _EXTRA_KEYS}
        row[fmt.EXTRA + "attributes"] = json.dumps(meta["attributes"], sort_keys=True)
        self.rows.append(row)
        self.videos.append(episode.videos)
        self.embodiments.add(meta["embodiment"])
        self.n_frames += table.num_rows

    def _write_videos(self, camera: str) -> None:
        key = fmt.IMAGES + camera
        roll = _Roll(self.sizes.video_mb * _MB, self.sizes.chunk_size)
        places: dict[tuple[int, int], list[int]] = {}
        for index, videos in enumerate(self.videos):
            places.setdefault(roll.place(videos[camera].stat().st_size), []).append(index)
        for (chunk, file), indices in places.items():
            path = self._path(VIDEO_PATH, chunk, file, video_key=key)
            spans = concatenate_videos([self.videos[i][camera] for i in indices], path, self.fps)
            for index, (start_s, end_s) in zip(indices, spans, strict=True):
                self.rows[index] |= {
                    f"videos/{key}/chunk_index": chunk,
                    f"videos/{key}/file_index": file,
                    f"videos/{key}/from_timestamp": start_s,
                    f"videos/{key}/to_timestamp": end_s,
                }
                self._step()

    def _write_episodes(self) -> None:
        size = pa.Table.from_pylist(self.rows).nbytes / len(self.rows)
        n_rows = max(1, int(self.sizes.data_mb * _MB / size))
        for number, start in enumerate(range(0, len(self.rows), n_rows)):
            chunk, file = divmod(number, self.sizes.chunk_size)
            place = {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
            table = pa.Table.from_pylist([row | place for row in self.rows[start : start + n_rows]])
            pq.write_table(table, self._path(EPISODES_PATH, chunk, file), compression="snappy")

    def _write_tasks(self) -> None:
        table = pa.table({"task_index": list(self.tasks.values()), "task": list(self.tasks)})
        table = table.replace_schema_metadata({b"pandas": _pandas_index("task").encode()})
        pq.write_table(table, self._path(TASKS_PATH), compression="snappy")

    def _info(self) -> dict[str, Any]:
        only = next(iter(self.embodiments)) if len(self.embodiments) == 1 else None
        return {
            "codebase_version": fmt.VERSION,
            "robot_type": self.robot_type if self.robot_type is not None else only,
            "total_episodes": self.n_episodes,
            "total_frames": self.n_frames,
            "total_tasks": len(self.tasks),
            "chunks_size": self.sizes.chunk_size,
            "data_files_size_in_mb": self.sizes.data_mb,
            "video_files_size_in_mb": self.sizes.video_mb,
            "fps": _whole_number(self.fps),
            "splits": {"train": f"0:{self.n_episodes}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self.cameras else None,
            "features": self.features,
        }

    def _path(self, template: str, chunk: int = 0, file: int = 0, **names: str) -> Path:
        path = self.root / template.format(chunk_index=chunk, file_index=file, **names)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=4, sort_keys=True, ensure_ascii=False, allow_nan=False)
        self._path(name).write_text(text + "\n", encoding="utf-8")

    def _step(self) -> None:
        self.n_done += 1
        if self.progress is not None:
            self.progress(self.n_done, self.n_episodes * (1 + len(self.cameras)))


def _pandas_index(name: str) -> str:
    """The schema note by which pandas makes the text column `name` the index of `task_index`."""

    def column(label: str | None, kind: str, dtype: str, metadata: object = None) -> dict[str, object]:
        names = {"name": label, "field_name": label}
        return names | {"pandas_type": kind, "numpy_type": dtype, "metadata": metadata}

    note = {
        "index_columns": [name],
        "column_indexes": [column(None, "unicode", "object", {"encoding": "UTF-8"})],
        "columns": [column("task_index", "int64", "int64"), column(name, "unicode", "object")],
    }
    return json.dumps(note, sort_keys=True)
