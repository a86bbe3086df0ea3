"""Shared by several PushT sweeps: seeds, goals, and pools of several sizes."""

from __future__ import annotations

from recap_research.sweep.pools import Selection
from recap_research.sweep.sweep import Sweep
from recap_worlds.pusht.collecting import CollectSpec

HEADLINE = range(42, 92)
SHORT = range(42, 62)  # the first of the evaluation starts
FRESH = range(2000, 2050)  # used for nothing else
ANGLES = (-60.0, -45.0, -30.0, -15.0, 0.0, 15.0, 30.0, 45.0, 60.0)
UNSEEN = ("-60", "-30", "-15", "0", "+15", "+30", "+60")
LETTERS = {"tee": "T", "ell": "L"}
WORLD = ("policy.retrieval_name=pusht-world", "policy.canonical=false")
ALONE = ("policy.residual=false", "policy.retrieval=false")


def collected(
    pusher: str,
    angles: tuple[float, ...],
    per_angle: int,
    block: str = "tee",
    seed: int = 100_000,
    speed: float = 1.0,
) -> CollectSpec:
    """Demonstrations without images."""
    return CollectSpec(pusher, angles, per_angle, block=block, first_seed=seed, speed=speed, image_size=0)


def pools_by_size(sweep: Sweep, block: str) -> dict[int, str | None]:
    """Pools of 10 to 900 disc demonstrations of the T or another block, evenly spaced over goals."""
    if block == "tee":
        whole, file = "pusht-9x100", None  # the included pool
    else:
        whole = file = sweep.pool(f"{block}-900", collected("disc", ANGLES, 100, block))
    return {**{n: sweep.pool(f"{block}-{n}", Selection(whole, n)) for n in (10, 50, 200)}, 900: file}
