"""`recap pool`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.blaming import blame, quarantine
from recap.cli.exporting import export
from recap.cli.importing import follow, inspect, parse_mapping
from recap.cli.indexing import index, reading
from recap.cli.pool_look import diff, list_, opened, print_rows, show, stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recap.pool.store import Pool
    from recap.types import Episode


@click.group()
def pool() -> None:
    """Manage a pool of demonstrations: add, inspect, tag, undo, verify, pack.

    POOL is a directory or s3://bucket/name (keys and endpoint from the AWS_ variables). Every change makes a
    new version; old ones stay.

    \b
    Example:
      recap pool create pools/mine
      recap pool add pools/mine data/disc
      recap pool ls pools/mine
    """


for _command in (blame, diff, export, follow, index, inspect, list_, quarantine, show, stats):
    pool.add_command(_command)


@pool.command()
@click.argument("uri", metavar="POOL")
@click.option("--robot", metavar="FILE", help="robot.yaml.  [default: the first dataset sets the layout]")
def create(uri: str, robot: str | None) -> None:
    """Create an empty pool.

    \b
    Example:
      recap pool create pools/mine
      recap pool create pools/arm --robot robot.yaml
    """
    from recap.pool.store import Pool
    from recap.robot import load_robot

    Pool.create(uri, robot=None if robot is None else load_robot(Path(robot)))
    click.echo(f"Pool: {uri}")
    click.echo(f"Next: recap pool add {uri} DATASET")


@pool.command()
@click.argument("uri", metavar="POOL")
@click.argument("datasets", nargs=-1, required=True, metavar="DATASET...", type=click.Path(path_type=Path))
@click.option("--format", "format_", metavar="NAME", help="Format of DATASET.  [default: recognised]")
@click.option("--map", "maps", multiple=True, metavar="FIELD=KEY", help="Where a field comes from.")
@click.option(
    "--robot",
    metavar="FILE",
    help="robot.yaml of the recorded robot; its joints are converted to tool poses.  [default: the pool's]",
)
@click.option("--fps", type=float, help="Frame rate, if the dataset does not store it.")
@click.option("--rate", type=float, metavar="FPS", help="Resample to this rate.  [default: the pool's]")
@click.option("--image-size", type=int, metavar="PX", help="Resize to a square.  [default: as they are]")
@click.option("--pair-by", default="scene", show_default=True, metavar="RULE", help="RULE: see above.")
@click.option("--skip-damaged", is_flag=True, help="Skip episodes that cannot be read, and list them.")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Encode films on a Ray cluster.")
def add(
    uri: str,
    datasets: Sequence[Path],
    format_: str | None,
    maps: Sequence[str],
    robot: str | None,
    fps: float | None,
    rate: float | None,
    image_size: int | None,
    pair_by: str,
    skip_damaged: bool,
    ray_address: str | None,
) -> None:
    """Add the demonstrations of datasets that are not yet in the pool.

    DATASET is a LeRobot folder (v2.0, v2.1, v3), its name on the hub (ORG/NAME[@REVISION]), or another
    supported format. Each dataset is checked completely before anything is written. To resume an interrupted
    import, repeat the command. Recordings at another rate than the pool's are resampled. Joints are converted
    to tool poses if the robot description has kinematics; use --robot if another robot than the pool's was
    recorded.

    RULE says which demonstrations are of the same scene: scene (their own ids), order (the i-th of a task),
    column:NAME (equal values) or FILE.csv (a table episode,scene).

    With --ray, the nodes of a cluster encode the videos, which is most of the work; numbers are read and
    checked locally. Every node must reach the pool and DATASET by the same path or address, and have the same
    version of recap. Object-store keys are not sent: start each node (`ray start`) with the AWS_ variables
    that it needs.

    \b
    Example:
      recap pool add pools/mine data/disc
      recap pool add pools/mine data/tasks/*
      recap pool add pools/mine data/other_arm --robot other_arm.yaml
      recap pool add pools/mine data/arm --pair-by order --skip-damaged
      recap pool add s3://bucket/pool /shared/arm --ray 10.0.0.1:6379
    """
    from itertools import islice

    from recap.cli.terminal import progress_bar
    from recap.compatible import foreign_joints_warning
    from recap.errors import InputError
    from recap.on_ray import check_cluster
    from recap.pool.importers import local_path, open_source
    from recap.pool.importers.checks import check_dataset, damage_findings
    from recap.pool.importers.pairing import check_rule, column_of, paired
    from recap.pool.importers.resample import fitted

    if ray_address is not None:
        check_cluster(ray_address)  # refuse before anything is read
    column, store, mapping = column_of(check_rule(pair_by)), opened(uri), parse_mapping(maps)
    for dataset in datasets:
        with progress_bar("reading") as progress:
            source = open_source(
                dataset,
                format=format_,
                mapping=mapping,
                fps=fps,
                transform=transform_of(store, robot),
                skip_damaged=True,
                column=column,
            )
            episodes = []
            for episode in source:
                episodes.append(episode)
                progress(len(episodes), len(source))
            findings = damage_findings(source.damage, skip_damaged) + check_dataset(episodes)
        for finding in findings:
            click.echo(str(finding), err=True)
        n_errors = sum(finding.severity == "error" for finding in findings)
        if n_errors:
            raise InputError(
                f"{dataset} was not added: errors: {n_errors}; recap pool inspect {dataset} shows more"
            )
        own = store.view().robot
        first = {episode.embodiment for episode in islice(store, 1)}
        others = "" if own is None else foreign_joints_warning(own, first | {e.embodiment for e in episodes})
        if others:
            click.echo(f"warning: {others}", err=True)
        episodes = list(paired(episodes, pair_by))
        wanted = rate or next((episode.fps for episode in store), None)
        n_other = sum(wanted is not None and episode.fps != wanted for episode in episodes)
        wanted = wanted if n_other else None
        episodes = [fitted(episode, wanted, image_size) for episode in episodes]
        if n_other:
            click.echo(f"Resampled {n_other} episodes to {wanted:g} frames a second")
        encode = None
        if ray_address is not None:
            from recap.pool.importers.on_nodes import Reading, films_by_nodes

            place = store.uri, local_path(dataset).resolve(), source.format
            how = Reading(*place, mapping, fps, wanted, image_size)
            damaged = {damage.episode for damage in source.damage}
            sound = (number for number in range(len(source)) if number not in damaged)
            numbers = {episode.id: number for episode, number in zip(episodes, sound, strict=True)}
            encode = partial(films_by_nodes, store.files, how, numbers, ray_address)
        with progress_bar("episodes") as progress:
            n_added = store.add_missing(episodes, progress, encode)
        there = f" ({len(episodes) - n_added} were there)" if n_added < len(episodes) else ""
        click.echo(f"Added {n_added} episodes{there}: version {store.version} has {len(store)}")
        if source.damage:
            click.echo(f"Left out as damaged: {len(source.damage)}, named above")
    click.echo(f"Next: recap pool ls {uri} lists them; recap check TARGET {uri} says whether they help")


def transform_of(store: Pool, robot: str | None) -> Callable[[Episode], Episode] | None:
    """The function that prepares recorded episodes for the pool: joints to tool space, poses of objects."""
    from recap.errors import InputError
    from recap.features.estimators import prepared
    from recap.robot import difference, load_robot

    own = store.view().robot
    recorded = own if robot is None else load_robot(robot)
    why = None if own is None or recorded is None else difference(own, recorded)
    if why is not None:
        raise InputError(f"{robot} does not fit the pool's robot: {why}", code="robot.mismatch")
    return prepared(recorded, known=robot is not None)


@pool.command("rm")
@click.argument("uri", metavar="POOL")
@click.argument("ids", nargs=-1, required=True, metavar="EPISODE...")
@click.option(
    "--for-good", is_flag=True, help="Delete data, videos, descriptors and old versions. Cannot be undone."
)
@click.option("--with-tags", is_flag=True, help="With --for-good: also delete their tagged versions.")
def remove(uri: str, ids: Sequence[str], for_good: bool, with_tags: bool) -> None:
    """Remove episodes from the newest version; older versions keep them.

    With --for-good nothing of them is left in the pool: every version that contains them is removed. Copies
    elsewhere remain: snapshots, exports, backups, training caches and trained policies.

    \b
    Example:
      recap pool rm pools/mine pusht/disc/-45/100000
      recap pool rm pools/mine pusht/disc/-45/100000 --for-good
    """
    from recap.errors import InputError

    if with_tags and not for_good:
        raise InputError("--with-tags needs --for-good: add it")
    store = opened(uri)
    if for_good:
        gone = store.forget(list(ids), with_tags=with_tags)
        click.echo(f"Deleted for good: {len(set(ids))} episodes, and {len(gone)} versions that had them")
        click.echo(f"Next: recap pool verify {uri}; remove snapshots and exports that have them yourself")
        return
    was = store.version
    version = store.remove(list(ids))
    click.echo(f"Removed {len(set(ids))} episodes: version {version} has {len(store)}")
    click.echo(f"Next: recap pool rollback {uri} {was} brings them back")


@pool.command()
@click.argument("uri", metavar="POOL")
@click.argument("name", required=False)
@click.option("--version", metavar="V", help="Version number or tag.  [default: the newest]")
@click.option("--move", is_flag=True, help="Move an existing tag to this version.")
def tag(uri: str, name: str | None, version: str | None, move: bool) -> None:
    """Give a version a name; without NAME, list the names.

    \b
    Example:
      recap pool tag pools/mine before-triangle
    """
    store = opened(uri)
    if name is None:
        print_rows(("tag", "version"), sorted(store.tags().items()), 0)
        return
    click.echo(f"Tag '{name}': version {store.tag(name, version, move=move)}")
    click.echo(f"Next: recap pool rollback {uri} '{name}' makes it the newest again")


@pool.command()
@click.argument("uri", metavar="POOL")
@click.argument("version", metavar="V")
def rollback(uri: str, version: str) -> None:
    """Make a new version equal to an old one; no version is lost.

    \b
    Example:
      recap pool rollback pools/mine before-triangle
    """
    store = opened(uri)
    was = store.version
    now = store.rollback(version)
    click.echo(f"Version {now} is equal to {version}: {len(store)} episodes")
    click.echo(f"Next: recap pool rollback {uri} {was} undoes this")


@pool.command()
@click.argument("uri", metavar="POOL")
def compact(uri: str) -> None:
    """Merge small files for faster reading; old versions stay.

    \b
    Example:
      recap pool compact pools/mine
    """
    store = opened(uri)
    before = store.stats()["n_fragments"]
    version = store.compact()
    click.echo(f"Version {version}: {before} fragments before, {store.stats()['n_fragments']} now")
    click.echo(f"Next: recap pool verify {uri}")


@pool.command()
@click.argument("uri", metavar="POOL")
@click.option(
    "--keep", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Newest versions."
)
@click.option(
    "--older-than", default="7d", show_default=True, metavar="AGE", help="Minimum age: 30m, 12h, 7d."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def prune(uri: str, keep: int, older_than: str, dry_run: bool) -> None:
    """Remove old versions, and the files that only they need. Tagged versions stay.

    A version is removed if it is not among the newest N, has no tag, and has not been the newest for AGE, so
    that no running reader still uses it. This cannot be undone.

    \b
    Example:
      recap pool prune pools/mine --keep 10 --older-than 7d --dry-run
    """
    store, age = opened(uri), _age(older_than)
    n = len(store.versions())
    gone = store.prune(keep, age, dry_run=dry_run)
    click.echo(f"{'It would remove' if dry_run else 'Removed'} {len(gone)} of {n} versions: {_ranges(gone)}")
    click.echo(f"Next: recap pool ls {uri} --versions")


def _age(text: str) -> timedelta:
    import re

    from recap.errors import InputError

    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        raise InputError(f"cannot read --older-than '{text}': give a number and s, m, h or d, such as 7d")
    return timedelta(**{units[found[2]]: int(found[1])})


def _ranges(numbers: Sequence[int]) -> str:
    """Format numbers as 1-3, 5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in parts) or "none"


@pool.command()
@click.argument("uri", metavar="POOL")
@click.option("--repair", is_flag=True, help="Set damaged files aside and keep the rest usable.")
@click.option(
    "--policy", metavar="POLICY", help="Also list demonstrations that this policy, or retrieval, cannot use."
)
def verify(uri: str, repair: bool, policy: str | None) -> int:
    """Check every byte; the exit code is 1 if something is damaged.

    \b
    Example:
      recap pool verify pools/mine
      recap pool verify pools/mine --repair
      recap pool verify pools/mine --policy pusht-nano
    """
    from recap.cli.terminal import plain

    store = opened(uri)
    if policy is not None:
        _name_unusable(store, policy)
    report = store.verify()
    for finding in report.findings:
        reached = f" ({', '.join(finding.episodes)})" if finding.episodes else ""
        click.echo(plain(f"damaged: {finding.file}: {finding.what}{reached}"))
    sizes = f"{report.n_files} files, {report.n_bytes / 1e6:.1f} MB"
    if report.leftovers:
        click.echo(f"{len(report.leftovers)} files belong to no version: a writer died, or is at work now")
    if report.ok:
        click.echo(f"Version {report.version} is sound: {report.n_episodes} episodes, {sizes}")
        return 0
    if not repair:
        click.echo(f"{len(report.findings)} of {sizes} are damaged, episodes reached: {len(report.episodes)}")
        click.echo(f"Next: recap pool verify {uri} --repair")
        return 1
    done = store.repair()
    for name in done.lost:
        click.echo(f"lost: {plain(name)}")
    if done.redone:
        click.echo(f"done again: {', '.join(f'version {v}' for v in done.redone)}")
    state = "sound" if done.report.ok else "still damaged"
    click.echo(f"Version {done.version} is {state}: {done.report.n_episodes} episodes, {len(done.lost)} lost")
    click.echo(f"Listing: {uri}/{done.listing}")
    return 0 if done.report.ok else 1


def _name_unusable(store: Pool, policy: str) -> None:
    """List demonstrations that a policy, or a retrieval by name, cannot use."""
    from recap.cli.terminal import plain
    from recap.retrieval.presets import find_retrieval
    from recap.retrieval.retriever import Retriever

    view = store.view()
    if not view.episode_ids:
        return
    name, robot, cameras = reading(view, policy)
    describer, config = find_retrieval(name, robot)
    retriever = Retriever(store, describer, config, robot, cameras)
    unusable = retriever.index().unusable
    for name in unusable:
        click.echo(plain(f"not used: {name}: {retriever.why_unusable(view.episode(name))}"))
    click.echo(f"{len(unusable)} of {len(view)} demonstrations cannot be used by {policy}")


@pool.command()
@click.argument("uri", metavar="POOL")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Output file, .safetensors."
)
@click.option("--no-images", is_flag=True, help="Do not include images.")
def pack(uri: str, out: Path, no_images: bool) -> None:
    """Write the newest version as one file that can be used without the pool or Lance.

    \b
    Example:
      recap pool pack pools/mine --out mine.safetensors
    """
    store = opened(uri)
    store.pack(out, images=not no_images)
    size = out.stat().st_size / 1e6
    click.echo(f"Packed: {out} ({len(store)} episodes, {size:.1f} MB, version {store.version})")
    click.echo("Next: PackedPool.open(path) reads it, or give it as --pool")
