"""Collects demonstrations in parallel, stages them one by one and assembles a dataset at the end."""

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
    """A demonstration to collect."""

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
    """Collect missing demonstrations and write the dataset `out`; the same call resumes after a stop.

    Until all are done they are kept in `out`.partial; an incomplete one counts as missing. `work` stages the
    given demonstrations there and yields their indices, `staged` returns the indices of complete ones, and
    `assemble` writes the dataset.
    """
    if out.exists():
        raise RunDirectoryError(f"output {out} exists already: give another --out, or remove it first")
    staging = out.with_name(out.name + ".partial")
    report = progress or (lambda done, total: None)
    with hold_run_directory(staging, config):  # from here on the folder is locked by this process
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
    """The same for a LeRobot dataset; `demonstrate` yields the given demonstrations."""
    from recap.pool.lerobot import assemble, staged_indices  # imports PyAV, which demonstrating does not need

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
