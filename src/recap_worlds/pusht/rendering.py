"""Images of recorded PushT episodes, drawn on demand."""

from __future__ import annotations

import numpy as np

from recap.errors import InputError
from recap.geometry import transform_points
from recap.lazy import LazySequence
from recap.types import F32, U8, Episode
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.drawing import draw_background, draw_board
from recap_worlds.pusht.pushers import TRIANGLE, pusher_named
from recap_worlds.pusht.shapes import DISC_RADIUS


class RenderedFrames(LazySequence[U8]):
    """An episode's camera frames, drawn from its poses as the environment would have rendered them."""

    def __init__(self, episode: Episode, size: int) -> None:
        if episode.goal is None or "block" not in episode.objects:
            raise InputError(f"episode {episode.id} cannot be drawn: it has no block or no goal")
        self._episode, self._size = episode, size
        self._shape = block_named(str(episode.attributes.get("block", "tee")))
        self._pusher = pusher_named(episode.embodiment)
        self._background: F32 | None = None

    def __len__(self) -> int:
        return len(self._episode)

    def _item(self, number: int) -> U8:
        return self._draw(number)

    def _draw(self, t: int) -> U8:
        episode = self._episode
        assert episode.goal is not None
        if self._background is None:
            goal = transform_points(episode.goal.astype(np.float64), self._shape.parts)
            self._background = draw_background(self._size, goal)
        block = transform_points(episode.objects["block"][t].astype(np.float64), self._shape.parts)
        center = episode.proprio[t : t + 1, :2].astype(np.float64)
        outline = center if self._pusher == "disc" else TRIANGLE + center
        return draw_board(self._background, block, self._pusher, outline, DISC_RADIUS)
