"""Building blocks of scripted experts: grip poses and moves.

A script is a generator of moves. Each move is created when it is due, so that it can use the current poses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.types import F64
from recap_worlds.dualarm.robots import DOWN

SPEED = 0.24  # m/s on average
SETTLE_S = 0.2  # wait before exact moves, because the servos lag by about 80 ms
GRIP_S = 0.35  # to open or close


@dataclass(frozen=True)
class Move:
    """A target for each named arm; all move in straight lines at the same time, other arms stay."""

    poses: Mapping[str, F64] = field(default_factory=dict)  # side -> (7,)
    grips: Mapping[str, float] = field(default_factory=dict)  # side -> 0 closed … 1 open
    speed: float = SPEED
    settle_s: float = 0.0  # wait at the end
    least_s: float = 0.0  # shortest duration


Script: TypeAlias = Iterator[Move]
Writer: TypeAlias = Callable[["Hands"], Script]


def other(side: str) -> str:
    """The name of the other arm."""
    return "right" if side == "left" else "left"


def point(pose: F64, x: float, y: float, z: float = 0.0) -> F64:
    """A point in an object's frame, converted to the world."""
    there: F64 = pose[:3] + quaternion_to_matrix(pose[3:]) @ np.array([x, y, z])
    return there


def heading(pose: F64) -> float:
    """Angle of an object's x axis about z, in degrees."""
    x, y = quaternion_to_matrix(pose[3:])[:2, 0]
    return math.degrees(math.atan2(y, x))


def down(at: F64 | tuple[float, float, float], yaw: float = 0.0, lean: float = 0.0, tilt: float = 0.0) -> F64:
    """A tool pose that points down at a place: (7,).

    Args:
        at: position of the point between the pads.
        yaw: degrees about z; 0 opens along the world's y. Of two equivalent grips the one nearer to 0.
        lean: degrees about the opening axis; positive points towards +x of the turned gripper.
        tilt: degrees about the world's x afterwards; positive points towards the far side (+y).
    """
    yaw = (yaw + 90.0) % 180.0 - 90.0
    turn = _about(0, tilt) @ _about(2, yaw) @ _about(1, -lean) @ DOWN
    return np.concatenate([np.asarray(at, np.float64), matrix_to_quaternion(turn)])


def grip(pose: F64, at: tuple[float, float, float] = (0, 0, 0), yaw: float = 0.0, lean: float = 0.0) -> F64:
    """Point down at a place of an object and open along the object's y, rotated by `yaw` degrees."""
    return down(point(pose, *at), heading(pose) + yaw, lean)


def shifted(pose: F64, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> F64:
    """The same pose, moved by metres in the world."""
    out = np.array(pose, np.float64)
    out[:3] += (x, y, z)
    return out


def drawn_back(pose: F64, by: float) -> F64:
    """The tool pose moved back by `by` metres along its approach."""
    out = np.array(pose, np.float64)
    out[:3] -= by * quaternion_to_matrix(pose[3:])[:, 0]
    return out


def swung(pose: F64, pivot: F64, degrees: float) -> F64:
    """A pose rotated about a vertical axis."""
    turn = _about(2, degrees)
    position = pivot + turn @ (pose[:3] - pivot)
    return np.concatenate([position, matrix_to_quaternion(turn @ quaternion_to_matrix(pose[3:]))])


@dataclass
class Hands:
    """State available to a script: current object poses and the last tool targets."""

    objects: dict[str, F64]
    poses: dict[str, F64]
    grips: dict[str, float]
    start: dict[str, F64] = field(default_factory=dict)  # initial tool poses

    def side_of(self, name: str) -> str:
        """The arm on the object's half of the table."""
        return "left" if self.objects[name][0] < 0 else "right"

    def approach(self, side: str, pose: F64, back: float = 0.09, opening: float = 1.0) -> Move:
        """Move in front of a pose with open fingers."""
        return Move({side: drawn_back(pose, back)}, {side: opening})

    def reach(self, side: str, pose: F64, speed: float = 0.15) -> Move:
        """Move to a pose slowly and wait for the servos."""
        return Move({side: pose}, speed=speed, settle_s=SETTLE_S)

    def close(self, side: str) -> Move:
        """Close the fingers and wait until they hold."""
        return Move({}, {side: 0.0}, settle_s=0.15)

    def open(self, side: str, opening: float = 1.0) -> Move:
        """Open the gripper."""
        return Move({}, {side: opening}, settle_s=0.1)

    def lift(self, side: str, height: float, speed: float = SPEED) -> Move:
        """Move straight up from the current pose."""
        return Move({side: shifted(self.poses[side], z=height)}, speed=speed)

    def carry(self, side: str, pose: F64, speed: float = SPEED) -> Move:
        """Move to a pose with the held object and wait for the servos."""
        return Move({side: pose}, speed=speed, settle_s=SETTLE_S)

    def press(self, side: str, pose: F64, by: float, above: float = 0.06) -> Script:
        """Move above with closed fingers, push `by` metres past the pose along the approach, and retreat."""
        yield Move({side: drawn_back(pose, above)}, {side: 0.0})
        yield self.reach(side, pose)
        yield Move({side: drawn_back(pose, -by)}, speed=0.06, settle_s=0.3)
        yield self.retreat(side, by + above)

    def turn(self, side: str, degrees: float, about: F64 | None = None) -> Move:
        """Rotate the tool in place about a world axis; by default about its approach."""
        pose = self.poses[side]
        matrix = quaternion_to_matrix(pose[3:])
        turned = matrix_to_quaternion(_around(matrix[:, 0] if about is None else about, degrees) @ matrix)
        return Move({side: np.concatenate([pose[:3], turned])}, settle_s=SETTLE_S)

    def bringing(self, side: str, name: str, goal: F64) -> F64:
        """The tool pose that would bring the held object to `goal` with the current grasp."""
        thing, tool = self.objects[name], self.poses[side]
        turn = quaternion_to_matrix(goal[3:]) @ quaternion_to_matrix(thing[3:]).T
        position = goal[:3] + turn @ (tool[:3] - thing[:3])
        return np.concatenate([position, matrix_to_quaternion(turn @ quaternion_to_matrix(tool[3:]))])

    def retreat(self, side: str, by: float = 0.09) -> Move:
        """Move back along the approach."""
        return Move({side: drawn_back(self.poses[side], by)})

    def home(self, side: str) -> Move:
        """Return to the initial pose."""
        return Move({side: self.start[side]}, {side: 1.0})

    def wait(self, seconds: float) -> Move:
        """Stay in place."""
        return Move(least_s=seconds)

    def arc(self, side: str, pivot: F64, degrees: float, n: int = 10, speed: float = 0.15) -> Script:
        """Move the tool on an arc about a vertical axis."""
        first = self.poses[side]
        for i in range(1, n + 1):
            yield Move({side: swung(first, pivot, degrees * i / n)}, speed=speed)

    def pick(self, side: str, pose: F64, lift: float = 0.12, back: float = 0.09) -> Script:
        """Approach, reach, close, lift."""
        yield self.approach(side, pose, back)
        yield self.reach(side, pose)
        yield self.close(side)
        if lift:
            yield self.lift(side, lift)

    def place(self, side: str, pose: F64, above: float = 0.1, retreat: float = 0.1) -> Script:
        """Carry above a pose, lower, release, retreat."""
        yield self.carry(side, shifted(pose, z=above))
        yield self.reach(side, pose, speed=0.12)
        yield self.open(side)
        yield self.retreat(side, retreat)


def together(*moves: Move) -> Move:
    """Moves of several arms as one; it takes as long as the longest."""
    poses: dict[str, F64] = {}
    grips: dict[str, float] = {}
    for move in moves:
        poses |= move.poses
        grips |= move.grips
    return replace(
        moves[0],
        poses=poses,
        grips=grips,
        speed=min(move.speed for move in moves),
        settle_s=max(move.settle_s for move in moves),
        least_s=max(move.least_s for move in moves),
    )


def in_step(*scripts: Script) -> Script:
    """Several scripts in parallel, move by move."""
    for moves in zip_longest(*scripts):
        yield together(*(move for move in moves if move is not None))


def standing(x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> F64:
    """The pose of an upright object: metres and degrees."""
    half = math.radians(yaw) / 2
    return np.array([x, y, z, math.cos(half), 0.0, 0.0, math.sin(half)])


def _around(axis: F64, degrees: float) -> F64:
    half = math.radians(degrees) / 2
    return quaternion_to_matrix(np.concatenate([[math.cos(half)], math.sin(half) * np.asarray(axis)]))


def _about(axis: int, degrees: float) -> F64:
    return _around(np.eye(3)[axis], degrees)
