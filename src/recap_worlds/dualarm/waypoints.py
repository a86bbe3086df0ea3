"""The words of a scripted expert: poses to grip at, and the moves that lead there.

A script is a generator of moves. Each move is made when its turn comes, so that it may look at where things
are then.
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
SETTLE_S = 0.2  # the servos lag by about 80 ms: wait before what must be exact
GRIP_S = 0.35  # to open or close


@dataclass(frozen=True)
class Move:
    """Where each named arm goes, along a straight line and all at once; the others stay."""

    poses: Mapping[str, F64] = field(default_factory=dict)  # side -> (7,)
    grips: Mapping[str, float] = field(default_factory=dict)  # side -> 0 closed … 1 open
    speed: float = SPEED
    settle_s: float = 0.0  # wait at the end
    least_s: float = 0.0  # takes at least so long


Script: TypeAlias = Iterator[Move]
Writer: TypeAlias = Callable[["Hands"], Script]


def other(side: str) -> str:
    """The other arm."""
    return "right" if side == "left" else "left"


def point(pose: F64, x: float, y: float, z: float = 0.0) -> F64:
    """A point given in an object's frame, in the world."""
    there: F64 = pose[:3] + quaternion_to_matrix(pose[3:]) @ np.array([x, y, z])
    return there


def heading(pose: F64) -> float:
    """Degrees about z of an object's x axis."""
    x, y = quaternion_to_matrix(pose[3:])[:2, 0]
    return math.degrees(math.atan2(y, x))


def down(at: F64 | tuple[float, float, float], yaw: float = 0.0, lean: float = 0.0, tilt: float = 0.0) -> F64:
    """A tool pose that points down at a place: (7,).

    Args:
        at: where the point between the pads should be.
        yaw: degrees about z; 0 opens along the world's y. Of the two ways to grip, the one nearer to 0.
        lean: degrees about the opening; positive points towards +x of the turned gripper.
        tilt: degrees about the world's x afterwards; positive points towards the far side (+y).
    """
    yaw = (yaw + 90.0) % 180.0 - 90.0
    turn = _about(0, tilt) @ _about(2, yaw) @ _about(1, -lean) @ DOWN
    return np.concatenate([np.asarray(at, np.float64), matrix_to_quaternion(turn)])


def grip(pose: F64, at: tuple[float, float, float] = (0, 0, 0), yaw: float = 0.0, lean: float = 0.0) -> F64:
    """Point down at a place of an object, opening along the object's y (turned by `yaw` degrees)."""
    return down(point(pose, *at), heading(pose) + yaw, lean)


def shifted(pose: F64, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> F64:
    """The same pose elsewhere, by metres in the world."""
    out = np.array(pose, np.float64)
    out[:3] += (x, y, z)
    return out


def drawn_back(pose: F64, by: float) -> F64:
    """The tool pose `by` metres back along its approach."""
    out = np.array(pose, np.float64)
    out[:3] -= by * quaternion_to_matrix(pose[3:])[:, 0]
    return out


def swung(pose: F64, pivot: F64, degrees: float) -> F64:
    """A pose carried around an upright axis."""
    turn = _about(2, degrees)
    position = pivot + turn @ (pose[:3] - pivot)
    return np.concatenate([position, matrix_to_quaternion(turn @ quaternion_to_matrix(pose[3:]))])


@dataclass
class Hands:
    """What a script knows: where things are now, and where the tools were last sent."""

    objects: dict[str, F64]
    poses: dict[str, F64]
    grips: dict[str, float]
    start: dict[str, F64] = field(default_factory=dict)  # where the tools were at first

    def side_of(self, name: str) -> str:
        """The arm on whose half of the table an object is."""
        return "left" if self.objects[name][0] < 0 else "right"

    def approach(self, side: str, pose: F64, back: float = 0.09, opening: float = 1.0) -> Move:
        """Come before a pose with open fingers."""
        return Move({side: drawn_back(pose, back)}, {side: opening})

    def reach(self, side: str, pose: F64, speed: float = 0.15) -> Move:
        """Go to a pose slowly, and wait for the servos."""
        return Move({side: pose}, speed=speed, settle_s=SETTLE_S)

    def close(self, side: str) -> Move:
        """Close the fingers and wait until they hold."""
        return Move({}, {side: 0.0}, settle_s=0.15)

    def open(self, side: str, opening: float = 1.0) -> Move:
        """Let go."""
        return Move({}, {side: opening}, settle_s=0.1)

    def lift(self, side: str, height: float, speed: float = SPEED) -> Move:
        """Straight up from where the tool is."""
        return Move({side: shifted(self.poses[side], z=height)}, speed=speed)

    def carry(self, side: str, pose: F64, speed: float = SPEED) -> Move:
        """Go to a pose with what is in the hand, and wait for the servos."""
        return Move({side: pose}, speed=speed, settle_s=SETTLE_S)

    def press(self, side: str, pose: F64, by: float, above: float = 0.06) -> Script:
        """Come above with closed fingers, push `by` metres past the pose along the approach, draw back."""
        yield Move({side: drawn_back(pose, above)}, {side: 0.0})
        yield self.reach(side, pose)
        yield Move({side: drawn_back(pose, -by)}, speed=0.06, settle_s=0.3)
        yield self.retreat(side, by + above)

    def turn(self, side: str, degrees: float, about: F64 | None = None) -> Move:
        """Turn the tool on the spot about an axis of the world; without one, about its approach."""
        pose = self.poses[side]
        matrix = quaternion_to_matrix(pose[3:])
        turned = matrix_to_quaternion(_around(matrix[:, 0] if about is None else about, degrees) @ matrix)
        return Move({side: np.concatenate([pose[:3], turned])}, settle_s=SETTLE_S)

    def bringing(self, side: str, name: str, goal: F64) -> F64:
        """The tool pose at which what the hand holds, as it holds it now, would be at `goal`."""
        thing, tool = self.objects[name], self.poses[side]
        turn = quaternion_to_matrix(goal[3:]) @ quaternion_to_matrix(thing[3:]).T
        position = goal[:3] + turn @ (tool[:3] - thing[:3])
        return np.concatenate([position, matrix_to_quaternion(turn @ quaternion_to_matrix(tool[3:]))])

    def retreat(self, side: str, by: float = 0.09) -> Move:
        """Draw back along the approach."""
        return Move({side: drawn_back(self.poses[side], by)})

    def home(self, side: str) -> Move:
        """Go back to where the tool was at first."""
        return Move({side: self.start[side]}, {side: 1.0})

    def wait(self, seconds: float) -> Move:
        """Stay."""
        return Move(least_s=seconds)

    def arc(self, side: str, pivot: F64, degrees: float, n: int = 10, speed: float = 0.15) -> Script:
        """Carry the tool around an upright axis."""
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
        """Carry above a pose, set down, let go, draw back."""
        yield self.carry(side, shifted(pose, z=above))
        yield self.reach(side, pose, speed=0.12)
        yield self.open(side)
        yield self.retreat(side, retreat)


def together(*moves: Move) -> Move:
    """Several arms' moves as one; it takes as long as the longest."""
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
    """Several scripts side by side, move by move."""
    for moves in zip_longest(*scripts):
        yield together(*(move for move in moves if move is not None))


def standing(x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> F64:
    """The pose of an object that stands upright: metres and degrees."""
    half = math.radians(yaw) / 2
    return np.array([x, y, z, math.cos(half), 0.0, 0.0, math.sin(half)])


def _around(axis: F64, degrees: float) -> F64:
    half = math.radians(degrees) / 2
    return quaternion_to_matrix(np.concatenate([[math.cos(half)], math.sin(half) * np.asarray(axis)]))


def _about(axis: int, degrees: float) -> F64:
    return _around(np.eye(3)[axis], degrees)
