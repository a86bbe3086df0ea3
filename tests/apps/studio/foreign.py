"""Demonstrations of an arm unknown to the studio: two cameras of different size, no object poses."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from recap.pool.store import Pool
from recap.types import Episode
from robots.one_arm import OneArmEnv, expert
from robots.recording import record_many, to_lerobot

HOSTILE = '<img src=x onerror="window.broken=1"><b>&amp;'


@cache
def demonstrations() -> tuple[Episode, ...]:
    """Two tasks in three scenes."""
    env = OneArmEnv("pool")
    return tuple(record_many(env, expert, ("lift", "press"), range(3), "gripper"))


def dataset(path: Path, episodes: Sequence[Episode] | None = None) -> Path:
    """Writes the demonstrations as a LeRobot dataset."""
    to_lerobot(episodes or demonstrations(), path)
    return path


def pool(path: Path, episodes: Sequence[Episode] | None = None) -> Path:
    """Writes the demonstrations as a pool."""
    Pool.create(path).add(list(episodes or demonstrations()))
    return path
