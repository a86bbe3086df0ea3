"""`recap pool follow`: what is recorded comes into the pool while it is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.importing import parse_mapping
from recap.cli.pool_look import opened

if TYPE_CHECKING:
    from recap.pool.importers import Source
    from recap.pool.store import Pool


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--map", "maps", multiple=True, metavar="FIELD=KEY", help="Where a field comes from.")
@click.option("--robot", metavar="FILE", help="robot.yaml of who is recorded.  [default: the pool's]")
@click.option("--every", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Look so often, s.")
@click.option("--once", is_flag=True, help="Add what is there, and end.")
def follow(uri: str, dataset: Path, maps: Sequence[str], robot: str | None, every: float, once: bool) -> None:
    """Add what is recorded to a pool while a dataset grows; Ctrl-C ends it.

    DATASET is a LeRobot folder that someone writes, and need not exist yet. Of recordings that say when a
    person drove (the column `intervention` of LeRobot's dagger strategy) each intervention is added as a
    correction, and what the policy did is not; other recordings are added whole. Only what is completely
    written is read. A running server uses it from its next reply on.

    \b
    Example:
      recap pool follow pools/mine data/rollout_kitchen
    """
    from recap.cli.pool import transform_of
    from recap.pool.importers import open_source

    store, mapping = opened(uri), parse_mapping(maps)
    transform = transform_of(store, robot)
    done: set[int] = set()

    def look() -> None:
        source = open_source(dataset, mapping=mapping, transform=transform, skip_damaged=True)
        for line in _add_new(store, source, done):
            click.echo(line)

    if once:
        look()
    else:
        click.echo(f"Following {dataset} into {uri}; Ctrl-C ends")
        with suppress(KeyboardInterrupt):
            _whenever_it_grows(dataset, look, every)
    click.echo(f"Pool: version {store.version} has {len(store)} demonstrations")


def _whenever_it_grows(dataset: Path, look: Callable[[], None], every: float) -> None:
    """Look again after every change; half of an episode is waited for."""
    from recap.errors import RecapError

    stamp: object = ()
    said = ""
    while True:
        now = _stamp(dataset)
        if now != stamp:
            stamp = now
            try:
                look()
                said = ""
            except RecapError as error:
                if str(error) != said:
                    said = str(error)
                    click.echo(f"Waiting: {said}", err=True)
        time.sleep(every)


def _stamp(dataset: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when an episode is written."""
    found = []
    for file in sorted(dataset.glob("meta/**/*")):
        try:
            stat = file.stat()
        except FileNotFoundError:  # replaced just now
            continue
        found.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def _add_new(store: Pool, source: Source, done: set[int]) -> Iterator[str]:
    """Add each episode that has become whole since; a line for each."""
    from recap.errors import InputError, RecapError
    from recap.pool.importers.checks import check_dataset
    from recap.pool.importers.interventions import INTERVENTION, shown_in
    from recap.pool.importers.resample import resample

    damaged = {damage.episode for damage in source.damage}
    for number in sorted(set(range(len(source))) - done - damaged):
        episodes = shown_in(source, number)
        done.add(number)  # from here on what is wrong with it stays wrong
        try:
            fps = next((episode.fps for episode in store), None)
            episodes = [episode if fps is None else resample(episode, fps) for episode in episodes]
            errors = [finding for finding in check_dataset(episodes) if finding.severity == "error"]
            if episodes and errors:
                raise InputError(str(errors[0]))
            n_added = store.add_missing(episodes)
        except RecapError as error:
            yield f"Not added, episode {number}: {error}"
            continue
        corrected = source.has_column(INTERVENTION)
        what = f"{len(episodes)} corrections" if corrected else "a whole demonstration"
        there = "" if n_added else ", which the pool had" if episodes else ""
        yield f"Episode {number}: {what}{there}; version {store.version}"
