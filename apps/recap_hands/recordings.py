"""Recordings of hands: the common part of all formats, and plain arrays of landmarks.

Hands become tools (see `recap_hands.tool`), in metres in the recording's world, with z up if the format
defines a vertical axis. Frames without a hand cut a recording, as with tracked poses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError
from recap.geometry3 import matrix_to_quaternion
from recap.pool.importers.mapping import SourceKey
from recap.pool.importers.source import (
    Damage,
    PickedFrames,
    RawEpisode,
    as_dataset_error,
    read_text,
)
from recap.pool.importers.tracked import LEAST_FRAMES, TakesReader, takes
from recap.types import F64, U8
from recap_hands.landmarks import SIDES, load_landmarks
from recap_hands.tool import grip_events, openness, snapped, tool_path

HALF = 0.5  # of a recording's frames: hands that are seen in fewer are ignored


@dataclass(frozen=True)
class Hand:
    """One hand of a recording as a tool; nan in frames without it."""

    xyz: F64  # (t, 3)
    quaternion: F64  # (t, 4), w first
    gripper: F64  # (t,)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(t,): frames with the hand."""
        return np.asarray(np.isfinite(self.xyz).all(axis=1) & np.isfinite(self.quaternion).all(axis=1))


@dataclass(frozen=True)
class Recording:
    """One file or folder."""

    times: F64
    hands: Mapping[str, Hand]
    task: str = ""
    images: Mapping[str, Sequence[U8]] = field(default_factory=dict)


def hand_of(points: NDArray[Any]) -> Hand:
    """The tool for points (t, 21, 3) in our order; it is not seen in frames with missing points."""
    path = tool_path(points)
    quaternion = np.full((len(points), 4), np.nan)
    quaternion[path.seen] = matrix_to_quaternion(path.rotation[path.seen])
    share = openness(path)
    return Hand(path.position, quaternion, snapped(share, grip_events(share) if path.moves else []))


class HandsReader(TakesReader):
    """Common part of the published formats: choice of hands, and unreadable recordings."""

    name: str  # of the format
    places: Sequence[str] = ()  # patterns; a folder of the format has a file that matches one of them

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and any(True for place in cls.places for _ in islice(path.glob(place), 1))

    def __init__(self, path: Path, fps: float | None = None) -> None:
        super().__init__(path, fps)
        files = self.find(path)
        if not files:
            raise DatasetError(f"{path} holds no {self.name} recording")
        seen: dict[Path, dict[str, NDArray[np.bool_]]] = {}
        self._broken: list[tuple[Path, str]] = []
        first: Recording | None = None
        for file in files:
            try:
                with as_dataset_error(file):
                    recording = self.load(file)
            except DatasetError as error:
                self._broken.append((file, str(error)))
                continue
            masks = {side: hand.seen for side, hand in recording.hands.items()}
            seen[file] = {side: mask for side, mask in masks.items() if mask.mean() >= HALF}
            first = recording if first is None and seen[file] else first
        if first is None:
            why = self._broken[0][1] if self._broken else f"{path} shows no hand in half of its frames"
            raise DatasetError(why)
        shown = [set(sides) for sides in seen.values() if sides]
        wanted = [side for side in SIDES if all(side in sides for sides in shown)]
        if not wanted:
            raise DatasetError(f"{path} shows left hands in some recordings, right in others; add them apart")
        self.takes, self.prefixes = [], [f"{side}_" for side in wanted]
        for file, sides in seen.items():
            if set(wanted) <= set(sides):
                self.takes += takes(file, np.logical_and.reduce([sides[side] for side in wanted]))
        if not self.takes:
            raise DatasetError(f"{path} shows no hand for {LEAST_FRAMES} frames on end")
        n = len(first.times)
        self.keys = {}
        for side in self.prefixes:
            for part, width in (("xyz", 3), ("quaternion", 4), ("gripper", 1)):
                self.keys[side + part] = SourceKey(side + part, (n, width), "float64", "numbers")
        for key in first.images:
            self.keys[key] = SourceKey(key, (n,), "video", "images")

    @abstractmethod
    def find(self, path: Path) -> list[Path]:
        """The recordings at a path."""

    @abstractmethod
    def load(self, file: Path) -> Recording:
        """Read one recording."""

    def task(self, file: Path, recording: Recording) -> str:
        """The instruction; found when an episode is read."""
        return recording.task

    def damage(self) -> Sequence[Damage]:
        """Recordings that cannot be read."""
        return [Damage(file, None, why.rpartition("; ")[0] or why) for file, why in self._broken]

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        take = self.takes[index]
        recording = self.load(take.path)
        kept = slice(take.begin, take.end)
        times = recording.times[kept]
        values = {}
        for key in numbers:
            side, _, part = key.partition("_")
            found = np.asarray(getattr(recording.hands[side], part)[kept], np.float64)
            values[key] = found.reshape(len(times), -1)
        indices = np.arange(take.begin, take.end)
        root = self.path.parent if self.path.is_dir() else self.path.parent.parent
        name = take.path.relative_to(root).with_suffix("").as_posix()
        return self.raw(
            take,
            name,
            times,
            numbers=values,
            images={key: PickedFrames(recording.images[key], indices) for key in images},
            task=self.task(take.path, recording),
            source=f"{self.name}:{name}",
        )


class LandmarksReader(HandsReader):
    """`landmarks.npz` with points in metres (see `recap_hands.landmarks`), and `task.txt` next to it."""

    name = "landmarks"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_file() and path.suffix == ".npz" and path.name != "poses.npz"

    def find(self, path: Path) -> list[Path]:
        return [path]

    def load(self, file: Path) -> Recording:
        found = load_landmarks(file)
        hands = {}
        for side, hand in found.hands.items():
            if hand.points is None:
                raise DatasetError(
                    f"{file} has pixels only; recap lift FILM --landmarks {file.name} needs a camera"
                )
            hands["right" if side == "hand" else side] = hand_of(hand.points)
        words = file.with_name("task.txt")
        return Recording(found.times, hands, read_text(words).strip() if words.is_file() else "")
