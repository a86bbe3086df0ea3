"""A few demonstrations of two arms to try a training; collected on first use and cached."""

from __future__ import annotations

import os
from pathlib import Path

from recap import __version__
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed

TASK, SEEDS, PX = "move_can_pot", range(100_000, 100_006), 64
DEBUG_POOLS = {"dualarm-debug-viperx": "viperx", "dualarm-debug-ur5e": "ur5e"}  # name -> robot


def open_debug(name: str) -> PackedPool:
    """Open a debug pool."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    file = Path(base) / "recap" / "pools" / f"{name}-{__version__}.safetensors"
    if not file.exists():
        from recap_worlds.dualarm.collection import demonstrate

        episodes = [demonstrate(TASK, DEBUG_POOLS[name], seed, PX) for seed in SEEDS]
        write_packed(MemoryView(episodes), file, films=False)
    return PackedPool.open(file)
