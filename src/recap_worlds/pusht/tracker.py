"""Tracks poses of block and goal from images during an episode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recap.types import Observation

if TYPE_CHECKING:
    from recap_worlds.pusht.vision import Seen


class PoseTracker:
    """Replaces all poses by those of block and goal in the image, tracked from the previous frame."""

    def __init__(self, block: str, pusher: str | None = None) -> None:
        self.block, self.pusher = block, pusher
        self._seen: Seen | None = None

    def estimate(self, observation: Observation) -> Observation:
        """The observation with the poses found in its first camera image; others are left out."""
        from recap_worlds.pusht.vision import look

        image = next(iter(observation.images.values()))
        seen = self._seen = look(image, self.block, self.pusher, self._seen)
        objects = {} if seen.block is None else {"block": seen.block}
        return replace(observation, objects=objects, goal=seen.goal)
