"""Included PushT pools: they store poses only, and camera frames are drawn on demand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recap.pool.memory import EpisodeView
from recap.pool.packed import PackedPool
from recap.types import Episode
from recap_worlds.pusht.pushers import PUSHERS
from recap_worlds.pusht.rendering import RenderedFrames
from recap_worlds.pusht.robot import IMAGE_SIZE

# name -> content; written by `python research/scripts/build_standard_pools.py`.
STANDARD_POOLS = {
    "pusht-9x100": "the disc at 9 goals, -60 to 60 degrees by 15, 100 demonstrations each",
    "pusht-triangle": "the triangle at -45 and +45 degrees, 100 each, from the scenes of pusht-9x100",
    "pusht-25x40": "the disc at 25 goals, -60 to 60 degrees by 5, 40 demonstrations each",
}
ASSETS = Path(__file__).parents[1] / "assets"


class StandardPool(EpisodeView):
    """A packed pool of poses whose camera frames are drawn on demand."""

    def __init__(self, packed: PackedPool) -> None:
        super().__init__(packed.version, packed.episode_ids)
        self._packed = packed
        self._episodes: dict[str, Episode] = {}

    def episode(self, episode_id: str) -> Episode:
        """One episode."""
        if episode_id not in self._episodes:
            bare = self._packed.episode(episode_id)
            self._episodes[episode_id] = replace(bare, images={"top": RenderedFrames(bare, IMAGE_SIZE)})
        return self._episodes[episode_id]


def open_standard(name: str) -> StandardPool:
    """Open an included pool."""
    return StandardPool(PackedPool.open(ASSETS / f"{name}.safetensors"))


def can_be_drawn(packed: PackedPool) -> bool:
    """True if the pool is of PushT and was packed without images."""
    if not packed.episode_ids:
        return False
    first = packed.episode(packed.episode_ids[0])
    return not first.images and is_drawable(first)


def is_drawable(episode: Episode) -> bool:
    """True if it is of PushT, so that frames can be drawn from its poses."""
    return "block" in episode.objects and episode.goal is not None and episode.embodiment in PUSHERS
