"""Shipped demonstrations for a pool that is still empty."""

from __future__ import annotations

from recap.errors import InputError
from recap.pool.opening import open_pool
from recap.pool.store import Pool
from recap_apps.studio.task import Task

SHIPPED = "pusht-9x100"  # of the block tee
BLOCK = "tee"
N_EXAMPLES = 20


def add_examples(pool: Pool, task: Task) -> int:
    """Add the shipped demonstrations with goals nearest to the task's; returns the version."""
    if task.block != BLOCK:
        raise InputError(f"the examples are of block {BLOCK}: choose it, or teach {task.block} yourself")
    view = open_pool(SHIPPED).view()
    episodes = [view.episode(name) for name in view.episode_ids]

    def away(angle: object) -> float:
        turn = (float(angle) - task.angle) % 360 if isinstance(angle, int | float) else 360.0
        return min(turn, 360 - turn)

    episodes.sort(key=lambda episode: away(episode.attributes.get("goal_angle")))
    return pool.add(episodes[:N_EXAMPLES], skip_existing=True)
