"""Assembles staged episodes into a LeRobotDataset v3, which appears complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap.errors import DatasetError, InputError
from recap.pool import lerobot_meta as fmt
from recap.pool.lerobot_stage import EXTRA_KEYS, QUANTILES, Staged, Stats, whole_indices, whole_number
from recap.robot import RobotSpec
from recap.run_directory import new_folder
from recap.video import concatenate_videos

STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

_MB = 1024**2


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size limits of files and folders; LeRobot's own."""

    data_mb: float = 100
    video_mb: float = 200
    chunk_size: int = 1000  # files in a folder


def assemble(
    folder: Path,
    n_episodes: int,
    root: Path,
    *,
    robot_type: str | None = None,
    robot: RobotSpec | None = None,
    progress: Callable[[int, int], None] | None = None,
    sizes: Sizes | None = None,
) -> None:
    """Merge the staged episodes 0..n-1 into a dataset at `root`; equal episodes give equal bytes.

    Args:
        robot_type: for info.json; by default the embodiment, if all episodes share one.
        robot: gives the names of state and action columns; without it they have none.
        progress: called with (done, total) steps of work.
    """
    if n_episodes < 1:
        raise InputError("cannot assemble a dataset of no episodes: collect at least one")
    missing = sorted(set(range(n_episodes)) - whole_indices(folder))
    if missing:
        raise DatasetError(
            f"{len(missing)} of {n_episodes} episodes are not in {folder}, first {missing[0]}; collect them"
        )
    with new_folder(root) as temporary:
        _Assembly(folder, n_episodes, temporary, robot_type, robot, progress, sizes or Sizes()).run()


def _aggregate(parts: Sequence[Stats]) -> Stats:
    """Statistics of all episodes, aggregated from each; quantiles are weighted means, as in LeRobot."""
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
        **{key: (stacked[key] * weights).sum(0) for key in QUANTILES},
        "count": np.array([int(n.sum())]),
    }


@dataclass(slots=True)
class _Roll:
    """Counts bytes and assigns each piece to a file and chunk."""

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
    """A dataset under construction; the fields below the line are filled on the way."""

    folder: Path
    n_episodes: int
    root: Path
    robot_type: str | None
    robot: RobotSpec | None
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
        table = pa.table({"task_index": list(self.tasks.values()), "task": list(self.tasks)})
        table = table.replace_schema_metadata({b"pandas": _pandas_index("task").encode()})
        pq.write_table(table, self._path(TASKS_PATH), compression="snappy")
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
                episode = Staged.load(self.folder, index)
                self._fit(index, episode)
                table = self._frame_table(index, episode)
                place = roll.place(table.nbytes)
                if place != written_to:
                    stack.close()  # the previous file is finished
                    path = self._path(DATA_PATH, *place)
                    writer = stack.enter_context(pq.ParquetWriter(path, table.schema, compression="snappy"))
                    written_to = place
                writer.write_table(table)
                self._note(index, episode, table, place)
                self._step()

    def _fit(self, index: int, episode: Staged) -> None:
        """Check that the episode has the same features as the first."""
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

    def _frame_table(self, index: int, episode: Staged) -> Any:
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

    def _note(self, index: int, episode: Staged, table: Any, place: tuple[int, int]) -> None:
        """Store what the episode table and the statistics need of this episode."""
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
        row |= {fmt.EXTRA + key: meta[key] for key in EXTRA_KEYS}
        row[fmt.EXTRA + "attributes"] = json.dumps(meta["attributes"], sort_keys=True)
        self.rows.append(row)
        self.videos.append(episode.videos)
        self.embodiments.add(meta["embodiment"])
        self.n_frames += table.num_rows

    def _named(self) -> dict[str, fmt.Feature]:
        """State and action features with the column names of the robot, if the widths agree."""
        bodies = {} if self.robot is None else {fmt.STATE: self.robot.body, fmt.ACTION: self.robot.act}
        fitting = {key: body for key, body in bodies.items() if self.features[key]["shape"] == [body.size]}
        return {key: self.features[key] | {"names": list(fitting[key].column_names)} for key in fitting}

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
            "fps": whole_number(self.fps),
            "splits": {"train": f"0:{self.n_episodes}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self.cameras else None,
            "features": self.features | self._named(),
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
    """Schema metadata that makes the text column `name` the pandas index of `task_index`."""

    def column(label: str | None, kind: str, dtype: str, metadata: object = None) -> dict[str, object]:
        names = {"name": label, "field_name": label}
        return names | {"pandas_type": kind, "numpy_type": dtype, "metadata": metadata}

    note = {
        "index_columns": [name],
        "column_indexes": [column(None, "unicode", "object", {"encoding": "UTF-8"})],
        "columns": [column("task_index", "int64", "int64"), column(name, "unicode", "object")],
    }
    return json.dumps(note, sort_keys=True)
