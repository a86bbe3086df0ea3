"""Moves a demonstration's chunk into another scene, in world coordinates.

Each arm follows the object of its current part: a shift or rotation of the object is applied to the motion.
The tool's offset from that path fades out by the frame where the part must be exact. So the chunk begins at
the tool's current pose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.geometry3 import (
    ARM_DIM,
    ROTATION,
    quaternion_to_matrix,
    rotation6_to_matrix,
)
from recap.retrieval.parts import NOTHING, Part, Parts, parts_of
from recap.retrieval.scenes import is_round
from recap.types import F64, Episode, Frames

CATCH_UP = 6  # frames over which an offset fades if the part must already be exact
MAX_GRASP_M = 0.06  # m: with a larger offset, the gripper does not hold the object as in the demonstration


class RigidMotion:
    """The rigid motion from the demonstration's object to the query's: a rotation about z and a shift."""

    def __init__(self, there: F64, here: F64, is_round: bool) -> None:
        self.there, self.here = there[:3], here[:3]
        turn = quaternion_to_matrix(here[3:]) @ quaternion_to_matrix(there[3:]).T
        # Only the rotation about z is used, so that gravity stays down. Round objects have no rotation.
        angle = 0.0 if is_round else float(np.arctan2(turn[1, 0] - turn[0, 1], turn[0, 0] + turn[1, 1]))
        c, s = np.cos(angle), np.sin(angle)
        self.turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

    def points(self, xyz: F64) -> F64:
        """Moved points (..., 3)."""
        moved: F64 = (xyz - self.there) @ self.turn.T + self.here
        return moved


NO_MOTION = RigidMotion(np.eye(1, 7, 3)[0], np.eye(1, 7, 3)[0], True)


def transport(
    demonstration: Episode,
    frames: NDArray[np.int64],
    query: Frames,
    t: int,
    round_objects: tuple[str, ...] = (),
    lead: int = 0,
) -> tuple[F64, F64]:
    """Actions and proprioception (h, 20) of the demonstration's `frames`, moved to moment t of the query.

    Args:
        frames: consecutive; the last one may be repeated.
        query: a demonstration or an observation; row t is the scene, row 0 the start of the episode.
        round_objects: names of objects with rotational symmetry about z.
        lead: frames that an action is ahead of the tool; its offset fades that much earlier.
    """
    parts = parts_of(demonstration)
    actions = np.array(demonstration.actions[frames], np.float64)
    proprio = np.array(demonstration.proprio[frames], np.float64)
    scene = _Scene(demonstration, int(frames[0]), parts, query, t, round_objects)
    for arm in range(len(parts.arms)):
        columns = slice(arm * ARM_DIM, (arm + 1) * ARM_DIM)
        tool = np.asarray(query.proprio[t, columns], np.float64)
        _move_arm(scene, arm, frames, tool, (proprio[:, columns], actions[:, columns]), lead)
    return actions, proprio


class _Scene:
    """Object poses of the demonstration's scene and of the query's."""

    def __init__(
        self,
        demonstration: Episode,
        frame: int,
        parts: Parts,
        query: Frames,
        t: int,
        round_objects: tuple[str, ...],
    ) -> None:
        self.parts = parts
        demo_poses = [np.asarray(demonstration.objects[name][[0, frame]], np.float64) for name in parts.names]
        self.began_there, self.there = [two[0] for two in demo_poses], [two[1] for two in demo_poses]
        known = sorted(query.objects)
        self.began_here: list[F64 | None] = []
        self.here: list[F64 | None] = []
        for number, name in enumerate(parts.names):
            # If an object is missing, use the one at the same position in the list of the other task.
            other = name if name in query.objects else known[number] if number < len(known) else None
            poses = None if other is None else np.asarray(query.objects[other][[0, t]], np.float64)
            self.began_here.append(None if poses is None else poses[0])
            self.here.append(None if poses is None else poses[1])
        self.round = [is_round(name, round_objects) for name in parts.names]

    def motion(self, part: Part) -> RigidMotion:
        """The motion of the part's reference object."""
        number = part.reference
        here = None if number == NOTHING else (self.began_here if part.from_start else self.here)[number]
        if here is None:
            return NO_MOTION
        there = (self.began_there if part.from_start else self.there)[number]
        return RigidMotion(there, here, self.round[number])


def _move_arm(
    scene: _Scene,
    arm: int,
    frames: NDArray[np.int64],
    tool: F64,
    rows: tuple[NDArray[Any], NDArray[Any]],
    lead: int,
) -> None:
    """Move one arm's proprioception and actions (h, 10) in place, part by part."""
    begin = np.array(rows[0][0])  # the demonstration's tool at the start of a part; the query's is `tool`
    first = 0
    while first < len(frames):
        part = scene.parts.part_at(arm, int(frames[first]))
        inside = frames < part.end if part is not scene.parts.arms[arm][-1] else frames >= 0
        last = int(np.flatnonzero(inside)[-1]) + 1
        motion = scene.motion(part)
        shift = tool[:3] - motion.points(begin[:3])
        twist = rotation6_to_matrix(tool[ROTATION]) @ (motion.turn @ rotation6_to_matrix(begin[ROTATION])).T
        grasp_offset = _grasp_offset(scene, part, motion, begin[:3], tool[:3]) if first == 0 else np.zeros(3)
        begin = rows[0][last - 1].copy()
        for row, ahead in zip(rows, (0, lead), strict=True):
            off = 1 - _faded(part, frames[first], np.arange(last - first) + ahead)
            turned = _fractions(twist, np.ones_like(off) if part.reference == part.held != NOTHING else off)
            turns, shifts = turned @ motion.turn, grasp_offset + off[:, None] * (shift - grasp_offset)
            values = row[first:last]
            axes = values[:, ROTATION].reshape(-1, 2, 3)  # two columns of a rotation turn like vectors
            values[:, :3] = motion.points(values[:, :3]) + shifts
            values[:, ROTATION] = np.einsum("nij,nkj->nki", turns, axes).reshape(-1, 6)
        tool, first = rows[0][last - 1], last


def _grasp_offset(scene: _Scene, part: Part, motion: RigidMotion, tool_there: F64, tool_here: F64) -> F64:
    """Difference to the demonstration's grasp of the held object; it is kept while the object is held."""
    if part.held == NOTHING or scene.here[part.held] is None:
        return np.zeros(3)
    here = scene.here[part.held]
    assert here is not None
    offset = (tool_here - here[:3]) - (motion.points(tool_there) - motion.points(scene.there[part.held][:3]))
    return offset if np.linalg.norm(offset) < MAX_GRASP_M else np.zeros(3)


def _faded(part: Part, frame: int, ahead: NDArray[np.int64]) -> F64:
    """Share of an offset at `frame` that has faded after `ahead` frames: 0 to 1, smooth."""
    x = np.clip(ahead / max(part.exact - int(frame), CATCH_UP), 0, 1)
    faded: F64 = x * x * (3 - 2 * x)
    return faded


def _fractions(turn: F64, fractions: F64) -> F64:
    """(n, 3, 3) the rotation scaled by each fraction about its axis."""
    angle = np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1))
    if angle < 1e-9:
        return np.broadcast_to(np.eye(3), (len(fractions), 3, 3))
    if angle > np.pi - 1e-4:  # near pi the axis is the eigenvector of eigenvalue 1
        values, vectors = np.linalg.eigh((turn + turn.T) / 2)
        axis = vectors[:, int(np.argmax(values))]
    else:
        axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        axis = axis / (2 * np.sin(angle))
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    a = (angle * fractions)[:, None, None]
    turns: F64 = np.eye(3) + np.sin(a) * cross + (1 - np.cos(a)) * (cross @ cross)
    return turns
