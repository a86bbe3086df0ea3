"""One arm at a table, simulated by Meta-World; absolute actions are converted to Meta-World's.

An observation contains the hand, three cameras and, for experts and training, poses of object and goal. Goal
marks are not rendered, because a camera at a real table would not show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from recap.types import F32, F64, U8, Observation
from recap_worlds.metaworld.tasks import instruction

if TYPE_CHECKING:
    from recap_worlds.rendering import Renderer

CAMERAS = {"scene": "corner3", "wrist": "gripperPOV", "behind": "behindGripper"}  # ours -> Meta-World's
SHOWN_GROUPS = (0, 1, 2)  # of geoms
CONTROL_HZ = 80.0
MAX_STEPS = 500
DOWN = (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)  # the hand's constant orientation
POSED = ("goal", "object", "other")  # the last is at 0 if a task has no second object
STEP_M = 0.01  # largest move per axis and step
FINGERS = ("rightclaw", "leftclaw")  # the bodies that hold the pads


@dataclass(frozen=True)
class Hand:
    """Offsets of the fingers from the nominal ones, in metres."""

    offset_y: float = 0.0  # in the opening direction
    offset_z: float = 0.0  # up: shorter fingers; negative: longer ones


NOMINAL = Hand()


@dataclass(frozen=True)
class Commands:
    """Start of the commanded hand position of a task, and its limits."""

    start: F64  # (3,)
    low: F64  # (3,)
    high: F64  # (3,)


@cache
def commands(task: str) -> Commands:
    """The values of a task; they do not depend on the scene."""
    world = MetaWorld()
    world.reset(0, task)
    env = world._env
    found = Commands(np.array(env.data.mocap_pos[0]), np.array(env.mocap_low), np.array(env.mocap_high))
    world.close()
    return found


class MetaWorld:
    """One task at a time; its simulator is kept while the task is the same."""

    control_hz = CONTROL_HZ

    def __init__(self, hand: Hand = NOMINAL) -> None:
        self.hand = hand
        self._env: Any = None
        self._task = ""
        self._renderer: Renderer | None = None

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Start a scene that depends only on the seed."""
        if task != self._task:
            self.close()
            self._env, self._task = self._made(task), task
        env = self._env
        # Meta-World ignores `reset(seed=…)`: it draws places once from `seed` and keeps them. The second
        # reset starts from a state that does not depend on the previous episode.
        env._freeze_rand_vec = False
        env.seed(seed)
        env.reset()
        env._freeze_rand_vec = True
        self._state = np.asarray(env.reset()[0], np.float64)
        self._steps = 0
        return {"success": 0.0}

    def observe(self, image_size: int | None) -> Observation:
        """The current observation."""
        state = self._state
        proprio = np.array([*state[:3], *DOWN, state[3]], np.float32)
        images = {} if image_size is None else self._images(image_size)
        return Observation(proprio, instruction(self._task), self._steps / CONTROL_HZ, images, self._poses())

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """One control step towards an absolute target: position, orientation (ignored) and opening."""
        env = self._env
        delta = np.clip((action[:3] - env.data.mocap_pos[0]) / STEP_M, -1.0, 1.0)
        effort = 1.0 - 2.0 * float(np.clip(action[9], 0.0, 1.0))
        state, _, _, _, info = env.step(np.array([*delta, effort], np.float32))
        self._state = np.asarray(state, np.float64)
        self._steps += 1
        return {"success": float(info["success"])}, self._steps >= MAX_STEPS

    def render(self) -> U8:
        """An image from the scene camera."""
        return self._images(256)["scene"]

    def close(self) -> None:
        """Close the simulator."""
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = None
        if self._env is not None:
            self._env.close()
        self._env, self._task = None, ""

    def _made(self, task: str) -> Any:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        env = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
        env._set_task_called, env.seeded_rand_vec = True, True
        env._partially_observable = False  # two experts need the goal
        del env.sawyer_observation_space  # cached before the goal was observable
        model = env.model
        model.site_rgba[:, 3] = 0.0  # goal marks, which no real camera would see
        model.vis.quality.offsamples = model.vis.quality.shadowsize = 0  # 16 times faster in software
        aside = (
            -self.hand.offset_z,
            self.hand.offset_y,
            0.0,
        )  # the hand's x axis points down, its y axis along y
        for name in FINGERS:
            model.body(name).pos[:] += aside
        return env

    def _poses(self) -> dict[str, F64]:
        state, goal = self._state, np.asarray(self._env._target_pos, np.float64)
        poses = (goal, state[4:11], state[11:18])
        return {name: _pose(pose) for name, pose in zip(POSED, poses, strict=True)}

    def _images(self, size: int) -> dict[str, U8]:
        if self._renderer is None:
            from recap_worlds.rendering import Renderer  # imports MuJoCo

            self._renderer = Renderer(self._env.model, size, SHOWN_GROUPS, headlight=True)
        drawn = self._renderer.draw(self._env.data, CAMERAS.values(), size)
        return {name: drawn[camera] for name, camera in CAMERAS.items()}


def _pose(state: F64) -> F64:
    """A pose (7,) with quaternion w first; objects without orientation get the identity."""
    turn = state[3:7] if len(state) > 3 else np.zeros(4)
    length = float(np.linalg.norm(turn))
    return np.concatenate([state[:3], turn / length if length > 1e-6 else (1.0, 0.0, 0.0, 0.0)])


def expert_state(proprio: F32, poses: Mapping[str, F64], hand: Hand = NOMINAL) -> F64:
    """The 39 numbers that Meta-World's experts read; a changed hand is given by its fingers' position."""
    now = np.zeros(18)
    now[:3] = np.add(proprio[:3], (0.0, hand.offset_y, hand.offset_z))
    now[3] = proprio[9]
    for name, at in (("object", 4), ("other", 11)):
        if poses[name][:3].any():
            now[at : at + 7] = poses[name]
    return np.concatenate([now, now, poses["goal"][:3]])
