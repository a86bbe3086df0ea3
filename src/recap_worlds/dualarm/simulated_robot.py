"""A simulated robot: two arms at a table, in the same process as the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recap.errors import one_of
from recap.types import F64, U8, Observation
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.robot import CAMERAS

DEFAULT_SIZE = 64  # px of a camera image, unless the server gives a size


class DualArmRobot:
    """The table with object poses, and images of the requested cameras.

    Args:
        cameras: cameras of the images it sends; empty: only poses.
        camera_size: px per side of an image.
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
        # Images are rendered on demand, not at every step.
        self.env = DualArmEnv(task, embodiment, image_size=0)
        self.env.reset(seed=seed)
        self.cameras, self.camera_size = tuple(cameras), camera_size
        self.options = {"embodiment": embodiment}  # the matching options of the server's world
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
        """A robot with the cameras that the server requires."""
        size = int(metadata.get("camera_size", DEFAULT_SIZE))
        cameras = metadata.get("cameras_required", ())
        robot = cls(cameras, size, task=task, embodiment=embodiment, seed=seed)
        known = metadata.get("option_names", robot.options)
        robot.options = {name: value for name, value in robot.options.items() if name in known}
        return robot

    def observe(self) -> Observation:
        """Tools, object poses and images."""
        return self.env.observe(self.camera_size if self.cameras else None, self.cameras)

    def act(self, action: F64) -> None:
        """One control period towards the targets of both tools."""
        self.done = bool(self.env.step(action)[2]) or self.done
        self.steps += 1

    def status(self) -> Mapping[str, float]:
        """Success, and the number of periods."""
        return {"success": float(self.done), "steps": float(self.steps)}

    def picture(self) -> U8:
        """An image of the table for a video."""
        picture: U8 = np.asarray(self.env.render(), np.uint8)
        return picture

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
