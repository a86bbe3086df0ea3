"""How a robot and its objects are written as numbers: widths and meanings follow from the robot's kinds.

What each number is, a letter each: those of `recap.robot.Kind`, and of objects C, S a direction in the
canonical frame; small letters x y z c s j: relative to another; "." a mark. A mirror turns the signs of X, x,
S and s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from recap.body import RELATIVE, Body
from recap.errors import InputError
from recap.geometry import into_frame
from recap.geometry3 import quaternion_to_rotation6
from recap.robot import RobotSpec
from recap.types import F32, F64

PLACES, TURNS = "XYZJxyzj", "CScsra"
OBJECT = re.compile(r"XYZr{6}\.(?:xyz)*")  # of a scene in space; the dot marks whether it is there
POSE3, ENCODED3 = 7, 10  # numbers of a pose in space, and as it is written: xyz, 6-D rotation, mark
# A number that hardly varies in training may vary in a task that training never saw. In metres and radians;
# where positions are in pixels, numbers are divided as they vary.
LEAST: Mapping[str, float] = {
    **dict.fromkeys("XYZJ", 0.05),
    **dict.fromkeys("xyzj", 0.02),
    **dict.fromkeys("CScsrga.", 0.2),
}
# To compare numbers of several kinds.
UNITS: Mapping[str, float] = {**dict.fromkeys("XYZJxyzj", 0.05), "r": 0.5}


@dataclass(frozen=True)
class Encoding:
    """The numbers of one robot.

    Args:
        relative: whether the steps of a chunk are relative to where the robot is now.
        n_objects: in space, how many have a place; those after them are not seen.
    """

    robot: RobotSpec
    relative: bool
    n_objects: int = 1

    @property
    def least(self) -> Mapping[str, float]:
        """Letter -> least deviation to divide by; letters without are divided as they vary."""
        return LEAST if self.robot.is_metric else {}

    @property
    def units(self) -> Mapping[str, float]:
        """Letter -> by what a number is divided before numbers are compared; 1 where nothing is said."""
        return UNITS if self.robot.is_metric else {}

    @property
    def is_planar(self) -> bool:
        """Whether its object and goal are poses of the plane."""
        return self.robot.object_kind == "pose2"

    def chunk_letters(self, body: Body) -> str:
        """Of a step of a chunk, its origin subtracted; what is not measured has none."""
        if not self.relative:
            return body.letters
        known = self.robot.measured >= 0 if body == self.robot.act else np.ones(body.size, np.bool_)
        pairs = zip(body.letters, known, strict=True)
        return "".join(letter.translate(RELATIVE) if there else letter for letter, there in pairs)

    @property
    def state_letters(self) -> str:
        """Of what is known of objects and goal."""
        if self.is_planar:  # object, goal, the object's turn in the world, and each relative to another
            return "XYCS" + "XYCS" + "CS" + "xy" + "xycs"
        return ("XYZ" + "r" * 6 + "." + "xyz" * len(self.robot.body.positions)) * self.n_objects

    @property
    def pose_letters(self) -> str:
        """Of the objects at a chunk's end."""
        return "XYCS" if self.is_planar else ("XYZ" + "r" * 6 + ".") * self.n_objects

    def state(self, now: F32, objects: F64, goal: F64, frame: F64) -> F64:
        """Objects (d,) and goal as a policy is given them."""
        if not self.is_planar:
            return self._state3(now, objects)
        if len(objects) != 3 or len(goal) != 3:
            raise InputError(
                "the policy needs the poses of object and goal, and they are not known: use inputs I"
            )
        turn = objects[2] + frame[2]
        tool = into_frame(objects, np.asarray(now[:2], np.float64))
        from_goal = np.array([*into_frame(goal, objects[:2]), objects[2] - goal[2]])
        return np.concatenate(
            [planar(objects), planar(goal), [np.cos(turn), np.sin(turn)], tool, planar(from_goal)]
        )

    def _state3(self, now: F32, objects: F64) -> F64:
        """Each object's pose, whether it is there, and where it lies from each tool."""
        poses = self.pose(objects).reshape(self.n_objects, -1)
        body, starts = np.asarray(now, np.float64), self.robot.body.positions
        if not starts:
            return poses.ravel()
        tools = np.concatenate([body[start : start + 3] for start in starts])
        away = (np.tile(poses[:, :3], len(starts)) - tools) * poses[:, -1:]
        return np.concatenate([poses, away], axis=1).ravel()

    def pose(self, objects: F64) -> F64:
        """Objects (d,) as a policy predicts them."""
        if self.is_planar:
            return planar(objects)
        poses = np.asarray(objects, np.float64).reshape(-1, POSE3)[: self.n_objects]
        there = np.flatnonzero(poses[:, 3:].any(axis=1))  # a pose without a turn stands for no object
        out = np.zeros((self.n_objects, ENCODED3))
        if len(there):
            out[there, :3] = poses[there, :3]
            out[there, 3:9] = quaternion_to_rotation6(poses[there, 3:])
            out[there, -1] = 1.0
        return out.ravel()

    def origin(self, body: Body, now: F32) -> F32:
        """What is subtracted from every step of a chunk, given or predicted: (..., d)."""
        return body.origin(now) if self.relative else np.zeros_like(now)


def planar(pose: F64) -> F64:
    """A pose of the plane as x, y, cos, sin."""
    return np.array([pose[0], pose[1], np.cos(pose[2]), np.sin(pose[2])])
