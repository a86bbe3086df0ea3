"""Collects demonstrations in several processes; a separate module, so that these need not load torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TypeAlias

from recap.types import Episode
from recap.workers import run_in_workers
from recap_worlds.pusht.collecting import CollectSpec, demonstrations

Progress: TypeAlias = Callable[[int, int], None]


def collect(spec: CollectSpec, workers: int, progress: Progress) -> list[Episode]:
    """Collect the demonstrations in several processes; returns them in order."""
    demos = spec.demos()
    found: dict[int, Episode] = {}
    progress(0, len(demos))
    with closing(run_in_workers(partial(demonstrations, spec), demos, workers)) as made:
        for index, episode in made:
            found[index] = episode
            progress(len(found), len(demos))
    return [found[demo.index] for demo in demos]
