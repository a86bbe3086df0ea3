"""Reads poses of a tracked hand: a folder with `poses.csv` or `poses.npz`, and optionally `video.mp4`.

poses.csv has the header `time_s,x,y,z,qw,qx,qy,qz,gripper`. For two hands, every name except time_s appears
with the prefix `left_` and with `right_`. poses.npz has arrays `time_s (t,)`, `xyz (t, 3)`, `quaternion
(t, 4)` with w first, and `gripper (t,)` from 0 (closed) to 1 (open), with the same prefixes. An optional
`seen (t,)` is 1 where the poses are known: each run of such frames is a demonstration of its own, so gaps
are not interpolated. `speed` is how many times faster than the robot the hand was, before its times were
stretched. An optional `task.txt` contains the task.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError
from recap.pool.importers.mapping import IMAGE, NEXT, SourceKey
from recap.pool.importers.source import (
    MAX_ARRAY_BYTES,
    MAX_FRAMES,
    PickedFrames,
    RawEpisode,
    Reader,
    as_dataset_error,
    as_matrix,
    check_size,
    read_text,
)
from recap.types import F64, U8, Scalar
from recap.video import VideoFrames, video_length

LEAST_FRAMES = 8  # a shorter run is no motion
FILES = ("poses.csv", "poses.npz")
VIDEO = "video.mp4"

_CSV = {"xyz": ("x", "y", "z"), "quaternion": ("qw", "qx", "qy", "qz"), "gripper": ("gripper",)}
_WIDTHS = {name: len(columns) for name, columns in _CSV.items()}
_MARKS = ("seen", "speed")
SPACE = "absolute poses of the next frame, each hand xyz in metres, 6-D rotation, gripper 0 to 1"
_MAX_LINE = 4096
_SLACK_S = 0.5  # s; cameras and trackers do not stop at the same instant


def episode_folders(path: Path) -> list[Path]:
    """The folder itself, or its subfolders that contain poses."""
    if _poses(path) is not None:
        return [path]
    if not path.is_dir():
        return []
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and _poses(folder) is not None)


@dataclass(frozen=True)
class Take:
    """A run of frames of a recording without a gap."""

    path: Path
    begin: int
    end: int
    number: int | None  # index, if the recording has several


def takes(path: Path, seen: NDArray[np.bool_]) -> list[Take]:
    """Each run of frames of a recording in which the hands are seen."""
    found = runs(seen)
    return [Take(path, a, b, number if len(found) > 1 else None) for number, (a, b) in enumerate(found)]


class TakesReader(Reader):
    """Shared by all recordings of hands: own timestamps, runs without gaps, one tool per hand."""

    takes: list[Take]
    prefixes: Sequence[str]  # key prefixes of the hands

    def __init__(self, path: Path, fps: float | None = None) -> None:
        if fps is not None:
            raise InputError(f"{path} has its own times: leave --fps out, and resample what was read")
        self.path = path

    def __len__(self) -> int:
        return len(self.takes)

    def lengths(self) -> Sequence[int]:
        return [take.end - take.begin for take in self.takes]

    def default_mapping(self) -> Mapping[str, str]:
        """Position, 6-D rotation and gripper of each hand; the action is the next pose."""
        poses = "+".join(f"{hand}xyz+{hand}quaternion@wxyz+{hand}gripper" for hand in self.prefixes)
        films = [key for key, info in self.keys.items() if info.kind == "images"]
        cameras = {IMAGE + key.removeprefix("images.").removesuffix(".mp4"): key for key in films}
        return {"proprio": poses, "action": NEXT + poses, **cameras}

    def raw(self, take: Take, name: str, times: F64, **parts: Any) -> RawEpisode:
        """The episode of one run of the recording `name`."""
        if len(times) < 2:
            raise DatasetError(f"{take.path} has {len(times)} poses; a demonstration needs two or more")
        steps = np.diff(times)
        if not np.isfinite(times).all() or not (steps > 0).all():
            raise DatasetError(f"{take.path} has times that do not increase; sort and correct them")
        return RawEpisode(
            id=name if take.number is None else f"{name}/{take.number}",
            scene_id=name,
            fps=round_rate(float(1 / np.median(steps))),
            timestamps=times - times[0],
            embodiment="hand",
            action_space=SPACE,
            **parts,
        )


class TrackedReader(TakesReader):
    """One folder of poses, or a folder of such folders."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        super().__init__(path, fps)
        folders = episode_folders(path)
        if not folders:
            raise DatasetError(f"{path} has no poses.csv or poses.npz; it is no folder of tracked poses")
        self.takes = [take for folder in folders for take in _takes(folder)]
        if not self.takes:
            raise DatasetError(f"{path} shows no hand for {LEAST_FRAMES} frames on end; lift another film")
        first = self.takes[0].path
        arrays = {name: values for name, values in _read_poses(first).items() if name not in _MARKS}
        self.keys = {
            name: SourceKey(name, values.shape, str(values.dtype), "numbers" if values.ndim == 2 else "other")
            for name, values in arrays.items()
        }
        video = first / VIDEO
        if video.is_file():
            self.keys[VIDEO] = SourceKey(VIDEO, (len(arrays["time_s"]),), "video", "images")
        self.prefixes = _hands(arrays)

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One folder, or one run of it."""
        take = self.takes[index]
        folder, kept = take.path, slice(take.begin, take.end)
        arrays = _read_poses(folder)
        whole, task = arrays["time_s"], folder / "task.txt"
        with as_dataset_error(folder):
            words = read_text(task) if task.is_file() else ""
            frames = {key: _video_frames(folder / key, whole, kept) for key in images}
        name = folder.name if folder == self.path else f"{self.path.name}/{folder.name}"
        attributes: dict[str, Scalar] = {"speed": float(arrays["speed"].item())} if "speed" in arrays else {}
        return self.raw(
            take,
            name,
            whole[kept],
            numbers={key: as_matrix(arrays[key])[kept] for key in numbers},
            images=frames,
            task=words,
            source=f"tracked:{folder.name}",
            attributes=attributes,
        )


def _takes(folder: Path) -> list[Take]:
    arrays = _read_poses(folder)
    n = len(arrays["time_s"])
    if "seen" not in arrays or (arrays["seen"] > 0).all():
        return [Take(folder, 0, n, None)]
    return takes(folder, arrays["seen"].reshape(-1) > 0)


def _poses(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def _read_poses(folder: Path) -> dict[str, F64]:
    """`time_s` (t,), and for each hand xyz, quaternion and gripper, (t, d)."""
    path = _poses(folder)
    if path is None:
        raise DatasetError(f"{folder} has no poses.csv or poses.npz any more")
    with as_dataset_error(path):
        arrays = _read_csv(path) if path.suffix == ".csv" else _read_npz(path)
        n = len(arrays["time_s"])
        arrays["time_s"] = arrays["time_s"].reshape(-1)
        for hand in _hands(arrays):
            for name, width in _WIDTHS.items():
                values = arrays[hand + name].reshape(n, -1)
                if values.shape[1] != width:
                    raise ValueError(f"{hand}{name} has {values.shape[1]} columns, not {width}")
                arrays[hand + name] = values
        return arrays


def _hands(names: Collection[str]) -> tuple[str, ...]:
    """The prefixes of the hands: "" for a single hand, or left and right, or one of these."""
    hands = tuple(hand for hand in ("", "left_", "right_") if f"{hand}xyz" in names)
    if not hands or (len(hands) > 1 and "" in hands):
        raise ValueError("name one hand without a prefix (xyz, …), or two with left_ and right_")
    return hands


def _read_csv(path: Path) -> dict[str, F64]:
    check_size(path.name, (), path.stat().st_size)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = [name.strip() for name in file.readline(_MAX_LINE).split(",")]
        rows: list[list[float]] = []
        for row in csv.reader(file):
            if len(row) != len(header):
                raise ValueError(f"line {len(rows) + 2} has {len(row)} values, the header {len(header)}")
            rows.append([float(value) for value in row])
            if len(rows) > MAX_FRAMES:
                raise ValueError(f"more than {MAX_FRAMES} poses")
    if len(set(header)) != len(header):
        raise ValueError("a name stands twice in the header")
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
    columns = {name: table[:, i] for i, name in enumerate(header)}
    arrays = {"time_s": columns["time_s"]}
    for hand in ("", "left_", "right_"):
        if f"{hand}x" in columns:
            for name, parts in _CSV.items():
                arrays[hand + name] = np.stack([columns[hand + part] for part in parts], axis=1)
    return arrays


def _read_npz(path: Path) -> dict[str, F64]:
    """The known arrays of the file."""
    names = {"time_s", *_MARKS, *(hand + name for hand in ("", "left_", "right_") for name in _WIDTHS)}
    arrays = read_npz(path, names)
    for name, values in arrays.items():
        check_size(name, values.shape, 8)
    if "seen" in arrays and arrays["seen"].size != arrays.get("time_s", arrays["seen"]).size:
        raise ValueError(f"seen is of shape {arrays['seen'].shape}")
    for name in arrays:
        if arrays[name].ndim not in (1, 2) and name != "speed":
            raise ValueError(f"{name} is of shape {arrays[name].shape}")
    if "time_s" not in arrays:
        raise KeyError("time_s")
    return arrays


def _video_frames(path: Path, times: F64, kept: slice) -> Sequence[U8]:
    """For each kept pose the video frame nearest in time; both start together."""
    with av.open(str(path)) as container:
        if not container.streams.video:
            raise ValueError(f"{path.name} has no video stream")
        rate = container.streams.video[0].average_rate
    if not rate:
        raise ValueError(f"{path.name} does not say its frame rate")
    fps = float(rate)
    n = video_length(path, fps)
    indices = np.rint((times - times[0]) * fps).astype(np.int64)
    missing_s = (indices[-1] - (n - 1)) / fps
    if n < 1 or missing_s > _SLACK_S:
        raise DatasetError(f"{path} ends {missing_s:.1f} s before the poses; cut these or repair the video")
    return PickedFrames(VideoFrames(path, 0, n, fps), np.minimum(indices, n - 1)[kept])


def read_npz(path: Path, names: Collection[str]) -> dict[str, F64]:
    """Numeric arrays with these names; oversized arrays are refused by header, and pickles never load."""
    out = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in names:
                continue
            with archive.open(member) as file:
                first = npy.read_magic(file) == (1, 0)
                header = npy.read_array_header_1_0(file) if first else npy.read_array_header_2_0(file)
            shape, _, dtype = header
            if dtype.kind not in "fiu":
                raise ValueError(f"{name} is {dtype}, no numbers")
            size = max(member.file_size, math.prod(shape) * dtype.itemsize)
            if size > MAX_ARRAY_BYTES:
                raise ValueError(f"{name} claims to be of {size / 1024**2:.0f} MiB")
            with archive.open(member) as file:
                out[name] = npy.read_array(file, allow_pickle=False).astype(np.float64)
    return out


def runs(seen: NDArray[np.bool_], least: int = LEAST_FRAMES) -> list[tuple[int, int]]:
    """Runs [begin, end) without a gap, of at least `least` frames."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seen, [False]]).astype(int))).reshape(-1, 2)
    return [(int(a), int(b)) for a, b in edges if b - a >= least]


def round_rate(fps: float) -> float:
    """30 for 29.9998, because times are written with few digits."""
    nearest = round(fps)
    return float(nearest) if nearest and abs(fps - nearest) < 0.005 * nearest else fps
