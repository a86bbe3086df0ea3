"""The numbers of the vector slots: their kinds, and the functions that compute them everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recap.body import KINDS, RELATIVE_KINDS, TURN, Body, Kind
from recap.errors import InputError
from recap.geometry import into_frame
from recap.geometry3 import quaternion_to_rotation6
from recap.policies.config import PolicyConfig
from recap.robot import POSE_SIZES
from recap.types import F32, F64, Conditioning

# The robot's kinds, and two more for objects: cosine and sine of an angle, and a mark of presence.
WRITTEN: Mapping[str, Kind] = {**KINDS, "direction": Kind(least=TURN), "mark": Kind(least=TURN)}
POSE_IN_SPACE = (("position", 3), ("rotation6d", 6), ("mark", 1))
MARK = 9  # index of the mark in it


@dataclass(frozen=True)
class Numbers:
    """Consecutive numbers of a slot that belong together."""

    kind: str  # a key of WRITTEN
    size: int
    relative: bool = False  # to the position of the robot or of an object
    thing: int | None = None  # number of their object in space, within the slot

    @property
    def least(self) -> float:
        """The least deviation that they are divided by, in metres and radians."""
        return WRITTEN[self.kind].least[self.relative]


def numbers_of(config: PolicyConfig, relative: bool = True) -> dict[str, tuple[Numbers, ...]]:
    """The numbers of each vector slot.

    Args:
        relative: False gives the slots as if nothing were relative to the present robot and objects.
    """
    robot, horizon, from_now = config.robot, config.chunk_size, relative and config.relative
    chunk = _of_body(robot.act, (robot.measured >= 0) & from_now)
    objects, then = _of_objects(config), _of_objects(config, at_end=True)
    shown = objects + _of_objects(config, at_end=True, first=config.n_objects)
    if relative and config.relative_object_poses:
        shown = tuple(replace(part, relative=part.relative or part.kind == "position") for part in shown)
    return {
        "retrieved_proprio": _of_body(robot.body, from_now) * horizon + shown,
        "retrieved_action": chunk * horizon + (Numbers("mark", horizon),),
        "proprio": _of_body(robot.body) + objects,
        "action": (_of_body(robot.act, True) if config.residual else chunk) * horizon,
        "future_proprio": _of_body(robot.body) + then,
    }


def spans(parts: Iterable[Numbers]) -> Iterator[tuple[Numbers, slice]]:
    """Each part with its columns."""
    at = 0
    for part in parts:
        yield part, slice(at, at + part.size)
        at += part.size


def things_of(parts: Iterable[Numbers]) -> dict[int, int]:
    """Object in space -> its first column."""
    found: dict[int, int] = {}
    for part, at in spans(parts):
        if part.thing is not None:
            found.setdefault(part.thing, at.start)
    return found


def width_of(parts: Iterable[Numbers]) -> int:
    """Total number of numbers."""
    return sum(part.size for part in parts)


def _of_body(body: Body, from_now: bool | NDArray[np.bool_] = False) -> tuple[Numbers, ...]:
    """The numbers of a body; `from_now`: which are relative to the robot now, as changes always are."""
    relative = np.broadcast_to(from_now, body.size) | body.changes
    return tuple(
        Numbers(f.kind, f.size, f.kind in RELATIVE_KINDS and bool(relative[at.start])) for f, at in body.spans
    )


def _of_objects(config: PolicyConfig, at_end: bool = False, first: int = 0) -> tuple[Numbers, ...]:
    """Numbers of objects and goal, as in `_state`, or of objects at a chunk's end, as in `pose_of`."""
    if not config.measures:
        return ()
    if config.is_planar:
        pose = (Numbers("position", 2), Numbers("direction", 2))
        tool = Numbers("position", 2, True)
        known = (*pose, *pose, Numbers("direction", 2), tool, tool, Numbers("direction", 2, True))
        return pose if at_end else known
    away = 0 if at_end else len(config.robot.body.positions)
    found: list[Numbers] = []
    for thing in range(first, first + config.n_objects):
        found += [Numbers(kind, size, False, thing) for kind, size in POSE_IN_SPACE]
        found += [Numbers("position", 3, True, thing)] * away
    return tuple(found)


@dataclass(frozen=True)
class Vectors:
    """The vector slots of one prediction, in units of the world, and the base of the residual."""

    vectors: dict[str, F32]  # slot -> (width,)
    base: F32  # (H, a)
    origin: F32  # (a,) origin of an action without residual


def vectors_of(given: Conditioning, config: PolicyConfig) -> Vectors:
    """The inputs of the first match, as they are known at test time."""
    horizon, robot = config.chunk_size, config.robot
    if given.actions.shape[1:] != (horizon, config.action_dim) or given.now.shape != (config.proprio_dim,):
        raise InputError(
            f"a chunk of {given.actions.shape[1]} × {given.actions.shape[2]} with {len(given.now)}-D proprio "
            f"does not fit a policy of {horizon} × {config.action_dim} with {config.proprio_dim}-D: "
            "use the retrieval it was trained with"
        )
    here = robot.hold(given.now).astype(np.float32)
    origin = config.origin(robot.act, here)
    state = _state(given.now, given.object_now, given.goal_now, given.frame, config)
    vectors = {"proprio": np.concatenate([given.now, state])}
    base = np.repeat(here[None], horizon, axis=0)
    if not given.is_empty:
        base = given.actions[0]
    if config.retrieval and not given.is_empty:
        goal, proprio = given.goals[0], given.proprio[0]
        then = _state(proprio[0], given.objects[0, 0], goal, given.frames[0], config)
        rows = (proprio - config.origin(robot.body, given.now)).ravel()
        last = pose_of(given.objects[0, -1], config)
        if config.relative_object_poses:
            seen = pose_of(given.object_now, config)
            then, last = _from(seen, then, config.n_objects), _from(seen, last, config.n_objects)
        vectors["retrieved_proprio"] = np.concatenate([rows, then, last])
        steps = (given.actions[0] - origin).ravel()
        vectors["retrieved_action"] = np.concatenate([steps, given.valid[0]])
    return Vectors({key: value.astype(np.float32) for key, value in vectors.items()}, base, origin)


def targets_of(
    actions: F64, proprio: F64, object_pose: F64, moment: Vectors, config: PolicyConfig
) -> dict[str, F32]:
    """The prediction targets, known only in training; all in the query's canonical frame.

    Args:
        actions: (H, a) of the demonstration.
        proprio: (p,) at the chunk's end.
        object_pose: (d,) at the chunk's end.
    """
    action = actions - (moment.base if config.residual else moment.origin)
    future = np.concatenate([proprio, pose_of(object_pose, config)])
    return {"action": action.ravel().astype(np.float32), "future_proprio": future.astype(np.float32)}


def _state(now: F32, objects: F64, goal: F64, frame: F64, config: PolicyConfig) -> F64:
    """Objects (d,) and goal as inputs of a policy; empty for a policy without poses."""
    if not config.measures:
        return np.zeros(0)
    if config.is_planar:
        if len(objects) != 3 or len(goal) != 3:
            raise InputError("the policy needs poses of object and goal, which are not known: use inputs I")
        turn = objects[2] + frame[2]
        tool = into_frame(objects, np.asarray(now[:2], np.float64))
        from_goal = np.array([*into_frame(goal, objects[:2]), objects[2] - goal[2]])
        return np.concatenate(
            [_planar(objects), _planar(goal), [np.cos(turn), np.sin(turn)], tool, _planar(from_goal)]
        )
    # Each object's pose, its mark, and its position relative to each tool.
    poses = pose_of(objects, config).reshape(config.n_objects, -1)
    body, starts = np.asarray(now, np.float64), config.robot.body.positions
    if not starts:
        return poses.ravel()
    tools = np.concatenate([body[start : start + 3] for start in starts])
    away = (np.tile(poses[:, :3], len(starts)) - tools) * poses[:, -1:]
    return np.concatenate([poses, away], axis=1).ravel()


def pose_of(objects: F64, config: PolicyConfig) -> F64:
    """Objects (d,) as a policy predicts them; empty for a policy without poses."""
    if not config.measures:
        return np.zeros(0)
    if config.is_planar:
        return _planar(objects)
    poses = np.asarray(objects, np.float64).reshape(-1, POSE_SIZES["pose3"])[: config.n_objects]
    there = np.flatnonzero(poses[:, 3:].any(axis=1))  # a zero quaternion stands for an absent object
    out = np.zeros((config.n_objects, MARK + 1))
    if len(there):
        out[there, :3] = poses[there, :3]
        out[there, 3:MARK] = quaternion_to_rotation6(poses[there, 3:])
        out[there, MARK] = 1.0
    return out.ravel()


def _from(here: F64, then: F64, n_objects: int) -> F64:
    """Objects in space relative to their present poses; unchanged for an object that is absent now."""
    rows, now = then.reshape(n_objects, -1).copy(), here.reshape(n_objects, -1)
    rows[:, :MARK] -= now[:, :MARK] * now[:, MARK:] * rows[:, MARK : MARK + 1]
    return rows.ravel()


def _planar(pose: F64) -> F64:
    """A planar pose as x, y, cos, sin."""
    return np.array([pose[0], pose[1], np.cos(pose[2]), np.sin(pose[2])])
