"""The demonstrations of a plan: collected once, poses only, drawn when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from recap.collection import CollectSpec, Demo, demonstrate
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.types import Episode
from recap.workers import run_in_workers


def collect_pool(spec: CollectSpec, file: Path, workers: int) -> bool:
    """Collect them into a snapshot, unless it is there; whether anything was done."""
    if file.exists():
        return False
    found = run_in_workers(partial(_demonstrate, spec), spec.demos(), workers)
    episodes = [episode for _, episode in sorted(found, key=lambda pair: pair[0])]
    pack(episodes, file)
    return True


def pack(episodes: Sequence[Episode], file: Path) -> None:
    """A snapshot without pictures."""
    write_packed(MemoryView([replace(e, images={}) for e in episodes]), file, images=False)


def seconds_of(episodes: Sequence[Episode]) -> float:
    """How long they are together."""
    return float(sum(len(episode) / episode.fps for episode in episodes))


def _demonstrate(spec: CollectSpec, demos: Iterator[Demo]) -> Iterator[tuple[int, Episode]]:
    for demo in demos:
        yield demo.index, demonstrate(spec, demo)
