"""Joints to tool poses and back: forward by MuJoCo, inverse by damped least squares within joint limits.

A robot with a kinematic model sends and takes joints; pools, retrieval and policies have its tools.
`JointSpace` stands between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry3 import matrix_to_rotation6, rotation6_error, rotation6_to_matrix
from recap.robot import Body, Feature, Kinematics, RobotSpec
from recap.robot_model import read_model
from recap.types import F32, F64, Episode

ROTATION_WEIGHT = 0.02  # m a rad: an arm that cannot reach both keeps the position
DAMPING = 1e-7  # m², besides what grows with the error
N_ITERATIONS = 60
NEAR = (1e-5, 2e-5)  # m and rad at which a target is reached
STALLED, N_STALLED = 1e-3, 4  # share of the error that iterations take away, or it stops after so many
N_PULLED = 10  # iterations that draw to the rest posture,
PULL = 0.1  # each by this share of the way
SINGULAR = 1e-3  # directions that are weaker than so much of the strongest are free
NAME = "kinematics.name"  # the code of an error
MASSLESS = '<compiler fusestatic="false" boundmass="1" boundinertia="1"/>'


@dataclass(frozen=True)
class Reach:
    """How well a chunk of targets was met: one number a target."""

    error_mm: F64  # (H,)
    error_deg: F64  # (H,)
    unreachable: NDArray[np.bool_]  # (H,) beyond the tolerance
    limited: NDArray[np.bool_]  # (H,) slowed down

    def summary(self) -> dict[str, float | int]:
        """The worst, for a reply."""
        return {
            "error_mm": float(self.error_mm.max(initial=0.0)),
            "error_deg": float(self.error_deg.max(initial=0.0)),
            "n_unreachable": int(self.unreachable.sum()),
        }


class Chain:
    """The joints that move some tips of a model; joints are in rad and m.

    Args:
        model: the text of a URDF or MJCF.
        tips: links, bodies or sites.
        joints: by name, in the order of the numbers; none: those between the base and the tips.
        turns: of each tip, whether its rotation matters.
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
        """Whether it is a site, its number, and the body that it moves with."""
        kind = self._mj.mjtObj
        site = self._mj.mj_name2id(self._model, kind.mjOBJ_SITE, name)
        if site >= 0:
            return True, site, int(self._model.site_bodyid[site])
        body = self._mj.mj_name2id(self._model, kind.mjOBJ_BODY, name)
        return False, body, body

    def _between(self, body: int) -> list[int]:
        """The joints that move a body, from the base on."""
        found: list[int] = []
        while body > 0:
            first, n = self._model.body_jntadr[body], self._model.body_jntnum[body]
            found = [*range(first, first + n), *found]
            body = int(self._model.body_parentid[body])
        return found

    def poses(self, joints: F64) -> tuple[F64, F64]:
        """Tips (k, 3) and (k, 3, 3) for joints (n,)."""
        self._data.qpos[self._q] = joints
        self._mj.mj_kinematics(self._model, self._data)
        at = [(self._data.site_xpos, self._data.site_xmat) if s else (self._data.xpos, self._data.xmat)
              for s, _, _ in self._tips]  # fmt: skip
        numbers = [number for _, number, _ in self._tips]
        positions = np.array([p[i] for (p, _), i in zip(at, numbers, strict=True)])
        return positions, np.array([m[i].reshape(3, 3) for (_, m), i in zip(at, numbers, strict=True)])

    def solve(
        self, joints: F64, positions: F64, rotations: F64, rest: F64 | None = None
    ) -> tuple[F64, float, float]:
        """The joints (n,) whose tips are nearest to (k, 3) and (k, 3, 3), and the errors in m and rad.

        Args:
            joints: where to begin: of several postures, the one near it is found.
            rest: a posture (n,) that joints without influence on the tips are drawn to.
        """
        now = np.clip(joints, self.low, self.high)
        best, least, errors, stalled = now, math.inf, (math.inf, math.inf), 0
        for number in range(N_ITERATIONS):
            shift, turn = self._error(now, positions, rotations)
            error = np.concatenate([shift, ROTATION_WEIGHT * turn], axis=1).ravel()
            size = float(error @ error)
            pulled = rest is not None and number < N_PULLED
            # Out of reach it comes nearer ever more slowly; a single step may also overshoot.
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
        """What is missing: shifts (k, 3) and turns (k, 3) in the frame of the model."""
        there, axes = self.poses(joints)
        turns = np.zeros((len(there), 3))
        quaternion = np.zeros(4)
        for number in np.flatnonzero(self._turns):
            self._mj.mju_mat2Quat(quaternion, (rotations[number] @ axes[number].T).ravel())
            self._mj.mju_quat2Vel(turns[number], quaternion, 1.0)
        return positions - there, turns

    def _step(self, now: F64, error: F64, size: float, rest: F64 | None) -> F64:
        """Damped least squares; a joint that is at its limit and pushes against it is left out."""
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
        """Of the weighed error: (6 k, n)."""
        self._mj.mj_comPos(self._model, self._data)
        rows = []
        for (is_site, number, _), turns in zip(self._tips, self._turns, strict=True):
            jac = self._mj.mj_jacSite if is_site else self._mj.mj_jacBody
            jac(self._model, self._data, self._jacobian[:3], self._jacobian[3:], number)
            rows += [self._jacobian[:3, self._v], ROTATION_WEIGHT * turns * self._jacobian[3:, self._v]]
        return np.concatenate(rows)


def _null_space(jacobian: F64) -> F64:
    """What moves joints and no tip: (n, n)."""
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
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"the kinematic model cannot be used ({why}): repair the URDF or MJCF", code="kinematics.model"
        ) from None


class _Layout:
    """Which of a robot's numbers are joints, and where the others are in tool space."""

    def __init__(self, body: Body, kinematics: Kinematics, chain: Chain) -> None:
        self.body = body
        spans = {feature.name: (feature, at) for feature, at in body.spans}
        tools = [(spans.get(f"{tool}.position"), spans.get(f"{tool}.rotation")) for tool in kinematics.tips]
        for tool, (position, rotation) in zip(kinematics.tips, tools, strict=True):
            fits = position is not None and position[0].size == 3
            if not fits or (rotation is not None and rotation[0].kind != "rotation6d"):
                raise InputError(
                    f"kinematics gives '{tool}.position' (position, 3) and '{tool}.rotation' (rotation6d): "
                    "name the features so, in proprio and in action",
                    code="kinematics.features",
                )
        self.positions = [position[1] for position, _ in tools if position is not None]
        self.rotations = [None if rotation is None else rotation[1] for _, rotation in tools]
        taken = {f"{tool}.{part}" for tool in kinematics.tips for part in ("position", "rotation")}
        others = [feature for feature in body.features if feature.name not in taken]
        order = [name for name in (kinematics.sent or chain.names) if name in chain.names or name in spans]
        order += [feature.name for feature in others if feature.name not in order]
        closed, opened = kinematics.gripper
        scale = np.where(chain.hinges, math.pi / 180 if kinematics.units == "deg" else 1.0, 1.0)
        self.scale: F64 = scale  # (n,) rad, or m, a unit that is sent
        self.features: list[Feature] = []
        self.others: list[tuple[slice, slice, float, float]] = []  # sent, in tool space, offset and scale
        columns: dict[str, int] = {}
        at = 0
        for name in order:
            if name in chain.names:
                number = chain.names.index(name)
                low, high = (float(end[number] / scale[number]) for end in (chain.low, chain.high))
                unit = ("rad" if kinematics.units == "rad" else "deg") if chain.hinges[number] else "m"
                limits = (low, high) if math.isfinite(low) and math.isfinite(high) else None
                feature = Feature(kinematics.sent.get(name, name), "joint", 1, unit, limits)
                columns[name] = at
            else:
                feature, there = spans[name]
                gripper = feature.kind == "gripper"
                if gripper:
                    feature = replace(feature, limits=(min(closed, opened), max(closed, opened)))
                offset, length = (closed, opened - closed) if gripper else (0.0, 1.0)
                self.others.append((slice(at, at + feature.size), there, offset, length))
            self.features.append(feature)
            at += feature.size
        self.size = at
        self.joints = np.array([columns[name] for name in chain.names])

    def holds_joints(self, values: NDArray[Any]) -> bool:
        """Whether rows (t, d) are joints as the robot sends them, and no tool poses."""
        if values.shape[1] != self.size:
            return False
        turning = [at for at in self.rotations if at is not None]
        alike = values.shape[1] == self.body.size and turning and len(values)
        return not (alike and all(np.median(rotation6_error(values[:, at])) < 0.05 for at in turning))


class JointSpace:
    """What a robot with a kinematic model sends and takes, and what it is in tool space.

    Args:
        robot: its description, in tool space.
    """

    def __init__(self, robot: RobotSpec) -> None:
        k = robot.kinematics
        assert k is not None
        if robot.action_mode != "absolute":
            raise InputError(
                f"robot '{robot.name}' has kinematics and delta actions: give absolute joint targets",
                code="kinematics.features",
            )
        names = {feature.name for feature in robot.action}
        apart = [name for name in k.sent if name not in {f.name for f in (*robot.proprio, *robot.action)}]
        turns = [f"{tool}.rotation" in names for tool in k.tips]
        self.tool_robot, self._kinematics = robot, k
        self.chain = Chain(k.model, tuple(k.tips.values()), apart, turns)
        self._state, self._action = (_Layout(body, k, self.chain) for body in (robot.body, robot.act))
        self._base = _rotation(k.base.rotation), np.array(k.base.position)
        scale = self._action.scale
        if k.rest and len(k.rest) != len(scale):
            raise InputError(
                f"kinematics.rest has {len(k.rest)} numbers: give one for each of {self.chain.names}"
            )
        self._rest = np.array(k.rest) * scale if k.rest else None
        steps = k.max_speed / robot.control_hz / scale  # in the unit that is sent
        self.robot = RobotSpec(
            robot.name,
            robot.control_hz,
            tuple(self._state.features),
            tuple(self._action.features),
            max_step={
                k.sent.get(name, name): float(step)
                for name, step in zip(self.chain.names, steps, strict=True)
            },
            cameras=robot.cameras,
            objects=robot.objects,
            goal=robot.goal,
        )

    @property
    def rest(self) -> F32:
        """What a robot sends that stands at its rest posture, or between its limits."""
        low, high = (np.where(np.isfinite(end), end, 0.0) for end in (self.chain.low, self.chain.high))
        joints = (low + high) / 2 if self._rest is None else self._rest
        sent = np.zeros(self._state.size)
        sent[self._state.joints] = joints / self._state.scale
        return sent.astype(np.float32)

    def holds_joints(self, proprio: NDArray[Any]) -> bool:
        """Whether proprioception (p,) is as the robot sends it."""
        return self._state.holds_joints(np.atleast_2d(proprio))

    def tool(self, sent: NDArray[Any]) -> F32:
        """Proprioception (p,) of what the robot sends (n,)."""
        proprio: F32 = self._forward(np.asarray(sent, np.float64)[None], self._state)[0]
        return proprio

    def episode(self, episode: Episode) -> Episode:
        """A demonstration in joints in tool space; one that is in tool space as it is."""
        state, action = (
            layout.holds_joints(values)
            for layout, values in ((self._state, episode.proprio), (self._action, episode.actions))
        )
        if not state and not action:
            return episode
        if not (state and action):
            sizes = f"{episode.proprio.shape[1]} and {episode.actions.shape[1]}"
            raise InputError(
                f"episode {episode.id!a} has {sizes} numbers in state and action, robot "
                f"'{self.tool_robot.name}' sends {self._state.size} and {self._action.size}: "
                "name them in kinematics.joints",
                code="kinematics.features",
            )
        return replace(
            episode,
            proprio=self._forward(episode.proprio, self._state),
            actions=self._forward(episode.actions, self._action),
        )

    def _forward(self, sent: NDArray[Any], layout: _Layout) -> F32:
        """Rows (t, n) in tool space: (t, p)."""
        out = np.zeros((len(sent), layout.body.size), np.float32)
        turn, shift = self._base
        for row, joints in zip(out, sent[:, layout.joints] * layout.scale, strict=True):
            positions, axes = self.chain.poses(joints)
            for number, (position, rotation) in enumerate(
                zip(layout.positions, layout.rotations, strict=True)
            ):
                row[position] = turn @ positions[number] + shift
                if rotation is not None:
                    row[rotation] = matrix_to_rotation6(turn @ axes[number])
        for there, here, offset, length in layout.others:
            out[:, here] = (sent[:, there] - offset) / length
        return out

    def command(self, chunk: F64, sent: NDArray[Any]) -> tuple[F64, Reach]:
        """What to send (H, n) so that the tools go to a chunk of targets (H, a).

        Each target is sought from the joints before it, and no joint moves faster than it may.

        Args:
            sent: what the robot sent last, (n,).
        """
        layout, k = self._action, self._kinematics
        turn, shift = self._base
        now = np.asarray(sent, np.float64)[self._state.joints] * self._state.scale
        most = k.max_speed / self.tool_robot.control_hz
        out = np.zeros((len(chunk), layout.size))
        errors = np.zeros((len(chunk), 2))
        limited = np.zeros(len(chunk), bool)
        before: F64 = self.robot.hold(np.asarray(sent))
        held = False
        for number, row in enumerate(np.asarray(chunk, np.float64)):
            positions = np.array([(row[at] - shift) @ turn for at in layout.positions])
            rotations = np.tile(np.eye(3), (len(positions), 1, 1))
            for axes, at in zip(rotations, layout.rotations, strict=True):
                axes[:] = axes if at is None else turn.T @ rotation6_to_matrix(row[at])
            wanted, *error = self.chain.solve(now, positions, rotations, self._rest)
            errors[number] = 1000 * error[0], math.degrees(error[1])
            held |= k.unreachable == "hold" and bool((errors[number] > k.tolerance).any())
            out[number] = before
            if held:
                continue
            step = float(np.abs(wanted - now).max())
            limited[number] = step > most * (1 + 1e-6)
            now = now + (wanted - now) * min(1.0, most / max(step, 1e-12))
            out[number, layout.joints] = now / layout.scale
            for there, here, offset, length in layout.others:
                out[number, there] = row[here] * length + offset
            before = out[number]
        return out, Reach(errors[:, 0], errors[:, 1], np.any(errors > k.tolerance, axis=1), limited)


def joint_space(robot: RobotSpec | None) -> JointSpace | None:
    """Of a robot with a kinematic model; None of any other."""
    return None if robot is None or robot.kinematics is None else JointSpace(robot)


def tool_space(robot: RobotSpec | None, known: bool = False) -> Callable[[Episode], Episode] | None:
    """What brings demonstrations in a robot's joints into tool space; None where it has no kinematic model.

    Args:
        known: the robot was named for these demonstrations. Else those of another embodiment are refused:
            joints of two arms look alike, and the wrong model would make wrong poses of them.
    """
    space = joint_space(robot)
    if space is None:
        return None

    def transform(episode: Episode) -> Episode:
        own = space.tool_robot.name
        other = not known and episode.embodiment not in ("", "unknown", own)
        if other and space.holds_joints(episode.proprio):
            raise InputError(
                f"episode {episode.id!a} is in joints of '{episode.embodiment}', the kinematic model is of "
                f"'{own}': recap pool add POOL DATASET --robot FILE takes the description of that robot",
                code="kinematics.robot",
            )
        return space.episode(episode)

    return transform


def _rotation(rpy: Sequence[float]) -> F64:
    """Roll, pitch and yaw about the fixed axes x, y, z, as in a URDF: (3, 3)."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
