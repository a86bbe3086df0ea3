"""Forward kinematics by MuJoCo and inverse kinematics by damped least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recap.errors import InputError, cause
from recap.robot_model import read_model
from recap.types import F64

ROTATION_WEIGHT = 0.02  # m per rad: if both cannot be reached, position has priority
DAMPING = 1e-7  # m², added to a damping that grows with the error
N_ITERATIONS = 60
NEAR = (1e-5, 2e-5)  # m and rad: errors below these count as reached
STALLED, N_STALLED = 1e-3, 4  # stop after so many iterations that reduce the error by less than this share
N_PULLED = 10  # iterations that also pull joints towards the rest posture,
PULL = 0.1  # each by this share of the distance
SINGULAR = 1e-3  # singular values below this share of the largest count as 0
NAME = "kinematics.name"  # error code
MASSLESS = '<compiler fusestatic="false" boundmass="1" boundinertia="1"/>'


class Chain:
    """The joints that move one or more tips of a model; joints are in rad and m.

    Args:
        model: the text of a URDF or MJCF.
        tips: names of links, bodies or sites.
        joints: names in the order of the numbers; empty: the joints between the base and the tips.
        turns: for each tip, whether its rotation matters.
    """

    def __init__(
        self, model: str, tips: Sequence[str], joints: Sequence[str] = (), turns: Sequence[bool] = ()
    ) -> None:
        import mujoco

        self._mj: Any = mujoco
        known = read_model(model, "the kinematic model")
        known.check(tips, joints, "the kinematic model")
        self._model = _compiled(known.text)
        self._data = mujoco.MjData(self._model)
        self._tips = [self._tip(name) for name in tips]
        found = list(dict.fromkeys(joint for _, _, body in self._tips for joint in self._between(body)))
        ids = [self._model.joint(name).id for name in joints] or found
        if not found or set(ids) != set(found):
            movers = ", ".join(self._model.joint(number).name for number in found) or "no joint"
            raise InputError(
                f"'{', '.join(tips)}' is moved by {movers}: name just these in kinematics.joints, or give "
                "another tip",
                code=NAME,
            )
        kinds = self._model.jnt_type[ids]
        self.hinges = kinds == mujoco.mjtJoint.mjJNT_HINGE
        if not (self.hinges | (kinds == mujoco.mjtJoint.mjJNT_SLIDE)).all():
            raise InputError("a free or ball joint moves the tip: give a model of the arm alone", code=NAME)
        self.names = tuple(self._model.joint(number).name for number in ids)
        limited = self._model.jnt_limited[ids].astype(bool)
        ranges = np.array(self._model.jnt_range[ids])
        self.low = np.where(limited, ranges[:, 0], -np.inf)
        self.high = np.where(limited, ranges[:, 1], np.inf)
        self._q, self._v = self._model.jnt_qposadr[ids], self._model.jnt_dofadr[ids]
        self._jacobian = np.zeros((6, self._model.nv))
        self._turns = list(turns) or [True] * len(tips)

    def _tip(self, name: str) -> tuple[bool, int, int]:
        """Whether the tip is a site, its id, and the id of its body."""
        kind = self._mj.mjtObj
        site = self._mj.mj_name2id(self._model, kind.mjOBJ_SITE, name)
        if site >= 0:
            return True, site, int(self._model.site_bodyid[site])
        body = self._mj.mj_name2id(self._model, kind.mjOBJ_BODY, name)
        return False, body, body

    def _between(self, body: int) -> list[int]:
        """The joints between the base and a body, base first."""
        found: list[int] = []
        while body > 0:
            first, n = self._model.body_jntadr[body], self._model.body_jntnum[body]
            found = [*range(first, first + n), *found]
            body = int(self._model.body_parentid[body])
        return found

    def poses(self, joints: F64) -> tuple[F64, F64]:
        """Positions (k, 3) and rotations (k, 3, 3) of the tips for joints (n,)."""
        self._data.qpos[self._q] = joints
        self._mj.mj_kinematics(self._model, self._data)
        sites, bodies = (self._data.site_xpos, self._data.site_xmat), (self._data.xpos, self._data.xmat)
        found = [(sites if is_site else bodies, number) for is_site, number, _ in self._tips]
        positions = np.array([places[number] for (places, _), number in found])
        return positions, np.array([turns[number].reshape(3, 3) for (_, turns), number in found])

    def solve(
        self, joints: F64, positions: F64, rotations: F64, rest: F64 | None = None
    ) -> tuple[F64, float, float]:
        """Joints (n,) that bring the tips nearest to (k, 3) and (k, 3, 3), and the errors in m and rad.

        Args:
            joints: the starting point; of several solutions, one near it is found.
            rest: a posture (n,); motion that does not move the tips is pulled towards it.
        """
        now = np.clip(joints, self.low, self.high)
        best, least, errors, stalled = now, math.inf, (math.inf, math.inf), 0
        for number in range(N_ITERATIONS):
            shift, turn = self._error(now, positions, rotations)
            error = np.concatenate([shift, ROTATION_WEIGHT * turn], axis=1).ravel()
            size = float(error @ error)
            pulled = rest is not None and number < N_PULLED
            # Out of reach, the error shrinks ever more slowly. A single step may also overshoot.
            stalled = stalled + 1 if size > (1 - STALLED) * least else 0
            if pulled or size < least:
                lengths = (float(np.linalg.norm(e, axis=1).max()) for e in (shift, turn))
                best, least, errors = now, size, (next(lengths), next(lengths))
            if not pulled and (stalled > N_STALLED or (errors[0] < NEAR[0] and errors[1] < NEAR[1])):
                break
            change = self._step(now, error, size, rest if pulled else None)
            now = np.clip(now + change, self.low, self.high)
        return best, *errors

    def _error(self, joints: F64, positions: F64, rotations: F64) -> tuple[F64, F64]:
        """The remaining translations (k, 3) and rotation vectors (k, 3), in the frame of the model."""
        there, axes = self.poses(joints)
        turns = np.zeros((len(there), 3))
        quaternion = np.zeros(4)
        for number in np.flatnonzero(self._turns):
            self._mj.mju_mat2Quat(quaternion, (rotations[number] @ axes[number].T).ravel())
            self._mj.mju_quat2Vel(turns[number], quaternion, 1.0)
        return positions - there, turns

    def _step(self, now: F64, error: F64, size: float, rest: F64 | None) -> F64:
        """One step of damped least squares; joints that push against their limits are left out."""
        jacobian = self._jacobians()
        free = np.ones(len(now), bool)
        change: F64 = np.zeros(len(now))
        for _ in range(len(now)):
            j = jacobian * free
            square = j.T @ j + (0.5 * size + DAMPING) * np.eye(len(now))
            change = np.asarray(np.linalg.solve(square, j.T @ error), np.float64)
            if rest is not None:
                change += _null_space(j) @ (PULL * (rest - now) * free)
            ends = now + change
            stuck = free & (
                ((ends < self.low) & (now <= self.low)) | ((ends > self.high) & (now >= self.high))
            )
            if not stuck.any():
                break
            free &= ~stuck
        return np.where(free, change, 0.0)

    def _jacobians(self) -> F64:
        """The Jacobian of the weighted error: (6 k, n)."""
        self._mj.mj_comPos(self._model, self._data)
        rows = []
        for (is_site, number, _), turns in zip(self._tips, self._turns, strict=True):
            jac = self._mj.mj_jacSite if is_site else self._mj.mj_jacBody
            jac(self._model, self._data, self._jacobian[:3], self._jacobian[3:], number)
            rows += [self._jacobian[:3, self._v], ROTATION_WEIGHT * turns * self._jacobian[3:, self._v]]
        return np.concatenate(rows)


def _null_space(jacobian: F64) -> F64:
    """The projection onto joint motion that moves no tip: (n, n)."""
    _, strengths, rows = np.linalg.svd(jacobian)
    rows = rows[: len(strengths)][strengths > SINGULAR * strengths.max(initial=0.0)]
    return np.asarray(np.eye(jacobian.shape[1]) - rows.T @ rows)


def _compiled(text: str) -> Any:
    import mujoco

    extra = f"<mujoco>{MASSLESS}</mujoco></robot>" if text.startswith("<robot") else f"{MASSLESS}</mujoco>"
    body = text.removesuffix("</robot>").removesuffix("</mujoco>")
    try:
        return mujoco.MjModel.from_xml_string(body + extra)
    except ValueError as error:
        raise InputError(
            f"the kinematic model cannot be used ({cause(error)}): repair the URDF or MJCF",
            code="kinematics.model",
        ) from None
