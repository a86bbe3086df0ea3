"""A scripted expert for both robots: it follows a task's script, using observed poses."""

from __future__ import annotations

import math

import numpy as np

from recap.errors import InputError
from recap.geometry3 import (
    decode_arms,
    encode_arms,
    matrix_to_quaternion,
    quaternion_to_matrix,
)
from recap.types import F64, Observation
from recap_worlds.dualarm.robots import SIDES
from recap_worlds.dualarm.tasks import task_named
from recap_worlds.dualarm.waypoints import GRIP_S, Hands, Move, Script

CONTROL_HZ = 20.0
TURN_SPEED = 1.4  # rad/s on average


class Expert:
    """Converts a task's moves to one target per control step; needs the objects' poses.

    Args:
        task: the task's key.
        speed: 1 is the usual speed; 0.5 takes twice as long.
    """

    image_size: int | None = None

    def __init__(self, task: str, speed: float = 1.0) -> None:
        if not 0.2 <= speed <= 3.0:
            raise InputError(f"speed {speed} is out of range: give 0.2 to 3")
        self.task = task_named(task)
        self.speed = speed
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start an episode; the same observations give the same actions."""
        self._script: Script | None = None
        self._targets: list[F64] = []

    def act(self, observation: Observation) -> F64:
        """The next target of both arms: (20,)."""
        missing = [name for name in self.task.objects if name not in observation.objects]
        if missing:
            raise InputError(f"the expert needs the pose of '{missing[0]}' in the observation")
        if self._script is None:
            self._begin(observation)
        assert self._script is not None
        self._hands.objects.update({k: np.asarray(v, np.float64) for k, v in observation.objects.items()})
        while not self._targets:
            move = next(self._script, None)
            self._targets = [self._held()] if move is None else self._follow(move)
        return self._targets.pop(0)

    def _begin(self, observation: Observation) -> None:
        left, left_grip, right, right_grip = decode_arms(np.asarray(observation.proprio)[None])
        poses = {"left": left[0], "right": right[0]}
        grips = {"left": float(left_grip[0]), "right": float(right_grip[0])}
        objects = {name: np.asarray(pose, np.float64) for name, pose in observation.objects.items()}
        self._hands = Hands(objects, poses, grips, dict(poses))
        self._script = self.task.script(self._hands)

    def _held(self) -> F64:
        hands = self._hands
        arms = [part for side in SIDES for part in (hands.poses[side][None], np.array([hands.grips[side]]))]
        held: F64 = encode_arms(*arms)[0]
        return held

    def _follow(self, move: Move) -> list[F64]:
        """Targets of one move: straight lines, slow at both ends, all arms synchronous."""
        hands = self._hands
        before = {side: (hands.poses[side], hands.grips[side]) for side in SIDES}
        hands.poses.update({side: np.asarray(pose, np.float64) for side, pose in move.poses.items()})
        hands.grips.update(move.grips)
        duration = move.least_s
        for side in SIDES:
            way = float(np.linalg.norm(hands.poses[side][:3] - before[side][0][:3]))
            turn = _angle_between(before[side][0], hands.poses[side])
            gripping = abs(hands.grips[side] - before[side][1]) * GRIP_S
            duration = max(duration, way / move.speed, turn / TURN_SPEED, gripping)
        n_move = math.ceil(round(duration / self.speed * CONTROL_HZ, 6))
        n_settle = math.ceil(round(move.settle_s / self.speed * CONTROL_HZ, 6))
        along = np.arange(1, n_move + 1) / max(n_move, 1)
        share = np.concatenate([along * along * (3 - 2 * along), np.ones(n_settle)])
        arms: list[F64] = []
        for side in SIDES:
            pose, grip = before[side]
            arms.append(_between(pose, hands.poses[side], share))
            arms.append(grip + (hands.grips[side] - grip) * share)
        return list(encode_arms(*arms)) if len(share) else []


def _angle_between(one: F64, two: F64) -> float:
    return 2 * math.acos(
        min(1.0, abs(float(one[3:] @ two[3:])) / float(np.linalg.norm(one[3:]) * np.linalg.norm(two[3:])))
    )


def _between(one: F64, two: F64, share: F64) -> F64:
    """Poses (n, 7) interpolated between two poses."""
    turn = quaternion_to_matrix(one[3:]).T @ quaternion_to_matrix(two[3:])
    quaternion = matrix_to_quaternion(turn)
    sine = float(np.linalg.norm(quaternion[1:]))
    half = math.atan2(sine, float(quaternion[0])) * share
    axis = quaternion[1:] / max(sine, 1e-12)
    steps = np.concatenate([np.cos(half)[:, None], np.sin(half)[:, None] * axis], axis=1)
    rotations = quaternion_to_matrix(one[3:]) @ quaternion_to_matrix(steps)
    positions = one[:3] + share[:, None] * (two[:3] - one[:3])
    return np.concatenate([positions, matrix_to_quaternion(rotations)], axis=1)
