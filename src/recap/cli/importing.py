"""`recap pool inspect` and `recap pool follow`."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.pool_look import opened
from recap.errors import InputError

if TYPE_CHECKING:
    from recap.pool.importers import Source
    from recap.pool.store import Pool
    from recap.types import Episode

# A comma separates two mappings only if a field name follows, so that a task may contain commas.
_COMMA = re.compile(
    r",\s*(?=(?:proprio|action|goal|task|embodiment|action_space|object:[^=,]*|image:[^=,]*)\s*=)"
)


def parse_mapping(texts: Sequence[str]) -> dict[str, str]:
    """Parse `field=key` texts, each with one or more mappings separated by commas, as field -> key."""
    mapping: dict[str, str] = {}
    for item in (item for text in texts for item in _COMMA.split(text)):
        field, equals, value = (part.strip() for part in item.strip().rstrip(",").partition("="))
        if not equals or not field or not value:
            raise InputError(
                f"cannot read the mapping '{item.strip()[:200]}': write FIELD=KEY, as in action=actions"
            )
        if field in mapping:
            raise InputError(f"'{field[:200]}' is mapped twice: give it once")
        mapping[field] = value
    return mapping


def read_as(maps: Sequence[str], format_: str | None, fps: float | None) -> str:
    """The options for reading a dataset, as text for the suggested next command."""
    words = [f" --map {shlex.quote(text)}" for text in maps]
    words += [] if format_ is None else [f" --format {format_}"]
    return "".join([*words, *([] if fps is None else [f" --fps {fps:g}"])])


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--map", "maps", multiple=True, metavar="FIELD=KEY", help="Where a field comes from; repeatable."
)
@click.option("--format", "format_", metavar="NAME", help="Format of SOURCE, such as lerobot or egodex.")
@click.option("--fps", type=float, metavar="HZ", help="Frame rate, if the source does not store it.")
@click.option("--skip-damaged", is_flag=True, help="Count damaged episodes as warnings, as pool add would.")
def inspect(
    source: Path, maps: tuple[str, ...], format_: str | None, fps: float | None, skip_damaged: bool
) -> int:
    """Show what importing SOURCE would do; nothing is written.

    The output lists the contents of the source, how they are imported, and errors and warnings. FIELD is
    proprio, action, goal, object:NAME, image:NAME, task, embodiment or action_space. KEY may be KEY[0:3], a
    sum KEY+KEY, KEY@wxyz (or @xyzw) for a quaternion, or next:KEY for the value of the next frame. The exit
    code is 1 if there are errors.

    \b
    Example:
      recap pool inspect lift.hdf5 --map "proprio=obs/robot0_eef_pos" --map "task=lift the cube"
    """
    from recap.cli.pool_look import print_rows
    from recap.cli.terminal import progress_bar
    from recap.pool.importers import open_source
    from recap.pool.importers.checks import check_dataset, damage_findings

    opened = open_source(source, format=format_, mapping=parse_mapping(maps), fps=fps, skip_damaged=True)
    report = opened.describe()
    with progress_bar("episodes") as progress:
        findings = check_dataset(_counted(opened, progress))
        findings = damage_findings(opened.damage, skip_damaged) + findings
    click.echo(f"Source: {source} ({opened.format})")
    keys = []
    for key in report.keys:
        names = ", ".join(field.name for field in report.fields if key.name in field.keys)
        keys.append((key.name, _shape(key.shape), key.dtype, names or "-"))
    print_rows(("source key", "shape", "type", "becomes"), keys, 0)
    click.echo()
    fields = [(field.name, _shape(field.shape), field.dtype, field.origin) for field in report.fields]
    print_rows(("our field", "shape", "type", "comes from"), fields, 0)
    lengths, first = report.lengths, report.first
    words = f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} frames, {sum(lengths)} in all"
    task = f"'{first.task}'" if first.task else "none"
    click.echo(f"\n{words}, at {first.fps:.4g} fps; embodiment {first.embodiment}; first task: {task}")
    for finding in findings:
        click.echo(str(finding))
    if any(finding.severity == "error" for finding in findings):
        click.echo("Next: fix the errors, in the source or with --map; an import would be refused")
        return 1
    click.echo("Findings: none" if not findings else "Warnings do not stop an import")
    same = f"{source}{read_as(maps, format_, fps)}" + (" --skip-damaged" if opened.damage else "")
    described = f"recap init {source}{read_as(maps, format_, fps)} --out robot.yaml describes the robot"
    click.echo(f"Next: {described}; recap pool add POOL {same} adds these")
    return 0


def _counted(source: Source, progress: Callable[[int, int], None]) -> Iterator[Episode]:
    for done, episode in enumerate(source, 1):
        yield episode
        progress(done, len(source))


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "-"


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--map", "maps", multiple=True, metavar="FIELD=KEY", help="Where a field comes from.")
@click.option("--robot", metavar="FILE", help="robot.yaml of the recorded robot.  [default: the pool's]")
@click.option("--every", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Interval, s.")
@click.option("--once", is_flag=True, help="Add what is there, then exit.")
def follow(uri: str, dataset: Path, maps: Sequence[str], robot: str | None, every: float, once: bool) -> None:
    """Add recordings to a pool while a dataset grows; Ctrl-C ends it.

    DATASET is a LeRobot folder that is being recorded and need not exist yet. If the recording marks when a
    person drove (column `intervention` of LeRobot's dagger strategy), each intervention is added as a
    correction and the policy's own actions are not; other recordings are added whole. Only complete files are
    read. A running server uses additions from its next reply on.

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
    """Call `look` after every change; an error, such as an unfinished episode, is printed once."""
    from recap.errors import RecapError

    stamp: object = ()
    last_error = ""
    while True:
        now = _stamp(dataset)
        if now != stamp:
            stamp = now
            try:
                look()
                last_error = ""
            except RecapError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    click.echo(f"Waiting: {last_error}", err=True)
        time.sleep(every)


def _stamp(dataset: Path) -> tuple[tuple[str, int, int], ...]:
    """Sizes and times of the metadata files, which change when an episode is written."""
    found = []
    for file in sorted(dataset.glob("meta/**/*")):
        try:
            stat = file.stat()
        except FileNotFoundError:  # it was just replaced
            continue
        found.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def _add_new(store: Pool, source: Source, done: set[int]) -> Iterator[str]:
    """Add each newly complete episode; yields a line for each."""
    from recap.errors import InputError, RecapError
    from recap.pool.importers.checks import check_dataset
    from recap.pool.importers.interventions import INTERVENTION, demonstrations_in
    from recap.pool.importers.resample import resample

    damaged = {damage.episode for damage in source.damage}
    for number in sorted(set(range(len(source))) - done - damaged):
        episodes = demonstrations_in(source, number)
        done.add(number)  # complete: later attempts would give the same errors
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
