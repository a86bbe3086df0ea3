"""How moments are written as numbers: in the plane with one object and a goal, or in space with two arms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from recap.errors import InputError
from recap.geometry import into_frame
from recap.geometry3 import ARM_DIM, GRIPPER, ROTATION, quaternion_to_rotation6
from recap.types import F32, F64

# What each number is, a letter each: X, Y, Z a place in the canonical frame; x, y, z a place relative to
# another; C, S a direction in the canonical frame; c, s one relative to another; r one of a 6-D rotation; g a
# gripper; "." anything else. A mirror turns the signs of X, x, S and s.
PLACES, TURNS = "XYZxyz", "CScsr"
RELATIVE = str.maketrans("XYZ", "xyz")
THING = re.compile(r"XYZr{6}\.(xyzxyz)?")  # an object of a scene in space; the dot marks whether it is there


class Encoding(Protocol):
    """The numbers of one kind of world; widths follow from the kinds."""

    pose_dim: int  # of an object as the world knows it
    least: Mapping[str, float]  # kind -> least deviation to divide by; kinds without are divided as they vary

    def body_kinds(self, dim: int) -> str:
        """Of proprioception, and of an action."""
        ...

    def chunk_kinds(self, dim: int) -> str:
        """Of a step of a chunk, its origin taken off."""
        ...

    def state_kinds(self, n_objects: int) -> str:
        """Of what is known of objects and goal."""
        ...

    def pose_kinds(self, n_objects: int) -> str:
        """Of the objects at a chunk's end."""
        ...

    def state(self, now: F32, things: F64, goal: F64, frame: F64, n_objects: int) -> F64:
        """Objects (d,) and goal as a policy is given them."""
        ...

    def pose(self, things: F64, n_objects: int) -> F64:
        """Objects (d,) as a policy predicts them."""
        ...

    def origin(self, now: F32) -> F32:
        """What is taken off every step of a chunk, given or predicted, of a body like this: (..., d)."""
        ...

    def possible(self, actions: F32, base: F32) -> F32:
        """The nearest actions (H, a) that can be meant; `base` where there is none."""
        ...


class PlanarEncoding:
    """One object and one goal, each x, y and an angle."""

    pose_dim = 3
    least: Mapping[str, float] = {}

    def body_kinds(self, dim: int) -> str:
        """A place first."""
        return "XY" + "." * (dim - 2) if dim >= 2 else "."

    def chunk_kinds(self, dim: int) -> str:
        """As it is."""
        return self.body_kinds(dim)

    def state_kinds(self, n_objects: int) -> str:
        """Object and goal, the object's turn in the world, and each relative to another."""
        return "XYCS" + "XYCS" + "CS" + "xy" + "xycs"

    def pose_kinds(self, n_objects: int) -> str:
        """The object."""
        return "XYCS"

    def state(self, now: F32, things: F64, goal: F64, frame: F64, n_objects: int) -> F64:
        """(16,)."""
        if len(things) != 3 or len(goal) != 3:
            raise InputError(
                "the policy needs the poses of object and goal, and they are not known: use inputs I"
            )
        turn = things[2] + frame[2]
        pusher = into_frame(things, np.asarray(now[:2], np.float64))
        from_goal = np.array([*into_frame(goal, things[:2]), things[2] - goal[2]])
        return np.concatenate(
            [planar(things), planar(goal), [np.cos(turn), np.sin(turn)], pusher, planar(from_goal)]
        )

    def pose(self, things: F64, n_objects: int) -> F64:
        """(4,)."""
        return planar(things)

    def origin(self, now: F32) -> F32:
        """Nothing."""
        return np.zeros_like(now)

    def possible(self, actions: F32, base: F32) -> F32:
        """Any place can be meant."""
        return actions


class ArmsEncoding:
    """Two arms of ten numbers, and up to `n_objects` objects, each xyz and a quaternion, w first.

    A chunk is told from where the tools are now: what matters of it are centimetres, and where on the table
    they lie matters little. An object that is not there is zeros and a mark.
    """

    pose_dim = 7
    # A number that hardly varies in training may vary in a task that training never saw.
    least: Mapping[str, float] = {
        **dict.fromkeys("XYZ", 0.05),
        **dict.fromkeys("xyz", 0.02),
        **dict.fromkeys("rg.", 0.2),
    }

    def body_kinds(self, dim: int) -> str:
        """An arm after the other."""
        if dim % ARM_DIM:
            raise InputError(f"arms are {ARM_DIM} numbers each, not {dim}: set action_dim and proprio_dim")
        return ("XYZ" + "r" * 6 + "g") * (dim // ARM_DIM)

    def chunk_kinds(self, dim: int) -> str:
        """From where the tools are now."""
        return self.body_kinds(dim).translate(RELATIVE)

    def state_kinds(self, n_objects: int) -> str:
        """Each object's pose, whether it is there, and where it lies from the left tool and the right one."""
        return (self.pose_kinds(1) + "xyz" * 2) * n_objects

    def pose_kinds(self, n_objects: int) -> str:
        """Each object's pose, and whether it is there."""
        return ("XYZ" + "r" * 6 + ".") * n_objects

    def state(self, now: F32, things: F64, goal: F64, frame: F64, n_objects: int) -> F64:
        """(16 n,)."""
        poses = self.pose(things, n_objects).reshape(n_objects, -1)
        body = np.asarray(now, np.float64)
        tools = np.concatenate([body[start : start + 3] for start in range(0, 2 * ARM_DIM, ARM_DIM)])
        away = (np.tile(poses[:, :3], 2) - tools) * poses[:, -1:]
        return np.concatenate([poses, away], axis=1).ravel()

    def pose(self, things: F64, n_objects: int) -> F64:
        """(10 n,)."""
        poses = np.asarray(things, np.float64).reshape(-1, self.pose_dim)[:n_objects]
        there = np.flatnonzero(poses[:, 3:].any(axis=1))  # a pose without a turn stands for no object
        out = np.zeros((n_objects, ARM_DIM))
        if len(there):
            out[there, :3] = poses[there, :3]
            out[there, ROTATION] = quaternion_to_rotation6(poses[there, 3:])
            out[there, -1] = 1.0
        return out.ravel()

    def origin(self, now: F32) -> F32:
        """Where the tools are."""
        kinds = np.array(list(self.body_kinds(now.shape[-1])))
        return np.asarray(np.where(np.isin(kinds, list("XYZ")), now, 0), np.float32)

    def possible(self, actions: F32, base: F32) -> F32:
        """With rotations that are rotations, and grippers between closed and open."""
        out = np.array(actions, np.float32)
        for start in range(0, out.shape[-1], ARM_DIM):
            turn = slice(start + ROTATION.start, start + ROTATION.stop)
            out[:, turn] = _upright(out[:, turn], base[:, turn])
            gripper = start + GRIPPER
            out[:, gripper] = np.clip(out[:, gripper], 0.0, 1.0)
        return out


def planar(pose: F64) -> F64:
    """A pose of the plane as x, y, cos, sin."""
    return np.array([pose[0], pose[1], np.cos(pose[2]), np.sin(pose[2])])


def _upright(rotations: F32, base: F32) -> F64:
    """(H, 6) as two unit vectors at a right angle; of the base where the two lie along one line."""
    flat = np.linalg.norm(np.cross(rotations[:, :3], rotations[:, 3:]), axis=1) < 1e-3
    r = np.where(flat[:, None], base, rotations).astype(np.float64)
    first = r[:, :3] / np.linalg.norm(r[:, :3], axis=1, keepdims=True)
    second = r[:, 3:] - (first * r[:, 3:]).sum(axis=1, keepdims=True) * first
    return np.concatenate([first, second / np.linalg.norm(second, axis=1, keepdims=True)], axis=1)
