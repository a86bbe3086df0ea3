"""Conversion between joints and tool space, for a robot with a kinematic model.

The robot sends and takes joints; pools, retrieval and policies use tool poses. `JointSpace` converts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.body import Body, Feature
from recap.chain import Chain
from recap.errors import InputError
from recap.geometry3 import matrix_to_rotation6, rotation6_error, rotation6_to_matrix
from recap.robot import Kinematics, RobotSpec
from recap.types import F32, F64, Episode


@dataclass(frozen=True)
class Reach:
    """How well the joints reach a chunk of targets: one number per target."""

    error_mm: F64  # (H,)
    error_deg: F64  # (H,)
    unreachable: NDArray[np.bool_]  # (H,) beyond the tolerance
    limited: NDArray[np.bool_]  # (H,) slowed down

    def summary(self) -> dict[str, float | int]:
        """The largest errors and the number of unreachable targets, for a server's reply."""
        return {
            "error_mm": float(self.error_mm.max(initial=0.0)),
            "error_deg": float(self.error_deg.max(initial=0.0)),
            "n_unreachable": int(self.unreachable.sum()),
        }


class _Layout:
    """The columns of the joints that a robot sends, and of its other numbers, sent and in tool space."""

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
        self.scale: F64 = scale  # (n,) rad or m per unit that is sent
        self.features: list[Feature] = []
        self.others: list[tuple[slice, slice, float, float]] = []  # (sent, in tool space, offset, scale)
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
        """True if rows (t, d) are joints as the robot sends them, rather than tool poses."""
        if values.shape[1] != self.size:
            return False
        turning = [at for at in self.rotations if at is not None]
        alike = values.shape[1] == self.body.size and turning and len(values)
        return not (alike and all(np.median(rotation6_error(values[:, at])) < 0.05 for at in turning))


class JointSpace:
    """Converts what a robot with a kinematic model sends and takes, to and from tool space.

    Args:
        robot: the description in tool space.
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
            raise InputError(f"kinematics.rest has {len(k.rest)} numbers: give one for {self.chain.names}")
        self._rest = np.array(k.rest) * scale if k.rest else None
        steps = k.max_speed / robot.control_hz / scale  # per control period, in the unit that is sent
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
        """What the robot sends in its rest posture, or if it has none, midway between its limits."""
        low, high = (np.where(np.isfinite(end), end, 0.0) for end in (self.chain.low, self.chain.high))
        joints = (low + high) / 2 if self._rest is None else self._rest
        sent = np.zeros(self._state.size)
        sent[self._state.joints] = joints / self._state.scale
        return sent.astype(np.float32)

    def holds_joints(self, proprio: NDArray[Any]) -> bool:
        """True if proprioception (p,) is in joints, as the robot sends it."""
        return self._state.holds_joints(np.atleast_2d(proprio))

    def tool(self, sent: NDArray[Any]) -> F32:
        """What the robot sends (n,) as proprioception (p,) in tool space."""
        proprio: F32 = self._forward(np.asarray(sent, np.float64)[None], self._state)[0]
        return proprio

    def episode(self, episode: Episode) -> Episode:
        """A demonstration converted to tool space, if it is in joints."""
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
        """Rows (t, n) as sent, converted to tool space: (t, p)."""
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

    def _sought(
        self, row: F64, now: F64, layout: _Layout, rest: F64 | None = None
    ) -> tuple[F64, tuple[float, float]]:
        """Joints (n,) near `now` for the tool poses of a row in tool space; errors in mm and degrees."""
        turn, shift = self._base
        positions = np.array([(row[at] - shift) @ turn for at in layout.positions])
        rotations = np.tile(np.eye(3), (len(positions), 1, 1))
        for axes, at in zip(rotations, layout.rotations, strict=True):
            axes[:] = axes if at is None else turn.T @ rotation6_to_matrix(row[at])
        found, length, angle = self.chain.solve(now, positions, rotations, rest)
        return found, (1000 * length, math.degrees(angle))

    def posture(self, proprio: NDArray[Any]) -> F64:
        """Joints (n,) for proprioception (p,) in tool space, solved from the rest posture."""
        rest = np.asarray(self.rest, np.float64)[self._state.joints] * self._state.scale
        return self._sought(np.asarray(proprio, np.float64), rest, self._state)[0]

    def can_reach(self, targets: F64, now: F64) -> NDArray[np.bool_]:
        """Which targets (n, a) are within the tolerance; solved in order, the first from joints `now`."""
        return self.follow(targets, now)[1]

    def follow(self, targets: F64, now: F64) -> tuple[F64, NDArray[np.bool_]]:
        """Joints (n, j) for targets (n, a), rad or m, and which are within the tolerance."""
        joints, found = np.zeros((len(targets), len(now))), np.zeros(len(targets), bool)
        for number, row in enumerate(np.asarray(targets, np.float64)):
            now, errors = self._sought(row, now, self._action)
            joints[number] = now
            found[number] = (np.array(errors) <= self._kinematics.tolerance).all()
        return joints, found

    def command(self, chunk: F64, sent: NDArray[Any]) -> tuple[F64, Reach]:
        """The commands (H, n) that move the tools to a chunk of targets (H, a).

        Each target is solved from the joints before it. The joint speed is limited to max_speed.

        Args:
            sent: the last numbers that the robot sent, (n,).
        """
        layout, k = self._action, self._kinematics
        now = np.asarray(sent, np.float64)[self._state.joints] * self._state.scale
        most = k.max_speed / self.tool_robot.control_hz
        out = np.zeros((len(chunk), layout.size))
        errors = np.zeros((len(chunk), 2))
        limited = np.zeros(len(chunk), bool)
        before: F64 = self.robot.hold(np.asarray(sent))
        held = False
        for number, row in enumerate(np.asarray(chunk, np.float64)):
            wanted, errors[number] = self._sought(row, now, layout, self._rest)
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
    """The converter of a robot with a kinematic model, or None without one."""
    return None if robot is None or robot.kinematics is None else JointSpace(robot)


def tool_space(robot: RobotSpec | None, known: bool = False) -> Callable[[Episode], Episode] | None:
    """A function that converts demonstrations in joints to tool space; None without a kinematic model.

    Args:
        known: the user named this robot for these demonstrations. Otherwise joints of another embodiment are
            refused, because the wrong model would give wrong poses.
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
    """The rotation matrix of roll, pitch and yaw about the fixed axes x, y, z, as in a URDF: (3, 3)."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
