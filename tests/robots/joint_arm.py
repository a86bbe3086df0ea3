"""A planar arm of three joints with a gripper that reaches a coloured target; state and action are joints."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from robots.common import (
    CLOSED,
    CONTROL_HZ,
    F32,
    F64,
    MAX_STEPS,
    OPEN,
    SHUT,
    U8,
    Colour,
    Embodiment,
    Info,
    Observation,
    checked,
    closer,
    disc,
    line,
)

INSTRUCTIONS = {"reach": "reach the purple target and close the gripper"}
CAM = (72, 54)  # rows and columns
NEAR = 0.02  # m
_LOW = np.array([-2.0, -2.6, -2.6, 0.0], np.float32)
_HIGH = np.array([2.0, 2.6, 2.6, 1.0], np.float32)
_REST = np.array([-1.2, 2.2, 1.2])  # the tip near the base
_PIXELS = 80.0  # a metre
_GROUND: Colour = (228, 226, 220)
_PURPLE: Colour = (150, 40, 190)
_DARK: Colour = (30, 30, 34)


@dataclass(frozen=True, slots=True)
class Body:
    """The properties in which the arms differ."""

    colour: Colour
    links: tuple[float, float, float]  # m
    speed: float  # rad a step, of each joint
    grip: float  # share of the gripper's range, a step


BODIES: dict[str, Body] = {
    "target": Body((40, 120, 170), (0.20, 0.16, 0.10), 0.05, 0.25),
    "pool": Body((240, 150, 30), (0.20, 0.16, 0.12), 0.025, 0.125),
}


class JointArmEnv(gymnasium.Env[Observation, F32]):
    """State and action are three joint angles (rad) and the gripper, 0 closed to 1 open."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}  # noqa: RUF012
    name = "joint_arm"
    tasks = tuple(INSTRUCTIONS)
    action_meaning = "target joint angles q1, q2, q3 (rad); gripper 0 closed to 1 open"

    def __init__(self, embodiment: Embodiment = "target", render_mode: str | None = None) -> None:
        if embodiment not in BODIES:
            raise ValueError(f"no embodiment '{embodiment}': {', '.join(BODIES)}")
        self.embodiment, self.body, self.render_mode = embodiment, BODIES[embodiment], render_mode
        self.action_space = spaces.Box(_LOW, _HIGH, dtype=np.float32)
        pictures: dict[str, spaces.Space[Any]] = {"cam": spaces.Box(0, 255, (*CAM, 3), np.uint8)}
        self.observation_space = spaces.Dict(
            {"state": spaces.Box(_LOW, _HIGH, dtype=np.float32), "images": spaces.Dict(pictures)}
        )
        self._steps = 0
        self._target, self._joints, self._gripper = np.zeros(2), _REST.copy(), OPEN

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """A new scene; equal seeds give equal scenes for every arm."""
        super().reset(seed=seed)
        task = (options or {}).get("task", "reach")
        if task not in INSTRUCTIONS:
            raise ValueError(f"no task '{task}': {', '.join(INSTRUCTIONS)}")
        angle, radius = self.np_random.uniform([-1.2, 0.22], [1.2, 0.40])
        self._target = radius * np.array([np.cos(angle), np.sin(angle)])
        self._joints = _REST + self.np_random.uniform(-0.2, 0.2, 3)
        self._gripper, self._steps = OPEN, 0
        return self._observe(), {"task": self.instruction}

    def step(self, action: F32) -> tuple[Observation, float, bool, bool, Info]:
        """Turn the joints towards the action for a twentieth of a second."""
        values = checked(action, _LOW, _HIGH)
        most = self.body.speed
        self._joints = self._joints + np.clip(values[:3] - self._joints, -most, most)
        self._gripper = closer(self._gripper, float(values[3]), self.body.grip)
        self._steps += 1
        distance = float(np.linalg.norm(self._target - self.points[-1]))
        success = distance <= NEAR and self._gripper <= SHUT
        info = {"task": self.instruction, "is_success": success, "distance": distance}
        return self._observe(), float(success), success, self._steps >= MAX_STEPS and not success, info

    def render(self) -> U8 | None:
        """What the camera sees."""
        return self._cam() if self.render_mode == "rgb_array" else None

    @property
    def instruction(self) -> str:
        """The task in words."""
        return INSTRUCTIONS["reach"]

    @property
    def points(self) -> F64:
        """The base, both elbows and the tip, (4, 2) in metres."""
        angles = np.cumsum(self._joints)
        links = np.array(self.body.links)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(links, axis=0)])

    def _observe(self) -> Observation:
        state = np.array([*self._joints, self._gripper], np.float32)
        return {"state": np.clip(state, _LOW, _HIGH), "images": {"cam": self._cam()}}

    def _cam(self) -> U8:
        """From above: the base at the left edge, x to the right, y up."""
        picture = np.full((*CAM, 3), _GROUND, np.uint8)
        disc(picture, _on_cam(self._target), 3.0, _PURPLE)
        points = self.points
        for start, end in pairwise(points):
            line(picture, _on_cam(start), _on_cam(end), self.body.colour, 2)
        for joint in points[:-1]:
            disc(picture, _on_cam(joint), 1.5, _DARK)
        angle = float(self._joints.sum())
        ahead, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        for side in (-1, 1):  # the fingers
            root = points[-1] + side * (0.006 + 0.03 * self._gripper) * across
            line(picture, _on_cam(root - 0.02 * ahead), _on_cam(root + 0.02 * ahead), _DARK, 1)
        return picture


def expert(env: gymnasium.Env[Observation, F32]) -> F32:
    """The expert's next action from the true state: damped least squares, then close the gripper."""
    arm = env.unwrapped
    assert isinstance(arm, JointArmEnv)
    points, most = arm.points, arm.body.speed
    way = arm._target - points[-1]
    left = float(np.linalg.norm(way))
    lever = points[-1] - points[:-1]
    jacobian = np.stack([-lever[:, 1], lever[:, 0]])  # (2, 3)
    inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + 1e-3 * np.eye(2))
    free = np.eye(3) - inverse @ jacobian  # null space: joint motion that hardly moves the tip
    turn = inverse @ (way * min(1.0, 0.05 / max(left, 1e-9))) + 0.05 * free @ (_REST - arm._joints)
    turn *= min(1.0, most / max(float(np.abs(turn).max()), 1e-9))  # all joints slow down together
    grip = closer(arm._gripper, CLOSED if left < 0.5 * NEAR else OPEN, arm.body.grip)
    return np.clip(np.array([*(arm._joints + turn), grip], np.float32), _LOW, _HIGH)


def _on_cam(point: F64) -> F64:
    pixels: F64 = point * np.array([_PIXELS, -_PIXELS]) + np.array([8.0, CAM[0] / 2])
    return pixels
