"""`recap/PushT-v0`: gym-pusht's physics with two pushers, any goal angle and other blocks."""

from __future__ import annotations

import math
import numbers
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import pymunk
from gym_pusht.envs.pusht import PushTEnv as StockPushTEnv
from gymnasium import spaces
from pymunk.vec2d import Vec2d

from recap.errors import InputError, one_of
from recap.geometry import transform_points
from recap.types import F32, F64, U8, Observation
from recap_worlds.pusht.blocks import INERTIA, MASS, block_named
from recap_worlds.pusht.coverage import shared_area
from recap_worlds.pusht.drawing import draw_background, draw_board, draw_target
from recap_worlds.pusht.pushers import TRIANGLE, pusher_named
from recap_worlds.pusht.shapes import DISC_RADIUS
from recap_worlds.pusht.tasks import FPS, INSTRUCTION

BOARD_CENTER = (256.0, 256.0)
ObsType = Literal["state", "pixels", "both", "pixels_agent_pos"]


class PushTEnv(StockPushTEnv):  # type: ignore[misc]
    """Stock PushT with a choice of pusher, goal and block; it renders at the size it observes.

    Args:
        pusher: `disc` (radius 15) or `triangle` (never rotates).
        goal_angle: in degrees; +45 is the stock goal. `reset(options={"goal_angle": a})` changes it.
        goal_position: goal position of the block's origin.
        block: `tee` (the benchmark) or another of `recap_worlds.pusht.blocks.BLOCKS`.
        success_threshold: an episode ends when coverage exceeds it.
        obs_type: `state` (pusher xy, block pose, goal pose), `pixels`, `both` (a dict of the two), or
            `pixels_agent_pos` (a dict as in gym-pusht).
        observation_size: width and height of the pixels.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        pusher: str = "disc",
        goal_angle: float = 45.0,
        goal_position: tuple[float, float] = BOARD_CENTER,
        block: str = "tee",
        success_threshold: float = 0.95,
        obs_type: ObsType = "state",
        observation_size: int = 96,
        visualization_size: int = 512,
        render_mode: str | None = "rgb_array",
    ) -> None:
        self.pusher = pusher_named(pusher)
        self.shape = block_named(block)
        one_of("obs_type", obs_type, ("state", "pixels", "both", "pixels_agent_pos"))
        if not 0 < success_threshold < 1:
            raise InputError(f"success_threshold {success_threshold} is not a fraction: give 0.85 or 0.95")
        if not 8 <= observation_size <= 2048:
            raise InputError(f"observation_size {observation_size} is out of range: give 8 to 2048 pixels")
        super().__init__(
            obs_type=obs_type,
            render_mode=render_mode,
            observation_width=observation_size,
            observation_height=observation_size,
            visualization_width=visualization_size,
            visualization_height=visualization_size,
        )
        self.success_threshold = success_threshold
        self.goal_position = goal_position
        self._goal_pose = self._checked_goal(goal_angle)

    def _initialize_observation_space(self) -> None:
        size = self.observation_width
        # Three boards wide: a block that is squeezed through a wall is still inside the space.
        low = np.array([-512, -512, -512, -512, 0, 0, 0, -np.pi])
        high = np.array([1024, 1024, 1024, 1024, 2 * np.pi, 512, 512, np.pi])
        state = spaces.Box(low, high, dtype=np.float64)
        pixels = spaces.Box(0, 255, (size, size, 3), np.uint8)
        both = spaces.Dict({"state": state, "pixels": pixels})
        place = spaces.Box(0.0, 512.0, (2,), np.float64)
        named = spaces.Dict({"pixels": pixels, "agent_pos": place})  # names of gym-pusht and LeRobot
        choices: dict[str, spaces.Space[Any]] = {"state": state, "pixels": pixels, "both": both}
        choices["pixels_agent_pos"] = named
        self.observation_space = choices[self.obs_type]

    def _checked_goal(self, goal_angle: float) -> F64:
        if not (isinstance(goal_angle, numbers.Real) and math.isfinite(goal_angle)):
            raise InputError(f"goal angle {goal_angle!r} is not a number: give degrees, such as -30")
        if np.shape(self.goal_position) != (2,) or not np.isfinite(self.goal_position).all():
            raise InputError(f"goal position {self.goal_position!r} is not a place: give x and y")
        goal_angle = float(goal_angle)
        theta = math.radians(goal_angle)
        pose = np.array([*self.goal_position, math.atan2(math.sin(theta), math.cos(theta))])
        if abs(theta) <= math.pi:
            pose[2] = theta  # exactly the stock value at +45
        parts = transform_points(pose, self.shape.parts)
        if not ((parts > 7) & (parts < 504)).all():
            raise InputError(
                f"goal {tuple(self.goal_position)} at {goal_angle:g}° puts the {self.shape.name} outside the "
                f"board: keep every corner within 7…504"
            )
        return pose

    # Objects that stock PushT builds in `_setup`, changed where ours differ.

    def _setup(self) -> None:
        super()._setup()
        for shape in self._block_shapes:
            # Stock PushT counts contacts in a Python callback inside the physics. A separate collision type
            # excludes the block: this saves time, and an exception such as Ctrl-C cannot be lost there.
            shape.collision_type = 1
        self.goal_pose = self._goal_pose.copy()
        goal_parts = transform_points(self.goal_pose, self.shape.parts)
        self._goal_parts = goal_parts
        self._backgrounds: dict[int, F32] = {}

    def add_circle(self, space: pymunk.Space, position: tuple[float, float], radius: float) -> pymunk.Body:
        """Stock's disc, or the triangle instead."""
        if self.pusher == "disc":
            return StockPushTEnv.add_circle(space, position, radius)
        body = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
        body.position = position
        space.add(body, pymunk.Poly(body, [tuple(v) for v in TRIANGLE.tolist()]))
        return body

    def add_tee(
        self, space: pymunk.Space, position: tuple[float, float], angle: float
    ) -> tuple[pymunk.Body, list[pymunk.Poly]]:
        """Stock's T, or another block with the same rules."""
        if self.shape.name == "tee":
            return StockPushTEnv.add_tee(space, position, angle)  # type: ignore[no-any-return]
        body = pymunk.Body(MASS, INERTIA)
        shapes = [pymunk.Poly(body, [tuple(v) for v in part.tolist()]) for part in self.shape.parts]
        body.center_of_gravity = self.shape.center_of_gravity
        body.angle = angle
        body.position = position
        space.add(body, *shapes)
        return body, shapes

    # The gymnasium interface.

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; options: `goal_angle`, `reset_to_state` (stock's, position before angle)."""
        options = options or {}
        unknown = set(options) - {"goal_angle", "reset_to_state"}
        if unknown:
            one_of("reset option", sorted(unknown)[0], ("goal_angle", "reset_to_state"))
        if "goal_angle" in options:
            self._goal_pose = self._checked_goal(options["goal_angle"])
        gym.Env.reset(self, seed=seed)
        state = options.get("reset_to_state")
        if state is None:
            draw = self.np_random
            position = [draw.integers(50, 400), draw.integers(50, 400)]
            position += [draw.integers(100, 350), draw.integers(100, 350)]
            state = np.array([*position, draw.uniform(-np.pi / 4, 3 * np.pi / 4)])
        elif np.shape(state) != (5,) or not (np.abs(np.asarray(state, np.float64)) <= 512).all():
            raise InputError("reset_to_state needs five numbers on the board: pusher x y, block x y angle")
        self._last_action = None
        self._n_steps = 0
        observation, info = super().reset(options={"reset_to_state": state})
        info["coverage"] = self._get_coverage()
        info["success"] = info["is_success"]
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One control step of 0.1 s towards the target position `action`."""
        try:
            action = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError):
            action = np.full(0, np.nan)
        if action.shape != (2,) or not np.isfinite(action).all():
            raise InputError(f"action {action!r} is not a target position: give two finite numbers in 0…512")
        # With a Vec2d stock's control law uses Python floats: the same result in a third of the time.
        observation, reward, terminated, truncated, info = super().step(Vec2d(*action.tolist()))
        self._n_steps += 1
        info["success"] = info["is_success"] = bool(terminated)
        return observation, float(reward), bool(terminated), truncated, info

    def state(self) -> F64:
        """Pusher x y, block x y angle, goal x y angle: (8,)."""
        x, y = self.agent.position
        bx, by = self.block.position
        return np.array([x, y, bx, by, self.block.angle % (2 * np.pi), *self.goal_pose])

    def coverage(self) -> float:
        """The share of the goal that the block covers."""
        return self._get_coverage()

    def get_obs(self) -> Any:
        """The observation in the chosen form."""
        if self.obs_type == "state":
            return self.state()
        pixels = self.draw(self.observation_width)
        if self.obs_type == "pixels_agent_pos":
            place = np.clip(np.array(self.agent.position, np.float64), 0.0, 512.0)
            return {"pixels": pixels, "agent_pos": place}
        return pixels if self.obs_type == "pixels" else {"state": self.state(), "pixels": pixels}

    def observe(self, image_size: int | None = None, with_poses: bool = True) -> Observation:
        """The observation for agents: a camera image if a size is given, true poses if wanted."""
        x, y = self.block.position
        return Observation(
            proprio=np.array(self.agent.position, np.float32),
            task=INSTRUCTION,
            time_s=self._n_steps / FPS,
            images={"top": self.draw(image_size)} if image_size else {},
            objects={"block": np.array([x, y, self.block.angle])} if with_poses else {},
            goal=self.goal_pose.copy() if with_poses else None,
        )

    def render(self) -> U8:
        """The board at `visualization_size`, with the pusher's target marked."""
        image = self.draw(self.visualization_width)
        if self._last_action is not None:
            draw_target(image, *self._last_action)
        return image

    def draw(self, size: int) -> U8:
        """The board as a camera image: (size, size, 3)."""
        if size not in self._backgrounds:
            self._backgrounds[size] = draw_background(size, self._goal_parts)
        center = np.array([self.agent.position])
        outline = center if self.pusher == "disc" else TRIANGLE + center
        return draw_board(self._backgrounds[size], self._block_parts(), self.pusher, outline, DISC_RADIUS)

    def _block_parts(self) -> F64:
        x, y = self.block.position
        return transform_points(np.array([x, y, self.block.angle]), self.shape.parts)

    def _get_info(self) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_info()
        del info["n_contacts"]  # not counted here
        return info

    def coverage_at(self, pose: F64) -> float:
        """The coverage if the block had this pose."""
        return (
            float(shared_area(transform_points(pose, self.shape.parts), self._goal_parts)) / self.shape.area
        )

    def _get_coverage(self) -> float:
        return float(shared_area(self._block_parts(), self._goal_parts)) / self.shape.area
