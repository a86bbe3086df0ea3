"""The demonstrations of a sweep: collected or selected once, without images, which are rendered on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recap.errors import InputError
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.training.data import demonstrations, spread, where
from recap.types import Episode
from recap.workers import run_in_workers

if TYPE_CHECKING:
    from recap_worlds.pusht.collecting import CollectSpec, Demo


@dataclass(frozen=True)
class Selection:
    """A selection from an existing pool."""

    of: str  # an included pool, or a snapshot
    n: int = 0  # evenly spaced over goals and scenes; 0: all
    where: tuple[str, ...] = ()  # any of these conditions holds, such as goal_angle=45; empty: all

    def __post_init__(self) -> None:
        if self.n < 0:
            raise InputError(f"{self.n} demonstrations cannot be chosen: give 1 or more, or 0 for all")


def collect_pools(specs: Mapping[str, CollectSpec | Selection], folder: Path, workers: int) -> list[str]:
    """Collect missing demonstrations into snapshots, with one set of processes; returns their names."""
    missing = {name: spec for name, spec in specs.items() if not _file(folder, name).exists()}
    collected = {name: spec for name, spec in missing.items() if not isinstance(spec, Selection)}
    items = [(name, spec, demo) for name, spec in collected.items() for demo in spec.demos()]
    found: dict[str, dict[int, Episode]] = {name: {} for name in collected}
    for name, number, episode in run_in_workers(_demonstrate, items, workers):
        found[name][number] = episode
    for name, episodes in found.items():
        pack([episodes[number] for number in sorted(episodes)], _file(folder, name))
    for name, spec in missing.items():
        if isinstance(spec, Selection):
            pack(spread(where(demonstrations(spec.of), spec.where), spec.n), _file(folder, name))
    return list(missing)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def pack(episodes: Sequence[Episode], file: Path) -> None:
    """Write a snapshot without images."""
    write_packed(MemoryView([replace(e, images={}) for e in episodes]), file, images=False)


def seconds_of(episodes: Sequence[Episode]) -> float:
    """The total duration of the episodes."""
    return float(sum(len(episode) / episode.fps for episode in episodes))


def _demonstrate(items: Iterator[tuple[str, CollectSpec, Demo]]) -> Iterator[tuple[str, int, Episode]]:
    for name, spec, demo in items:
        from recap_worlds.pusht.collecting import demonstrate  # other worlds do not need its simulator

        yield name, demo.index, demonstrate(spec, demo)
