"""Writes LeRobot datasets as other tools do, with pyarrow and PyAV only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from source_files import image, path_of

from recap.types import U8

FPS = 10
LENGTHS = (9, 7, 8)
COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")


def write_film(path: Path, frames: Sequence[U8], codec: str = "libx264", **options: str) -> None:
    """Encodes as LeRobot does: AV1, or H.264 with reordered frames. Our own encoder does not reorder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=options) as out:
        stream = out.add_stream(codec, rate=Fraction(FPS))
        stream.width, stream.height, stream.pix_fmt = frames[0].shape[1], frames[0].shape[0], "yuv420p"
        stream.options = {"g": "2", "crf": "20"}
        for frame in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        out.mux(stream.encode(None))


def pictures(n: int, episode: int = 0) -> list[U8]:
    """Images of 64x64, the smallest size that the AV1 encoder accepts."""
    return [cv2.resize(image(episode + i), (64, 64)) for i in range(n)]


def stored(frames: Sequence[U8], suffix: str = ".png") -> pa.Array:
    """A column `{bytes, path}` as the datasets library writes dtype image."""
    rows = [
        {"bytes": cv2.imencode(suffix, frame[:, :, ::-1])[1].tobytes(), "path": f"frame_{i}{suffix}"}
        for i, frame in enumerate(frames)
    ]
    return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def vectors(n: int, seed: int, width: int) -> pa.Array:
    return pa.array(path_of(n, seed, width).astype(np.float32).tolist(), pa.list_(pa.float32(), width))


def features(state: str, action: str, cameras: Sequence[str], dtype: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        state: {"dtype": "float32", "shape": [6], "names": {"motors": [f"joint_{i}.pos" for i in range(6)]}},
        action: {"dtype": "float32", "shape": [6], "names": [[f"joint_{i}.pos" for i in range(6)]]},
    }
    for camera in cameras:
        found[camera] = {"dtype": dtype, "shape": [64, 64, 3], "names": ["height", "width", "channels"]}
    for key in COUNTERS:
        found[key] = {"dtype": "float32" if key == "timestamp" else "int64", "shape": [1], "names": None}
    return found


def frame_table(episode: int, first: int, n: int, state: str, action: str, task: int = 0) -> dict[str, Any]:
    return {
        state: vectors(n, episode, 6),
        action: vectors(n, episode + 50, 6),
        "timestamp": pa.array((np.arange(n) / FPS).astype(np.float32)),
        "frame_index": pa.array(np.arange(n)),
        "episode_index": pa.array(np.full(n, episode)),
        "index": pa.array(np.arange(first, first + n)),
        "task_index": pa.array(np.full(n, task)),
    }


def write_older(
    root: Path,
    *,
    version: str = "v2.1",
    state: str = "observation.state",
    action: str = "action",
    cameras: Sequence[str] = ("observation.images.front",),
    dtype: str = "video",
    codec: str = "libx264",
    videos: str = "videos",
    scenes: Sequence[str] = (),
) -> Path:
    """v2.0 or v2.1: one file per episode, metadata as JSON lines."""
    lines, first = [], 0
    for episode, n in enumerate(LENGTHS):
        table = frame_table(episode, first, n, state, action, task=episode % 2)
        first += n
        for camera in cameras:
            if dtype == "image":
                table[camera] = stored(pictures(n, episode), (".png", ".jpg")[episode % 2])
            else:
                film = root / videos / "chunk-000" / camera / f"episode_{episode:06d}.mp4"
                write_film(film, pictures(n, episode), codec)
        path = root / f"data/chunk-000/episode_{episode:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path, row_group_size=4)
        line = {"episode_index": episode, "tasks": [f"task {episode % 2}"], "length": n}
        lines.append({**line, **({"scene": scenes[episode]} if scenes else {})})
    info = {
        "codebase_version": version,
        "robot_type": "so101",
        "total_episodes": len(LENGTHS),
        "total_frames": sum(LENGTHS),
        "chunks_size": 1000,
        "fps": FPS,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features(state, action, cameras, dtype),
    }
    tasks = [{"task_index": i, "task": f"task {i}"} for i in range(2)]
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return root


def write_newer(root: Path, *, codec: str = "libsvtav1", n_orphans: int = 0, dtype: str = "video") -> Path:
    """v3: all episodes in one table and one video. Orphans are rows of an unlisted episode 9."""
    camera, tables, lines, first = "observation.images.front", [], [], 0
    lengths = [*LENGTHS[:1], *([n_orphans] if n_orphans else []), *LENGTHS[1:]]
    numbers = [0, *([9] if n_orphans else []), 1, 2]
    shown: list[U8] = []
    for episode, n in zip(numbers, lengths, strict=True):
        columns = frame_table(episode, first, n, "observation.state", "action")
        if dtype == "image":
            columns[camera] = stored(pictures(n, episode))
        tables.append(pa.table(columns))
        first += n
        if episode == 9:
            continue
        lines.append(
            {
                "episode_index": episode,
                "tasks": ["press the button"],
                "length": n,
                "data/chunk_index": 0,
                "data/file_index": 0,
                "dataset_from_index": first - n,
                "dataset_to_index": first,
                f"videos/{camera}/chunk_index": 0,
                f"videos/{camera}/file_index": 0,
                f"videos/{camera}/from_timestamp": len(shown) / FPS,
                f"videos/{camera}/to_timestamp": (len(shown) + n) / FPS,
            }
        )
        shown += pictures(n, episode)
    for name, table in (("data", pa.concat_tables(tables)), ("meta/episodes", pa.Table.from_pylist(lines))):
        path = root / name / "chunk-000/file-000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path)
    if dtype == "video":
        write_film(root / f"videos/{camera}/chunk-000/file-000.mp4", shown, codec)
    info = {
        "codebase_version": "v3.0",
        "robot_type": "so101",
        "total_episodes": len(LENGTHS),
        "total_frames": sum(LENGTHS),
        "fps": FPS,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features("observation.state", "action", [camera], dtype),
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    return root
