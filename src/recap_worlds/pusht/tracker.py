"""Poses from pixels in one running episode: block and goal, frame after frame."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recap.types import Observation

if TYPE_CHECKING:
    from recap_worlds.pusht.vision import Seen


class PoseTracker:
    """Finds block and goal and puts them in place of any pose; it follows what it saw the frame before."""

    def __init__(self, block: str, pusher: str | None = None) -> None:
        self.block, self.pusher = block, pusher
        self._seen: Seen | None = None

    def estimate(self, observation: Observation) -> Observation:
        """The observation with the poses that its first camera shows; what is not found is left out."""
        from recap_worlds.pusht.vision import look

        image = next(iter(observation.images.values()))
        seen = self._seen = look(image, self.block, self.pusher, self._seen)
        objects = {} if seen.block is None else {"block": seen.block}
        return replace(observation, objects=objects, goal=seen.goal)
