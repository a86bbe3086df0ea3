"""`recap/DualArm-…-v0`: a table, two arms and a language instruction."""

from __future__ import annotations

import logging
import math
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces

from recap.errors import InputError, one_of
from recap.geometry3 import ARM_DIM, rotation6_to_matrix
from recap.types import F32, F64, U8, Observation
from recap_worlds.dualarm.kinematics import N_JOINTS, kinematics_of
from recap_worlds.dualarm.robots import SIDES, robot_named
from recap_worlds.dualarm.scenes import (
    CAMERAS,
    MAX_IMAGE_SIZE,
    N_SUBSTEPS,
    TIME_STEP_S,
    Look,
    build_scene,
    put,
)
from recap_worlds.dualarm.tasks import task_named
from recap_worlds.dualarm.tasks.task import State
from recap_worlds.rendering import Renderer

SPLITS = ("clean", "randomised")
WORDINGS = ("seen", "unseen")
HOLD_STEPS = 5  # steps for which success must last
SETTLE_STEPS = 8  # steps before an episode in which objects come to rest
PICTURE_SIZE = 480
_BROKEN = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
)
mujoco.set_mju_user_warning(logging.getLogger(__name__).info)  # by default it writes a file to the cwd
WORKSPACE = 1.2  # m: targets outside are clipped


class DualArmEnv(gym.Env[dict[str, Any], F32]):
    """Two arms at a table; an action is the absolute 20-D target of both tools.

    Args:
        task: the task's key, such as `move_can_pot`.
        embodiment: `viperx` (the target), `ur5e` (the pool's) or `hand`.
        split: `clean`, or `randomised` in colours, light, table and distractors.
        image_size: width and height of the three camera images in the observation; 0: none.
        render_mode: `rgb_array` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        embodiment: str = "viperx",
        *,
        split: str = "clean",
        image_size: int = 128,
        render_mode: str | None = "rgb_array",
    ) -> None:
        self.task = task_named(task)
        self.robot = robot_named(embodiment)
        self.split = one_of("split", split, SPLITS)
        if image_size and not 8 <= image_size <= MAX_IMAGE_SIZE:
            raise InputError(
                f"image size {image_size} is out of range: give 0, or 8 to {MAX_IMAGE_SIZE} pixels"
            )
        self.image_size = image_size
        self.render_mode = render_mode
        self._kinematics = kinematics_of(self.robot)
        self.model = build_scene(self.robot, self.task.bodies, with_distractors=split == "randomised")
        self.data = mujoco.MjData(self.model)
        self._look = Look(self.model)
        self._renderer: Renderer | None = None
        self._index()
        self._make_spaces()
        self._instruction = self.task.seen[0]
        self._steps = 0
        self.joint_history: list[F64] = []  # (2, 6) each: at the start of the episode and after each step

    def _index(self) -> None:
        """Store indices into MuJoCo's arrays."""
        model = self.model
        joints = [f"{side}/{link.name}" for side in SIDES for link in self.robot.links]
        self._q = np.array([model.joint(name).qposadr[0] for name in joints])
        self._motors = np.array([model.actuator(name).id for name in joints])
        self._grip_motors = np.array([model.actuator(f"{side}/grip").id for side in SIDES])
        fingers = [f"{side}/finger_{n}" for side in SIDES for n in (1, 2)]
        self._fingers = np.array([model.joint(name).qposadr[0] for name in fingers])
        self._sites = np.array([model.site(f"{side}/tool").id for side in SIDES])
        parts = [part for body in self.task.bodies for part in body.parts]
        self._hinges = {part.name: part.joint == "hinge" for part in parts}
        names = [body.name for body in self.task.bodies] + [part.name for part in parts]
        self._bodies = {name: model.body(name).id for name in names}
        self._thing_of_geom = np.full(model.ngeom, -1)
        for n, body_id in enumerate(self._bodies.values()):
            self._thing_of_geom[model.geom_bodyid == body_id] = n
        owners = [model.body(i).name.partition("/")[0] for i in model.geom_bodyid]
        self._of_arm = np.isin(owners, SIDES)  # (ngeom,)
        self._side_of_geom = np.full(model.ngeom, -1)
        for n, side in enumerate(SIDES):
            for finger in (1, 2):
                self._side_of_geom[model.geom(f"{side}/pad_{finger}").id] = n

    def _make_spaces(self) -> None:
        arm_low, arm_high = [-WORKSPACE] * 3 + [-1.0] * 6 + [0.0], [WORKSPACE] * 3 + [1.0] * 7
        self.action_space = spaces.Box(np.array(arm_low * 2, np.float32), np.array(arm_high * 2, np.float32))
        parts: dict[str, spaces.Space[Any]] = {
            "proprio": spaces.Box(-10, 10, (2 * ARM_DIM,), np.float32),
            "objects": spaces.Box(-10, 10, (len(self.task.objects), 7), np.float32),
        }
        for camera in CAMERAS if self.image_size else ():
            parts[camera] = spaces.Box(0, 255, (self.image_size, self.image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(parts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode; option `wording`: `seen` or `unseen`. A seed is the same scene on both robots."""
        options = options or {}
        for name in options:
            one_of("reset option", name, ("wording",))
        wording = one_of("wording", options.get("wording", "seen"), WORDINGS)
        super().reset(seed=seed)
        places = self.task.arrange(self.np_random)
        phrases = self.task.seen if wording == "seen" else self.task.unseen
        self._instruction = phrases[int(self.np_random.random() * len(phrases))]
        if self.split == "randomised":
            self._look.draw(self.np_random)
        mujoco.mj_resetData(self.model, self.data)
        self._command = self._kinematics.home.copy()
        self.data.qpos[self._q] = self._command.ravel()
        self.data.qpos[self._fingers] = self.robot.travel
        put(self.model, self.data, self.task.bodies, places)
        self._drive(np.ones(2))
        mujoco.mj_step(self.model, self.data, nstep=N_SUBSTEPS * SETTLE_STEPS)
        mujoco.mj_forward(self.model, self.data)
        self._steps = self._held = 0
        self.joint_history = [self.joints()]
        self._start = self._poses()
        return self._observation(), {
            "success": False,
            "is_success": False,
            "task": self._instruction,
            "broken": False,
        }

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control step of 0.05 s towards the target `action` (20,)."""
        values = _checked(action)
        arms = values.reshape(2, ARM_DIM)
        positions = np.clip(arms[:, :3], -WORKSPACE, WORKSPACE)
        try:
            rotations = rotation6_to_matrix(arms[:, 3:9])
        except ValueError as error:
            raise InputError(f"the action has no orientation: {error}") from None
        self._command = self._kinematics.solve(self._command, positions, rotations)
        self._drive(np.clip(arms[:, 9], 0.0, 1.0))
        broken = self._advance()
        self._steps += 1
        self.joint_history.append(self.joints())
        self._held = 0 if broken or not self.task.success(self.state()) else self._held + 1
        success = self._held >= HOLD_STEPS
        truncated = broken or (not success and self._steps >= self.task.max_steps)
        info = {"success": success, "is_success": success, "task": self._instruction, "broken": broken}
        return self._observation(), float(success), success, truncated, info

    def _advance(self) -> bool:
        """One control step of physics; True if it diverged, as when an object is crushed, and was undone."""
        before = self.data.qpos.copy()
        mujoco.mj_step(self.model, self.data, nstep=N_SUBSTEPS)
        broken = any(self.data.warning[kind].number for kind in _BROKEN)
        if broken:  # MuJoCo has reset the state
            self.data.qpos[:] = before
            self.data.qvel[:] = 0.0
            mujoco.mj_forward(self.model, self.data)
        return broken

    def _drive(self, openings: F64) -> None:
        self.data.ctrl[self._motors] = self._command.ravel()
        squeeze = 0.01 * np.clip(1 - 5 * openings, 0.0, 1.0)  # beyond closed, to press thin objects too
        self.data.ctrl[self._grip_motors] = openings * self.robot.travel - squeeze

    def proprio(self) -> F64:
        """The state of both tools: (20,)."""
        out = np.empty((2, ARM_DIM))
        out[:, :3] = self.data.site_xpos[self._sites]
        matrix = self.data.site_xmat[self._sites].reshape(2, 3, 3)
        out[:, 3:6], out[:, 6:9] = matrix[:, :, 0], matrix[:, :, 1]
        out[:, 9] = self._openings()
        return out.ravel()

    def _openings(self) -> F64:
        fingers = self.data.qpos[self._fingers].reshape(2, 2).mean(axis=1)
        openings: F64 = np.clip(fingers / self.robot.travel, 0.0, 1.0)
        return openings

    def joints(self) -> F64:
        """Joint angles of both arms: (2, 6)."""
        return np.array(self.data.qpos[self._q]).reshape(2, N_JOINTS)

    def _poses(self) -> dict[str, F64]:
        data = self.data
        return {name: np.concatenate([data.xpos[i], data.xquat[i]]) for name, i in self._bodies.items()}

    def state(self) -> State:
        """The true state, for success checks."""
        tools = self.data.site_xpos[self._sites]
        openings = self._openings()
        return State(
            objects=self._poses(),
            start=self._start,
            joints={
                name: math.degrees(q) if hinge else q
                for name, hinge in self._hinges.items()
                for q in (float(self.data.joint(name).qpos[0]),)
            },
            tools=dict(zip(SIDES, tools, strict=True)),
            grips={side: float(openings[n]) for n, side in enumerate(SIDES)},
            touching=self._touching(),
        )

    def _touching(self) -> dict[str, frozenset[str]]:
        """Object -> sides of the fingers that touch it."""
        pairs = self.data.contact.geom  # (n, 2)
        sides = self._side_of_geom[pairs].max(axis=1, initial=-1)
        things = self._thing_of_geom[pairs].max(axis=1, initial=-1)
        found = set(zip(things.tolist(), sides.tolist(), strict=True))
        return {
            name: frozenset(side for s, side in enumerate(SIDES) if (n, s) in found)
            for n, name in enumerate(self._bodies)
        }

    def resting(self) -> frozenset[str]:
        """Objects that touch anything except an arm, such as the table or another object."""
        pairs = self.data.contact.geom  # (n, 2)
        found = set(self._thing_of_geom[pairs[~self._of_arm[pairs].any(axis=1)]].ravel().tolist())
        return frozenset(name for n, name in enumerate(self._bodies) if n in found)

    def observe(self, image_size: int | None = None, cameras: tuple[str, ...] = CAMERAS) -> Observation:
        """The observation for agents, with images of these cameras if a size is given."""
        poses = self._poses()
        return Observation(
            proprio=self.proprio().astype(np.float32),
            task=self._instruction,
            time_s=self._steps * N_SUBSTEPS * TIME_STEP_S,
            images=self.draw(image_size, cameras) if image_size else {},
            objects={name: poses[name] for name in self.task.objects},
        )

    def draw(self, size: int, cameras: tuple[str, ...] = CAMERAS) -> dict[str, U8]:
        """The images of the cameras."""
        if self._renderer is None:
            self._renderer = Renderer(self.model, size)
        return self._renderer.draw(self.data, cameras, size)

    def render(self) -> U8:
        """A larger image of the head camera."""
        return self.draw(PICTURE_SIZE, ("head",))["head"]

    def close(self) -> None:
        """Free the GL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _observation(self) -> dict[str, Any]:
        poses = self._poses()
        objects = np.stack([poses[name] for name in self.task.objects]).astype(np.float32)
        observation: dict[str, Any] = {"proprio": self.proprio().astype(np.float32), "objects": objects}
        return observation | (self.draw(self.image_size) if self.image_size else {})


def _checked(action: Any) -> F64:
    try:
        values = np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(0, np.nan)
    if values.shape != (2 * ARM_DIM,) or not np.isfinite(values).all():
        raise InputError(
            f"the action is not a target of two arms: give {2 * ARM_DIM} finite numbers "
            f"(xyz, 6-D rotation, gripper, twice), not {'NaN' if values.size == 20 else values.shape}"
        )
    return values
