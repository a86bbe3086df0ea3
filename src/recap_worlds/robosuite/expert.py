"""Scripted experts: waypoints relative to a task's objects, the same for every arm except for its grip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from recap.errors import InputError
from recap.geometry3 import matrix_to_rotation6, quaternion_to_matrix, rotation6_to_matrix
from recap.types import F64, Observation
from recap_worlds.robosuite.tasks import Task, task_named
from recap_worlds.robosuite.world import ARM, point_of, rotation_vector

TURN_SPEED = 1.2  # rad/s
OPEN, CLOSED = 1.0, 0.0
NEAR_M, NEAR_RAD = 0.004, 0.04  # distances within which a waypoint is reached,
SLOW_M = 0.0015  # if the tool moves no more than this per control step; a faster tool would overshoot
PATIENCE = 30  # control steps to wait until a waypoint is reached, unless it sets its own
GRIP_STEPS = 8
FREE = 0.4  # m/s away from objects
PRESS, PULL = 1.35, 0.39  # rad, rotations of handle and door
HINGE = (0.43, 0.0, 0.0)  # of the door, relative to its handle

# m from the centre of a flat object to each gripper's site when it grips the object on the table.
DEPTH = {"panda": 0.004, "ur5e": 0.002, "iiwa": 0.015, "kinova3": 0.002}


@dataclass(frozen=True)
class Way:
    """The next waypoint, reached in a straight line."""

    place: F64  # (3,)
    turn: F64  # (3, 3)
    grip: float
    speed: float = FREE  # m/s
    wait: int = 0  # control steps after it
    patience: int = PATIENCE  # control steps to wait until it is reached

    def up(self, height: float) -> Way:
        """The same waypoint, higher by `height`."""
        return replace(self, place=self.place + np.array([0.0, 0.0, height]))


Script = Iterator[Way]


class Scene:
    """State available to a script: the tool and the current object poses."""

    def __init__(self, task: Task, depth: float) -> None:
        self.task, self.depth = task, depth
        self.place: F64 = np.zeros(3)

    def look(self, seen: Observation) -> None:
        """Update from an observation."""
        if self.task.main not in seen.objects:
            raise InputError(f"the expert needs the pose of '{self.task.main}': leave poses as they are")
        self.things = {name: np.asarray(pose, np.float64) for name, pose in seen.objects.items()}
        before, self.place = self.place, np.asarray(seen.proprio[:3], np.float64)
        self.moved = float(np.linalg.norm(self.place - before))
        self.turn = rotation6_to_matrix(seen.proprio[3:9])

    @property
    def main(self) -> F64:
        """The pose of the main object: (7,)."""
        return self.things[self.task.main]

    def pick(self, angle: float, depth: float, above: float) -> Script:
        """Approach from above, grip and lift."""
        at = Way(point_of(self.main, self.task.grip), down(angle), OPEN).up(depth)
        yield replace(at.up(above), patience=4)
        yield replace(at, speed=0.15)
        yield replace(at, grip=CLOSED, wait=GRIP_STEPS, patience=0)
        yield replace(at, grip=CLOSED, speed=0.3, patience=4).up(above)

    def put(self, place: F64, by: float, above: float, speed: float, patience: int) -> Script:
        """Bring the held object to a place from above, rotated by an angle, release and lift."""
        spin = about_z(by)
        grip = spin @ (self.place - self.main[:3])
        at = Way(place + grip, spin @ down(math.atan2(self.turn[1, 0], self.turn[0, 0])), CLOSED)
        yield replace(at.up(above), speed=speed, patience=patience)
        yield replace(at, speed=0.15)
        yield replace(at, grip=OPEN, wait=GRIP_STEPS, patience=0)
        yield replace(at, grip=OPEN).up(above)


def lift(scene: Scene) -> Script:
    """Grip and lift."""
    yield from scene.pick(nearest(heading(scene.main), math.pi / 2, math.pi / 2), 0.0, 0.12)


def stack(scene: Scene) -> Script:
    """Grip, carry, release, retreat."""
    yield from scene.pick(nearest(heading(scene.main), math.pi / 2, math.pi / 2), 0.0, 0.12)
    base = scene.things["base"]
    yield from scene.put(point_of(base, (0.0, 0.0, 0.048)), 0.0, 0.1, 0.25, 45)


def into_bin(scene: Scene) -> Script:
    """Grip, carry over the wall, release, retreat."""
    yield from scene.pick(nearest(heading(scene.main), math.pi / 2, math.pi / 2), 0.015, 0.2)
    height = scene.task.placed[0].z - 0.8
    yield from scene.put(point_of(scene.things["bin"], (0.0, 0.0, height + 0.01)), 0.0, 0.15, 0.35, 8)


def onto_peg(scene: Scene) -> Script:
    """Grip the nut by its handle, carry it over the peg and lower it."""
    angle = nearest(heading(scene.main) + math.pi / 2, math.pi, math.pi / 2)
    yield from scene.pick(angle, scene.depth, 0.18)
    now = heading(scene.main) % (2 * math.pi)
    turned = min((math.pi / 2, math.pi, 3 * math.pi / 2), key=lambda other: abs(other - now))
    yield from scene.put(point_of(scene.things["peg"], (0.0, 0.0, 0.0)), turned - now, 0.13, 0.18, 90)


def door(scene: Scene) -> Script:
    """Grip the handle from the front, turn it down, pull the door open, release and retreat."""
    handle = scene.main
    latch, hinge = quaternion_to_matrix(handle[3:]), np.asarray(HINGE)
    facing = np.array(
        [[0.0, -1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]
    )  # opens upwards, approaches along y

    def at(press: float, pull: float, off: float = 0.0) -> Way:
        """The waypoint with the handle and the door turned by these angles."""
        c, s = math.cos(press), math.sin(press)
        spin, swing = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]]), about_z(pull)
        grip = spin @ np.asarray(scene.task.grip) - [0.0, off, 0.0]
        place = handle[:3] + latch @ (hinge + swing @ (grip - hinge))
        return Way(place, latch @ swing @ spin @ facing, CLOSED, 0.15, patience=4)

    yield replace(at(0.0, 0.0, 0.12), grip=OPEN, speed=FREE)
    yield replace(at(0.0, 0.0), grip=OPEN)
    yield replace(at(0.0, 0.0), wait=GRIP_STEPS)
    for share in (0.25, 0.5, 0.75, 1.0):
        yield at(PRESS * share, 0.0)
    for share in (0.25, 0.5, 0.75, 1.0):
        yield at(PRESS, PULL * share)
    yield at(0.0, PULL)  # else the handle springs back later and pushes the door
    yield replace(at(0.0, PULL), grip=OPEN, wait=GRIP_STEPS)
    yield replace(at(0.0, PULL, 0.12), grip=OPEN)


SCRIPTS = {
    "lift": lift,
    "stack": stack,
    "can": into_bin,
    "bread": into_bin,
    "square_nut": onto_peg,
    "round_nut": onto_peg,
    "door": door,
}


class Expert:
    """Follows a task's script, using observed poses."""

    image_size: int | None = None

    def __init__(self, task: str, embodiment: str) -> None:
        self._scene = Scene(task_named(task), DEPTH[embodiment])
        self._script = SCRIPTS[task](self._scene)
        self._way: Way | None = None
        self._path: list[F64] = []
        self._waited = 0

    def act(self, seen: Observation) -> F64:
        """The next tool target: (10,)."""
        self._scene.look(seen)
        if self._way is None:
            self._next(Way(self._scene.place, self._scene.turn, OPEN))
        elif not self._path and (self._arrived() or self._waited >= self._way.patience):
            self._next(self._way)
        if self._path:
            return self._path.pop(0)
        self._waited += 1
        assert self._way is not None
        return _action(self._way.place, self._way.turn, self._way.grip)

    def _arrived(self) -> bool:
        assert self._way is not None
        off = float(np.linalg.norm(self._scene.place - self._way.place))
        near = off < NEAR_M and angle_of(self._scene.turn.T @ self._way.turn) < NEAR_RAD
        return near and self._scene.moved < SLOW_M

    def _next(self, before: Way) -> None:
        """Plan targets to the next waypoint, slow at both ends."""
        way = next(self._script, None)
        self._waited = 0
        if way is None:
            self._way, self._path = before, []
            return
        turn = rotation_vector(way.turn @ before.turn.T)
        duration = max(
            float(np.linalg.norm(way.place - before.place)) / way.speed,
            float(np.linalg.norm(turn)) / TURN_SPEED,
        )
        n = math.ceil(duration * ARM.control_hz)
        along = np.arange(1, n + 1) / max(n, 1)
        share = along * along * (3 - 2 * along)
        self._path = [
            _action(before.place + s * (way.place - before.place), _turned(s * turn) @ before.turn, way.grip)
            for s in share
        ] + [_action(way.place, way.turn, way.grip)] * way.wait
        self._way = way


def down(angle: float) -> F64:
    """Rotation (3, 3) of a tool that points down and opens along an angle in the plane."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, s, 0.0], [s, -c, 0.0], [0.0, 0.0, -1.0]])


def about_z(angle: float) -> F64:
    """Rotation about z: (3, 3)."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def heading(pose: F64) -> float:
    """The angle of an object about z."""
    turn = quaternion_to_matrix(pose[3:])
    return float(np.arctan2(turn[1, 0], turn[0, 0]))


def nearest(angle: float, period: float, to: float) -> float:
    """The angle plus whole periods that is nearest to another angle."""
    return angle - period * round((angle - to) / period)


def angle_of(turn: F64) -> float:
    """The angle of a rotation."""
    return float(np.linalg.norm(rotation_vector(turn)))


def _turned(vector: F64) -> F64:
    """Rotation (3, 3) of a rotation vector."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    return quaternion_to_matrix(np.append(math.cos(angle / 2), math.sin(angle / 2) * vector / angle))


def _action(place: F64, turn: F64, grip: float) -> F64:
    return np.concatenate([place, matrix_to_rotation6(turn), [grip]])
