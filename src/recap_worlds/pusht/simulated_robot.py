"""A simulated robot: PushT with a camera, in the same process as the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recap.types import F64, U8, Observation
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.person import Corrector

DEFAULT_SIZE = 96  # px of a camera image, unless the server gives a size


class PushTRobot:
    """The board with a camera; it knows only its own position and the image.

    Args:
        camera_size: px per side of the image it sends.
        person: the expert takes over if the policy makes no progress.
    """

    def __init__(
        self,
        camera_size: int = DEFAULT_SIZE,
        *,
        pusher: str = "triangle",
        angle: float = 20.0,
        block: str = "tee",
        seed: int = 500,
        person: bool = False,
    ) -> None:
        self.env = PushTEnv(pusher, angle, block=block)
        _, info = self.env.reset(seed=seed)
        self.camera_size = camera_size
        self.options = {"block": block}  # the matching options of the server's world
        self.coverage = self.best = float(info["coverage"])
        self.done = False
        self.embodiment = pusher
        self.attributes = {"block": block, "symmetry": self.env.shape.symmetry}  # of a correction
        if person:  # a robot with `takeover` is asked in every period
            self._person = Corrector(Expert(pusher, block))
            self.takeover = self._takeover

    @classmethod
    def for_server(
        cls,
        metadata: Mapping[str, Any],
        *,
        pusher: str = "triangle",
        angle: float = 20.0,
        block: str = "tee",
        seed: int = 500,
        person: bool = False,
    ) -> PushTRobot:
        """A robot with a camera that suits the server."""
        size = int(metadata.get("camera_size", DEFAULT_SIZE))
        robot = cls(size, pusher=pusher, angle=angle, block=block, seed=seed, person=person)
        known = metadata.get("option_names", robot.options)
        robot.options = {name: value for name, value in robot.options.items() if name in known}
        return robot

    def observe(self) -> Observation:
        """Its position and an image; no poses."""
        return self.env.observe(self.camera_size, with_poses=False)

    def act(self, action: F64) -> None:
        """One period of physics towards the target."""
        _, _, ended, _, info = self.env.step(action)
        self.coverage = float(info["coverage"])
        self.best = max(self.best, self.coverage)
        self.done = self.done or ended

    def _takeover(self) -> F64 | None:
        """The person's action while taking over, else None."""
        return self._person.takeover(self.env.observe(), self.coverage)

    def status(self) -> Mapping[str, float]:
        """Coverage of the goal, now and at best."""
        return {"coverage": self.coverage, "best": self.best}

    def picture(self) -> U8:
        """The board for a video, with the target marked."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
