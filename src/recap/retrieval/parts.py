"""Cuts the motion of each arm into parts and assigns an object to each part.

A cut is made where a gripper closes or opens, or where an arm that grips nothing comes nearest to an object.
Each part refers to one object, or to the world: the object that is reached for or, while an object is
carried, the place where it is put down.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from recap.geometry3 import ARM_DIM, GRIPPER
from recap.types import F64, Episode

NOTHING = -1  # no object: the part refers to the world, or the gripper is empty
REACH_M = 0.25  # m: an object whose centre is farther from a closing tool is not gripped
PLACE_M = 0.30  # m: an object farther from where something is put down is not its destination
BESIDE_M = 0.12  # m: the same for objects that were moved themselves
TOUCH_M = 0.20  # m: reach of a tool that grips nothing
IDLE_M = 0.05  # m: an arm that moves less is idle
MOVED_M = 0.02
SLIP_M = 0.04  # m: most that a held object slips in the gripper
CARRIED_M = 0.06  # m sideways: if less, the object is lifted, and the part refers to the object itself
NEAR_M = 0.12  # m: a part must be exact within this distance of its end
MAX_CACHED = 4096


@dataclass(frozen=True)
class Part:
    """A range of frames of one arm; `end` is exclusive."""

    begin: int
    end: int
    reference: int  # index of the object it refers to; NOTHING for the world
    held: int  # index of the object in the gripper
    exact: int  # frame from which the tool must follow the reference exactly
    from_start: bool = False  # refer to the object's first pose, because a lifted object moves with the tool


@dataclass(frozen=True)
class Parts:
    """A demonstration cut into parts."""

    names: tuple[str, ...]  # of the objects, by index
    arms: tuple[tuple[Part, ...], ...]  # one sequence per arm, which covers every frame

    def part_at(self, arm: int, frame: int) -> Part:
        """The part that contains a frame."""
        parts = self.arms[arm]
        return next((part for part in parts if frame < part.end), parts[-1])


_cache: OrderedDict[tuple[str, int, int], Parts] = OrderedDict()


def parts_of(episode: Episode) -> Parts:
    """The parts of a demonstration. Cached by content."""
    content = crc32(np.ascontiguousarray(episode.actions).tobytes())
    for poses in episode.objects.values():
        content = crc32(np.ascontiguousarray(poses).tobytes(), content)
    key = (episode.id, len(episode), content)
    if key not in _cache:
        _cache[key] = cut(episode)
        while len(_cache) > MAX_CACHED:
            _cache.popitem(last=False)
    return _cache[key]


def cut(episode: Episode) -> Parts:
    """Cut a demonstration into parts; only objects with poses in space count."""
    names = tuple(sorted(name for name, poses in episode.objects.items() if poses.shape[1] == 7))
    places = np.array([episode.objects[name][:, :3] for name in names], np.float64)
    places = places.reshape(len(names), len(episode), 3)
    arms = []
    for start in range(0, episode.proprio.shape[1], ARM_DIM):
        tool = np.asarray(episode.proprio[:, start : start + 3], np.float64)
        gripper = np.asarray(episode.actions[:, start + GRIPPER], np.float64)
        arms.append(tuple(_Cutter(tool, places).cut(gripper)))
    return Parts(names, tuple(arms))


class _Cutter:
    """Cuts the motion of one arm."""

    def __init__(self, tool: F64, places: F64) -> None:
        self.tool, self.places = tool, places  # (t, 3) and (n, t, 3)
        self.n_frames = len(tool)
        self.from_tool = np.linalg.norm(places - tool, axis=2)  # (n, t)
        self.parts: list[Part] = []

    def cut(self, gripper: F64) -> list[Part]:
        """The parts, in order."""
        begin, held, reference = 0, NOTHING, NOTHING
        events = [*_events(gripper), (self.n_frames - 1, False)]
        for (frame, closes), (following, _) in pairwise(events):
            if closes:
                near = self._nearest(frame, REACH_M)
                if near == NOTHING:
                    continue  # it closes on nothing, as before a press
                gripped = self._gripped_object(frame, following)
                reference = near if gripped == NOTHING else gripped
                self._add(begin, frame, reference, held)
                begin, held = frame, gripped
            elif self.parts:
                if held != NOTHING:
                    reference = self._destination(held, frame, released=True)
                self._add(begin, frame, reference, held)
                begin, held = frame, NOTHING
        if not self.parts:
            return self._parts_without_grip()
        if held != NOTHING:
            reference = self._carried_reference(held, begin)
        rests = held != NOTHING and np.linalg.norm(self.places[held, begin] - self.places[held, 0]) < MOVED_M
        self._add(begin, self.n_frames, reference, held, from_start=bool(rests and reference == held))
        return self.parts

    def _parts_without_grip(self) -> list[Part]:
        """Parts of an arm that grips nothing: approach and retreat from an object, or one idle part."""
        travelled = np.linalg.norm(self.tool - self.tool[0], axis=1).max()
        if travelled < IDLE_M or not len(self.places):
            return [Part(0, self.n_frames, NOTHING, NOTHING, 0)]
        contact = int(self.from_tool.min(axis=0).argmin())
        reference = self._nearest(contact, TOUCH_M)
        if contact > 0:
            self._add(0, contact, reference, NOTHING)
        self._add(contact, self.n_frames, reference, NOTHING)
        return self.parts

    def _add(self, begin: int, end: int, reference: int, held: int, from_start: bool = False) -> None:
        if end <= begin:
            return
        last = min(end, self.n_frames - 1)
        distances = np.linalg.norm(self.tool[begin : last + 1] - self.tool[last], axis=1)
        far = np.flatnonzero(distances > NEAR_M)
        arrived = begin + (int(far[-1]) + 1 if len(far) else 0)
        earliest, latest = begin + (end - begin) // 4, begin + 7 * (end - begin) // 10
        exact = int(np.clip(arrived, earliest, max(earliest, latest)))
        self.parts.append(Part(begin, end, reference, held, exact, from_start))

    def _nearest(self, frame: int, within: float, skip: Callable[[int], bool] = lambda n: False) -> int:
        """The object nearest to the tool, or NOTHING."""
        distances = [(self.from_tool[n, frame], n) for n in range(len(self.places)) if not skip(n)]
        return min((pair for pair in distances if pair[0] < within), default=(0.0, NOTHING))[1]

    def _gripped_object(self, close: int, until: int) -> int:
        """The object that moves with the tool after the gripper has closed, or NOTHING."""
        if until - close < 3 or not len(self.places):
            return NOTHING
        closed = close + (until - close) // 3  # closing takes time and pushes the object
        moved = np.linalg.norm(self.places[:, until] - self.places[:, close], axis=1)
        offset = self.places - self.tool  # (n, t, 3)
        slipped = np.linalg.norm(offset[:, until] - offset[:, closed], axis=1)
        lag = np.linalg.norm(self.tool[until] - self.tool[closed])
        follows = (moved > MOVED_M) & (slipped < SLIP_M + 0.5 * lag) & (self.from_tool[:, until] < REACH_M)
        return self._nearest(until, REACH_M, lambda n: not follows[n])

    def _destination(self, held: int, frame: int, *, released: bool) -> int:
        """Where an object is put: next to an object that was never moved if one is near, else next to any."""
        gaps = np.linalg.norm(self.places[:, frame, :2] - self.places[held, frame, :2], axis=1)
        moved = np.linalg.norm(self.places[:, frame] - self.places[:, 0], axis=1) > MOVED_M
        others = [n for n in range(len(self.places)) if n != held]
        still = [(gaps[n], n) for n in others if not moved[n] and gaps[n] < PLACE_M]
        if still or not released:
            return min(still, default=(0.0, NOTHING))[1]
        return min(((gaps[n], n) for n in others if gaps[n] < BESIDE_M), default=(0.0, NOTHING))[1]

    def _carried_reference(self, held: int, begin: int) -> int:
        """The reference of an object that is never released: itself if only lifted, else its destination."""
        sideways = np.linalg.norm(self.places[held, -1, :2] - self.places[held, begin, :2])
        if sideways < CARRIED_M:
            return held
        return self._destination(held, self.n_frames - 1, released=False)


def _events(gripper: F64) -> list[tuple[int, bool]]:
    """Frames at which a gripper is commanded to close (True) or to open (False)."""
    low, high = gripper.min(), gripper.max()
    if high - low < 0.2:
        return []
    closed: NDArray[np.bool_] = gripper < (low + high) / 2
    return [(int(f) + 1, bool(closed[f + 1])) for f in np.flatnonzero(np.diff(closed.astype(np.int8)))]
