"""A PushT task: a block, a goal angle and a start, the same for both pushers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recap.errors import InputError
from recap_worlds.pusht.blocks import BLOCKS, block_named
from recap_worlds.pusht.drawing import BOARD_SIZE
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.pushers import TRIANGLE
from recap_worlds.pusht.shapes import DISC_RADIUS
from recap_worlds.pusht.tasks import FIRST_COLLECTION_SEED, FPS, MAX_STEPS, THRESHOLDS, angle_key, scene_id

MAX_START = 999_999
SOLVED, DONE = THRESHOLDS  # coverage that counts as success, and coverage that ends an episode


@dataclass(frozen=True, slots=True)
class Task:
    """A goal and a start; starts are numbered from 0, and their seeds are never used for evaluation."""

    block: str = "tee"
    angle: float = 30.0  # degrees
    start: int = 0

    def __post_init__(self) -> None:
        block_named(self.block)
        if not (math.isfinite(self.angle) and -180 <= self.angle <= 180):
            raise InputError(f"goal angle {self.angle} is out of range: give -180 to 180 degrees")
        if not 0 <= self.start <= MAX_START:
            raise InputError(f"start {self.start} is out of range: give 0 to {MAX_START}")

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Task:
        """Read a task from a page's message."""
        block, angle, start = given.get("block"), given.get("angle"), given.get("start")
        numbers = isinstance(angle, int | float) and isinstance(start, int)
        if not isinstance(block, str) or not numbers or isinstance(angle, bool) or isinstance(start, bool):
            raise InputError("a task is a block, an angle and the number of a start: give all three")
        return cls(block, float(angle), start)  # type: ignore[arg-type]

    @property
    def seed(self) -> int:
        """The seed of the start."""
        return FIRST_COLLECTION_SEED + self.start

    @property
    def scene_id(self) -> str:
        """The scene id, as in collection."""
        return scene_id(self.block, self.angle, self.seed)

    @property
    def symmetry(self) -> int:
        """The symmetry of its block."""
        return block_named(self.block).symmetry

    def open(self, pusher: str) -> PushTEnv:
        """The environment in its initial state."""
        env = PushTEnv(pusher, self.angle, block=self.block, success_threshold=DONE)
        env.reset(seed=self.seed)
        return env

    def __str__(self) -> str:
        return f"{self.block} {angle_key(self.angle)}° start {self.start}"


def shapes() -> dict[str, Any]:
    """What a page needs to draw a board."""
    return {
        "size": BOARD_SIZE,
        "fps": FPS,
        "solved": SOLVED,
        "done": DONE,
        "max_start": MAX_START,
        "max_steps": MAX_STEPS,
        "disc_radius": DISC_RADIUS,
        "triangle": TRIANGLE.tolist(),
        "blocks": {
            name: {"outline": block.outline.tolist(), "symmetry": block.symmetry}
            for name, block in BLOCKS.items()
        },
    }


def moment(env: PushTEnv) -> dict[str, Any]:
    """The current poses and coverage, as small JSON."""
    x, y, bx, by, angle = env.state()[:5].tolist()
    return {
        "pusher": [round(x, 2), round(y, 2)],
        "block": [round(bx, 2), round(by, 2), round(angle, 4)],
        "coverage": round(env.coverage(), 4),
    }
