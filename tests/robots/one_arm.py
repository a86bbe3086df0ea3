"""One arm in tool space that lifts a cube or presses a button; purely kinematic, seen by two cameras."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

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
    polygon,
    towards,
)

INSTRUCTIONS = {"lift": "lift the red cube", "press": "press the blue button"}
FRONT, WRIST = (60, 80), (48, 96)  # rows and columns
TABLE = 0.2  # m from its middle to an edge
CUBE = 0.02  # m from its middle to a face
BUTTON = 0.02  # m, its radius
LIFTED, REACH, TOUCH = (
    0.15,
    0.03,
    0.015,
)  # m: lift height, largest distance to hold, largest distance to press
_LOW = np.array([-0.3, -0.3, 0.0, *[-1.0] * 6, 0.0], np.float32)
_HIGH = np.array([0.3, 0.3, 0.4, *[1.0] * 6, 1.0], np.float32)
_FLOOR: Colour = (92, 88, 84)
_TOP: Colour = (214, 205, 186)
_RED: Colour = (206, 44, 40)
_BLUE: Colour = (36, 84, 214)
_DARK: Colour = (30, 30, 34)


@dataclass(frozen=True, slots=True)
class Body:
    """The properties in which the arms differ."""

    colour: Colour
    offset: tuple[float, float, float]  # m, of the tip, in the frame of the tool
    speed: float  # m a step
    turn: float  # rad a step
    grip: float  # of the gripper's way, a step


BODIES: dict[str, Body] = {
    "target": Body((64, 140, 72), (0.0, 0.0, 0.0), 0.012, 0.1, 0.25),
    "pool": Body((240, 150, 30), (0.0, 0.01, 0.02), 0.006, 0.05, 0.125),
}


class OneArmEnv(gymnasium.Env[Observation, F32]):
    """State and action are x, y, z (m), 6-D rotation and gripper, 0 closed to 1 open, of the tool."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}  # noqa: RUF012
    name = "one_arm"
    tasks = tuple(INSTRUCTIONS)
    action_meaning = "target pose of the tool: x, y, z (m), 6-D rotation; gripper 0 closed to 1 open"

    def __init__(self, embodiment: Embodiment = "target", render_mode: str | None = None) -> None:
        if embodiment not in BODIES:
            raise ValueError(f"no embodiment '{embodiment}': {', '.join(BODIES)}")
        self.embodiment, self.body, self.render_mode = embodiment, BODIES[embodiment], render_mode
        self.action_space = spaces.Box(_LOW, _HIGH, dtype=np.float32)
        pictures: dict[str, spaces.Space[Any]] = {
            "front": spaces.Box(0, 255, (*FRONT, 3), np.uint8),
            "wrist": spaces.Box(0, 255, (*WRIST, 3), np.uint8),
        }
        self.observation_space = spaces.Dict(
            {"state": spaces.Box(_LOW, _HIGH, dtype=np.float32), "images": spaces.Dict(pictures)}
        )
        self._task, self._steps = "lift", 0
        self._thing, self._angle = np.zeros(3), 0.0  # the cube's middle or the button's top
        self._xyz, self._rotation, self._gripper = np.zeros(3), down(0.0), OPEN

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """A new scene; equal seeds give equal scenes for every arm."""
        super().reset(seed=seed)
        self._task = (options or {}).get("task", "lift")
        if self._task not in INSTRUCTIONS:
            raise ValueError(f"no task '{self._task}': {', '.join(INSTRUCTIONS)}")
        random = self.np_random
        height = CUBE if self._task == "lift" else 0.01
        self._thing = np.array([*random.uniform(-0.15, 0.15, 2), height])
        self._angle = float(random.uniform(-0.6, 0.6)) if self._task == "lift" else 0.0
        self._xyz = np.array([0.0, 0.0, 0.25]) + random.uniform(-0.04, 0.04, 3)
        self._rotation = down(float(random.uniform(-0.2, 0.2)))
        self._gripper, self._steps = OPEN, 0
        return self._observe(), {"task": self.instruction}

    def step(self, action: F32) -> tuple[Observation, float, bool, bool, Info]:
        """Moves towards the action for a twentieth of a second."""
        values = checked(action, _LOW, _HIGH)
        held = self._task == "lift" and self.holds
        before, body = self.tip, self.body
        self._xyz = towards(self._xyz, values[:3], body.speed)
        self._rotation = _turned(self._rotation, values[3:9], body.turn)
        self._gripper = closer(self._gripper, float(values[9]), body.grip)
        self._xyz[2] += max(0.0, -self.tip[2])  # the tip stays above the table
        if held:
            self._thing = self._thing + self.tip - before
            if not self.holds:
                self._thing[2] = CUBE  # it falls
            self._thing[2] = max(self._thing[2], CUBE)
        self._steps += 1
        success = self._done()
        info = {"task": self.instruction, "is_success": success, "distance": self._distance()}
        return self._observe(), float(success), success, self._steps >= MAX_STEPS and not success, info

    def render(self) -> U8 | None:
        """What the front camera sees."""
        return self._front() if self.render_mode == "rgb_array" else None

    @property
    def instruction(self) -> str:
        """The task in words."""
        return INSTRUCTIONS[self._task]

    @property
    def tip(self) -> F64:
        """Where the tool acts."""
        point: F64 = self._xyz + self._rotation @ np.array(self.body.offset)
        return point

    @property
    def holds(self) -> bool:
        """True if the gripper is closed and near the object."""
        return self._gripper <= SHUT and float(np.linalg.norm(self.tip - self._thing)) <= REACH

    def _done(self) -> bool:
        if self._task == "lift":
            return self.holds and bool(self._thing[2] >= LIFTED)
        return self._gripper <= SHUT and float(np.linalg.norm(self.tip - self._thing)) <= TOUCH

    def _distance(self) -> float:
        """The remaining distance to success, in metres."""
        way = float(np.linalg.norm(self.tip - self._thing))
        return way + max(0.0, LIFTED - float(self._thing[2])) if self._task == "lift" else way

    def _observe(self) -> Observation:
        rotation6 = np.concatenate([self._rotation[:, 0], self._rotation[:, 1]])
        state = np.array([*self._xyz, *rotation6, self._gripper], np.float32)
        images = {"front": self._front(), "wrist": self._wrist()}
        return {"state": np.clip(state, _LOW, _HIGH), "images": images}

    def _front(self) -> U8:
        """The image from above; objects nearer to the camera look larger."""
        picture = np.full((*FRONT, 3), _FLOOR, np.uint8)
        polygon(picture, _on_front(_square(np.zeros(2), TABLE, 0.0)), _TOP)
        self._draw_thing(picture, _on_front, 1 + 2 * max(0.0, float(self._thing[2]) - CUBE), 125.0)
        tip, across = self.tip, self._rotation[:2, 1]
        size = 2.5 + 14 * float(tip[2])
        disc(picture, _on_front(tip[:2]), size, self.body.colour, 2)
        for side in (-1, 1):  # the fingers
            finger = tip[:2] + side * (0.008 + 0.022 * self._gripper) * across
            disc(picture, _on_front(finger), 1.5, _DARK)
        return picture

    def _wrist(self) -> U8:
        """The image straight down from the tool, rotated with it; a higher tool sees more."""
        picture = np.full((*WRIST, 3), _FLOOR, np.uint8)
        tip = self.tip
        scale = 96 / (0.16 + 0.8 * float(tip[2]))  # pixels a metre
        ahead = self._rotation[:2, 0] / max(float(np.linalg.norm(self._rotation[:2, 0])), 1e-6)
        axes = np.array([ahead, [ahead[1], -ahead[0]]])  # columns to the right, rows down

        def on_wrist(points: F64) -> F64:
            seen: F64 = (points - tip[:2]) @ axes.T * scale + np.array([WRIST[1] / 2, WRIST[0] / 2])
            return seen

        polygon(picture, on_wrist(_square(np.zeros(2), TABLE, 0.0)), _TOP)
        away = max(0.0, float(tip[2] - self._thing[2]) + CUBE)  # a held cube keeps its size in the image
        self._draw_thing(picture, on_wrist, 96 / (0.16 + 0.8 * away) / scale, scale)
        gap = 4 + 14 * self._gripper
        for row in (WRIST[0] / 2 - gap, WRIST[0] / 2 + gap):  # the fingers
            line(picture, np.array([40.0, row]), np.array([56.0, row]), self.body.colour, 3)
        return picture

    def _draw_thing(self, picture: U8, place: Callable[[F64], F64], larger: float, scale: float) -> None:
        if self._task == "lift":
            polygon(picture, place(_square(self._thing[:2], CUBE * larger, self._angle)), _RED)
            return
        disc(picture, place(self._thing[:2]), BUTTON * scale, _BLUE)


def down(angle: float) -> F64:
    """The rotation of a tool that points down (its z axis), rotated about the vertical."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, s, 0.0], [s, -c, 0.0], [0.0, 0.0, -1.0]])


def expert(env: gymnasium.Env[Observation, F32]) -> F32:
    """The expert's next action from the true state: above the object, down, close, and lift a cube."""
    arm = env.unwrapped
    assert isinstance(arm, OneArmEnv)
    thing, tip = arm._thing, arm.tip
    beside = float(np.linalg.norm((tip - thing)[:2]))
    rotation, lift = down(arm._angle), arm._task == "lift"
    gripper = OPEN if lift else CLOSED
    if lift and arm.holds:
        goal, gripper = np.array([*tip[:2], LIFTED + 0.03]), CLOSED
    elif beside > 0.006:
        goal = thing + np.array([0.0, 0.0, 0.08 if beside > 0.03 or tip[2] > 0.06 else 0.0])
    elif lift and float(np.linalg.norm(tip - thing)) <= 0.008:
        goal, gripper = thing, CLOSED
    else:
        goal = thing
    turned = _turned(arm._rotation, np.concatenate([rotation[:, 0], rotation[:, 1]]), arm.body.turn)
    xyz = towards(arm._xyz, goal - turned @ np.array(arm.body.offset), arm.body.speed)
    grip = closer(arm._gripper, gripper, arm.body.grip)
    action = np.array([*xyz, *turned[:, 0], *turned[:, 1], grip], np.float32)
    return np.clip(action, _LOW, _HIGH)


def _turned(now: F64, rotation6: NDArray[Any], most: float) -> F64:
    """Rotates towards a 6-D rotation by at most `most`; a degenerate target leaves it unchanged."""
    first = np.asarray(rotation6[:3], np.float64)
    third = np.cross(first, rotation6[3:])
    if min(float(np.linalg.norm(first)), float(np.linalg.norm(third))) < 1e-6:
        return now
    first, third = first / np.linalg.norm(first), third / np.linalg.norm(third)
    target = np.stack([first, np.cross(third, first), third], axis=1)
    vector = cv2.Rodrigues(now.T @ target)[0].reshape(3)
    angle = float(np.linalg.norm(vector))
    if angle <= most:
        return target
    left, _, right = np.linalg.svd(now @ cv2.Rodrigues(vector * (most / angle))[0])
    nearest: F64 = left @ right  # removes the drift of many small rotations
    return nearest


def _square(centre: F64, half: float, angle: float) -> F64:
    corners = half * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    c, s = np.cos(angle), np.sin(angle)
    turned: F64 = corners @ np.array([[c, s], [-s, c]]) + centre
    return turned


def _on_front(points: F64) -> F64:
    """Metres of the table as columns and rows: x to the right, y up."""
    pixels: F64 = points * np.array([125.0, -125.0]) + np.array([FRONT[1] / 2, FRONT[0] / 2])
    return pixels
