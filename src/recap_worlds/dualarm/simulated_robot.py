"""A simulated robot: two arms at a table, in the process of whoever drives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recap.errors import one_of
from recap.types import F64, U8, Observation
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.robot import CAMERAS

DEFAULT_SIZE = 64  # px of a camera, where the server does not say


class DualArmRobot:
    """The table with its objects' poses; it has pictures of the cameras that are asked for.

    Args:
        cameras: whose pictures it sends; none: poses alone.
        camera_size: px a side of a picture.
    """

    def __init__(
        self,
        cameras: Sequence[str] = (),
        camera_size: int = DEFAULT_SIZE,
        *,
        task: str = "lift_pot",
        embodiment: str = "viperx",
        seed: int = 500,
    ) -> None:
        for camera in cameras:
            one_of("camera", camera, CAMERAS)
        # Pictures are drawn when someone looks, not at every step.
        self.env = DualArmEnv(task, embodiment, image_size=0)
        self.env.reset(seed=seed)
        self.cameras, self.camera_size = tuple(cameras), camera_size
        self.options = {"embodiment": embodiment}  # what the server's world should be set to
        self.steps = 0
        self.done = False

    @classmethod
    def for_server(
        cls,
        metadata: Mapping[str, Any],
        *,
        task: str = "lift_pot",
        embodiment: str = "viperx",
        seed: int = 500,
    ) -> DualArmRobot:
        """One with the cameras that a server requires."""
        size = int(metadata.get("camera_size", DEFAULT_SIZE))
        cameras = metadata.get("cameras_required", ())
        robot = cls(cameras, size, task=task, embodiment=embodiment, seed=seed)
        known = metadata.get("option_names", robot.options)
        robot.options = {name: value for name, value in robot.options.items() if name in known}
        return robot

    def observe(self) -> Observation:
        """Its tools, the objects' poses and the pictures."""
        return self.env.observe(self.camera_size if self.cameras else None, self.cameras)

    def act(self, action: F64) -> None:
        """One period of physics towards the targets of both tools."""
        self.done = bool(self.env.step(action)[2]) or self.done
        self.steps += 1

    def status(self) -> Mapping[str, float]:
        """Whether the task is done, and after how many periods."""
        return {"success": float(self.done), "steps": float(self.steps)}

    def picture(self) -> U8:
        """The table, for a video."""
        picture: U8 = np.asarray(self.env.render(), np.uint8)
        return picture

    def close(self) -> None:
        """Put it away."""
        self.env.close()
