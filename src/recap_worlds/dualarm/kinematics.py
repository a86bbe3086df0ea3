"""Forward and inverse kinematics of both arms at once."""

from __future__ import annotations

from functools import cache
from typing import Any

import mujoco
import numpy as np

from recap.geometry3 import matrix_to_quaternion
from recap.types import F64
from recap_worlds.dualarm.robots import DOWN, HOME, SIDES, Robot, arm_xml, assets_xml, mesh_files

N_JOINTS = 6
MAX_STEP = 0.13  # rad per control step, about 2.6 rad/s
DAMPING = 0.03
N_ITERATIONS = 8
NEAR = 2e-4  # m and rad within which a target is reached
REACH = 0.1  # m and rad, largest error used in one iteration


class Kinematics:
    """Forward and inverse kinematics of both arms of a robot; joints are (2, 6), left then right."""

    def __init__(self, robot: Robot) -> None:
        self._model = _arms_model(robot)
        self._data = mujoco.MjData(self._model)
        joints = [self._model.joint(f"{side}/{link.name}") for side in SIDES for link in robot.links]
        self._q = np.array([joint.qposadr[0] for joint in joints])
        self._v = np.array([joint.dofadr[0] for joint in joints]).reshape(2, N_JOINTS)
        self._sites = [self._model.site(f"{side}/tool").id for side in SIDES]
        self.limits: F64 = np.array([joint.range for joint in joints]).reshape(2, N_JOINTS, 2)
        self._jacobians = [np.zeros((6, self._model.nv)) for _ in SIDES]
        self.home = self._solve_home(robot)

    def _solve_home(self, robot: Robot) -> F64:
        """Joints at which both tools are at `HOME`, pointing down."""
        positions = np.array([HOME[side] for side in SIDES])
        joints: F64 = np.tile(np.array(robot.rest), (2, 1))
        for _ in range(60):
            joints = self.solve(joints, positions, np.stack([DOWN, DOWN]))
        return joints

    def tools(self, joints: F64) -> F64:
        """Tool poses (2, 7) for joints (2, 6)."""
        self._place(joints)
        position = self._data.site_xpos[self._sites]
        matrix = self._data.site_xmat[self._sites].reshape(2, 3, 3)
        return np.concatenate([position, matrix_to_quaternion(matrix)], axis=1)

    def solve(self, joints: F64, positions: F64, rotations: F64) -> F64:
        """Joints one control step from `joints` towards tools (2, 3), (2, 3, 3), within limits."""
        now = joints
        for _ in range(N_ITERATIONS):
            self._place(now)
            error = self._errors(positions, rotations)  # (2, 6)
            if np.abs(error).max() < NEAR:
                break
            now = np.clip(now + self._step(error, now), self.limits[..., 0], self.limits[..., 1])
        change = now - joints
        bounded: F64 = joints + change / np.maximum(1.0, np.abs(change).max(axis=1, keepdims=True) / MAX_STEP)
        return bounded

    def _place(self, joints: F64) -> None:
        self._data.qpos[self._q] = joints.ravel()
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)

    def _errors(self, positions: F64, rotations: F64) -> F64:
        """The remaining shift and rotation in the world: (2, 6)."""
        shift = positions - self._data.site_xpos[self._sites]
        matrix = self._data.site_xmat[self._sites].reshape(2, 3, 3)
        return np.concatenate([shift, _turns(rotations @ matrix.transpose(0, 2, 1))], axis=1)

    def _step(self, error: F64, joints: F64) -> F64:
        """Damped least squares; joints at a limit that would move beyond it are excluded."""
        for site, jacobian in zip(self._sites, self._jacobians, strict=True):
            mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], site)
        jacobian = np.stack([j[:, v] for j, v in zip(self._jacobians, self._v, strict=True)])  # (2, 6, 6)
        size = np.abs(error).max(axis=1, keepdims=True)
        error = (error * np.minimum(1.0, REACH / np.maximum(size, 1e-12)))[..., None]
        change = _damped(jacobian, error)
        ends = joints + change
        stuck = ((ends <= self.limits[..., 0]) & (change < 0)) | (
            (ends >= self.limits[..., 1]) & (change > 0)
        )
        if stuck.any():
            change = _damped(jacobian * ~stuck[:, None, :], error)
        return change


def _damped(jacobian: F64, error: F64) -> F64:
    transposed = jacobian.transpose(0, 2, 1)
    square = jacobian @ transposed + DAMPING**2 * np.eye(6)
    result: F64 = (transposed @ np.linalg.solve(square, error))[..., 0]
    return result


def _turns(rotations: F64) -> F64:
    """Rotations (2, 3, 3) as rotation vectors (2, 3)."""
    r = rotations
    sine = 0.5 * np.stack([r[:, 2, 1] - r[:, 1, 2], r[:, 0, 2] - r[:, 2, 0], r[:, 1, 0] - r[:, 0, 1]], axis=1)
    cosine = 0.5 * (np.trace(r, axis1=1, axis2=2) - 1)
    if cosine.min() < -0.98:  # sines vanish near half a turn; quaternions do not
        quaternion = matrix_to_quaternion(r)
        sine, cosine = quaternion[:, 1:], quaternion[:, 0]
        length = np.sqrt((sine * sine).sum(axis=1))
        angle = 2 * np.arctan2(length, cosine)
    else:
        length = np.sqrt((sine * sine).sum(axis=1))
        angle = np.arctan2(length, cosine)
    turns: F64 = sine * (angle / np.maximum(length, 1e-12))[:, None]
    return turns


@cache
def _arms_model(robot: Robot) -> Any:
    """The two arms without table or motors."""
    xml = (
        f'<mujoco><compiler angle="radian" autolimits="true"/><asset>{assets_xml(robot)}</asset>'
        f"<worldbody>{''.join(arm_xml(robot, side) for side in SIDES)}</worldbody></mujoco>"
    )
    return mujoco.MjModel.from_xml_string(xml, mesh_files(robot))


@cache
def kinematics_of(robot: Robot) -> Kinematics:
    """One instance per robot and process; calls leave no state behind."""
    return Kinematics(robot)
