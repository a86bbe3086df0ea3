"""Demonstrations made in parallel, kept one by one, and put together as a dataset at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recap.errors import RunDirectoryError
from recap.run_directory import hold_run_directory
from recap.types import Episode
from recap.workers import run_in_workers


class Numbered(Protocol):
    """One demonstration to make."""

    @property
    def index(self) -> int: ...


Demo = TypeVar("Demo", bound=Numbered)


def collect_staged(
    config: Mapping[str, Any],
    demos: Sequence[Demo],
    work: Callable[[Path, Iterator[Demo]], Iterator[int]],
    out: Path,
    staged: Callable[[Path], set[int]],
    assemble: Callable[[Path, int, Path], None],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Make what is missing and write the dataset `out`; the same call resumes after a stop.

    Until all is there it lies in `out`.partial, each demonstration whole or absent. `work` stages the
    demonstrations that it is given in that directory and yields their indices; `staged` finds those that are
    whole there, and `assemble` makes so many of them the dataset.
    """
    if out.exists():
        raise RunDirectoryError(f"output {out} exists already: give another --out, or remove it first")
    staging = out.with_name(out.name + ".partial")
    report = progress or (lambda done, total: None)
    with hold_run_directory(staging, config):  # from here on it is ours, to keep or to remove
        done = staged(staging)
        missing = [demo for demo in demos if demo.index not in done]
        report(len(done), len(demos))
        try:
            with closing(run_in_workers(partial(work, staging), missing, workers)) as indices:
                for index in indices:
                    done.add(index)
                    report(len(done), len(demos))
            assemble(staging, len(demos), out)
            shutil.rmtree(staging)
        except KeyboardInterrupt:
            kept = f"{len(done)} of {len(demos)} demonstrations are done"
            kept += f" and kept in {staging}" if staged(staging) else ", so nothing is kept"
            raise KeyboardInterrupt(f"stopped: {kept}; the same command resumes") from None
        finally:
            if staging.exists() and not staged(staging):
                shutil.rmtree(staging, ignore_errors=True)


def collect_lerobot(
    config: Mapping[str, Any],
    demos: Sequence[Demo],
    demonstrate: Callable[[Iterator[Demo]], Iterator[tuple[int, Episode]]],
    out: Path,
    robot_type: str,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """The same for a LeRobot dataset; `demonstrate` makes the demonstrations that it is given."""
    from recap.pool.lerobot import assemble, staged_indices  # PyAV, which demonstrating can do without

    work = partial(_stage_lerobot, demonstrate)
    whole = partial(assemble, robot_type=robot_type)
    collect_staged(config, demos, work, out, staged_indices, whole, workers=workers, progress=progress)


def _stage_lerobot(
    demonstrate: Callable[[Iterator[Demo]], Iterator[tuple[int, Episode]]],
    staging: Path,
    demos: Iterator[Demo],
) -> Iterator[int]:
    from recap.pool.lerobot import stage_episode

    for index, episode in demonstrate(demos):
        stage_episode(staging, index, episode)
        yield index
