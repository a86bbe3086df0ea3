"""Pools by name or place: those that come with the package, packed snapshots, and live ones."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from recap import __version__
from recap.envs.pusht.pushers import PUSHERS
from recap.envs.pusht.rendering import RenderedFrames
from recap.errors import InputError, did_you_mean
from recap.pool.derived import assemble, describe
from recap.pool.packed import PackedPool, write_packed
from recap.pool.view import Describer, PoolSource
from recap.types import Descriptors, Episode

IMAGE_SIZE = 96

# name -> what is in it; `python scripts/build_standard_pools.py` makes them anew.
STANDARD_POOLS = {
    "pusht-9x100": "the disc at 9 goals, -60 to 60 degrees by 15, 100 demonstrations each",
    "pusht-triangle": "the triangle at -45 and +45 degrees, 100 each, from the scenes of pusht-9x100",
    "pusht-25x40": "the disc at 25 goals, -60 to 60 degrees by 5, 40 demonstrations each",
}
DEFAULT = "pusht-9x100"

# Of two arms there are only these: pictures of them are too large to ship. Collected when first asked for.
DEBUG_TASK, DEBUG_SEEDS, DEBUG_PX = "move_can_pot", range(100_000, 100_006), 64
DEBUG_POOLS = {"dualarm-debug-viperx": "viperx", "dualarm-debug-ur5e": "ur5e"}  # name -> robot
POOL_NAMES = (*STANDARD_POOLS, *DEBUG_POOLS)


class StandardPool:
    """A packed pool of poses whose camera frames are drawn when they are looked at."""

    def __init__(self, packed: PackedPool) -> None:
        self._packed = packed
        self.version = packed.version
        self.episode_ids = packed.episode_ids
        self._episodes: dict[str, Episode] = {}
        self._descriptors: dict[str, Descriptors] = {}

    def view(self) -> StandardPool:
        """Itself: it never changes."""
        return self

    def episode(self, episode_id: str) -> Episode:
        """One of them."""
        if episode_id not in self._episodes:
            bare = self._packed.episode(episode_id)
            self._episodes[episode_id] = replace(bare, images={"top": RenderedFrames(bare, IMAGE_SIZE)})
        return self._episodes[episode_id]

    def descriptors(self, describer: Describer) -> Descriptors:
        """Every frame described, drawn for it where the describer looks at images."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            rows = [describe(describer, self.episode(name)) for name in self.episode_ids]
            self._descriptors[fingerprint] = assemble(describer, self.episode_ids, rows)
        return self._descriptors[fingerprint]


def open_pool(uri: str | None) -> PoolSource:
    """A standard pool by name (the default without one), a `.safetensors` snapshot, or a live pool."""
    name = DEFAULT if uri is None else uri
    if name in STANDARD_POOLS:
        return StandardPool(PackedPool.open(Path(str(files("recap") / "assets" / f"{name}.safetensors"))))
    if name in DEBUG_POOLS:
        return PackedPool.open(_collected(name))
    if name.endswith(".safetensors"):
        packed = PackedPool.open(Path(name))
        return StandardPool(packed) if _can_be_drawn(packed) else packed
    if "/" not in name and not Path(name).exists():
        raise InputError(f"there is no pool '{name}': {did_you_mean(name, POOL_NAMES)}, or give a path")
    from recap.pool.store import Pool

    return Pool.open(name)


def _collected(name: str) -> Path:
    """A few demonstrations of two arms, to try a training out: made in seconds, and kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    file = Path(base) / "recap" / "pools" / f"{name}-{__version__}.safetensors"
    if not file.exists():
        from recap.envs.dualarm.collection import demonstrate
        from recap.pool.memory import MemoryView

        robot = DEBUG_POOLS[name]
        episodes = [demonstrate(DEBUG_TASK, robot, seed, DEBUG_PX) for seed in DEBUG_SEEDS]
        write_packed(MemoryView(episodes), file, films=False)
    return file


def _can_be_drawn(packed: PackedPool) -> bool:
    """Whether it is of PushT and was packed without its pictures."""
    if not packed.episode_ids:
        return False
    first = packed.episode(packed.episode_ids[0])
    return not first.images and "block" in first.objects and first.embodiment in PUSHERS
