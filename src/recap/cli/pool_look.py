"""The read-only commands of `recap pool`: ls, show, diff, stats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.pool.store import Pool


def opened(uri: str) -> Pool:
    """Open an existing pool; the store is imported only here."""
    from recap.pool.store import Pool

    return Pool.open(uri)


@click.command("ls")
@click.argument("uri", metavar="POOL")
@click.option("--version", metavar="V", help="Version number or tag.  [default: the newest]")
@click.option("--versions", "history", is_flag=True, help="List versions instead of episodes.")
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, metavar="N", help="0: all.")
def list_(uri: str, version: str | None, history: bool, limit: int) -> None:
    """List episodes, or versions.

    \b
    Example:
      recap pool ls pools/mine --limit 10
      recap pool ls pools/mine --versions
    """
    store = opened(uri)
    if history:
        rows: list[list[Any]] = []
        for v in reversed(store.versions()):
            time = f"{v.time:%Y-%m-%d %H:%M:%S}" if v.time else "?"
            rows.append([v.version, time, v.op, f"+{v.n_added}", f"-{v.n_removed}", ", ".join(v.tags)])
        print_rows(("version", "time (UTC)", "change", "added", "removed", "tags"), rows, limit)
        click.echo(f"Next: recap pool diff {uri} A B, or recap pool rollback {uri} V")
        return
    ids = store.ids(version)
    shown = ids[: limit or None]
    if version is None:
        read = store.get if len(shown) <= 100 else store.view().episode  # one by one is slow for many
        rows = []
        for e in map(read, shown):
            success = "yes" if e.success else "no"
            rows.append([e.id, e.task, e.embodiment, len(e), success, ", ".join(e.images)])
        print_rows(("episode", "task", "embodiment", "frames", "success", "cameras"), rows, 0)
    else:
        print_rows(("episode",), [[name] for name in shown], 0)
    at = store.version if version is None else version
    click.echo(f"{len(shown)} of {len(ids)} episodes, version {at}")
    click.echo(f"Next: recap pool show {uri} EPISODE")


def print_rows(header: Sequence[str], rows: Sequence[Sequence[Any]], limit: int) -> None:
    """Print a table of text; a limit of 0 shows all rows."""
    from rich.table import Table
    from rich.text import Text

    from recap.cli.terminal import plain
    from recap.cli.terminal import show as print_table

    table = Table(box=None, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows[: limit or None]:
        table.add_row(*(Text(plain(cell)) for cell in row))
    print_table(table)


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("episode_id", metavar="EPISODE")
@click.option("--camera", metavar="NAME", help="[default: the first]")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Output: film strip .png or video .mp4."
)
def show(uri: str, episode_id: str, camera: str | None, out: Path | None) -> None:
    """Show one episode; with --out as a picture or a video.

    \b
    Example:
      recap pool show pools/mine demo/17 --out strip.png
    """
    from recap.cli.terminal import plain
    from recap.errors import InputError, one_of

    episode = opened(uri).get(episode_id)
    if out is not None and out.suffix not in (".png", ".mp4"):
        raise InputError(f"cannot write {out}: give a name that ends in .png or .mp4")
    shapes = {"proprio": episode.proprio.shape, "actions": episode.actions.shape}
    shapes |= {f"object {name}": value.shape for name, value in episode.objects.items()}
    for key in ("id", "scene_id", "task", "embodiment", "action_space", "source", "fps", "success"):
        click.echo(f"{key}: {plain(getattr(episode, key))}")
    click.echo(f"frames: {len(episode)}, {episode.timestamps[-1] - episode.timestamps[0]:.2f} s")
    for key, shape in shapes.items():
        click.echo(f"{plain(key)}: {shape[0]} x {shape[1]}")
    if episode.goal is not None:
        click.echo(f"goal: {', '.join(f'{x:g}' for x in episode.goal)}")
    for key, value in episode.attributes.items():
        click.echo(f"{plain(key)}: {plain(value)}")
    click.echo(f"cameras: {plain(', '.join(episode.images)) or 'none'}")
    if out is None:
        click.echo(f"Next: recap pool show {uri} '{plain(episode_id)}' --out strip.png")
        return
    if not episode.images:
        raise InputError(f"episode '{episode_id}' has no images: there is nothing to draw in {out}")
    frames = episode.images[one_of("camera", camera or next(iter(episode.images)), episode.images)]
    if out.suffix == ".png":
        from recap.pictures import filmstrip, write_png

        write_png(out, filmstrip(frames, 8))
    else:
        from recap.video import write_video

        write_video(out, frames, episode.fps)
    click.echo(f"Written: {out}")


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("a")
@click.argument("b", required=False)
def diff(uri: str, a: str, b: str | None) -> None:
    """Show what changed from version or tag A to B, by default the newest.

    \b
    Example:
      recap pool diff pools/mine before-triangle
    """
    from recap.cli.terminal import plain

    store = opened(uri)
    found = store.diff(a, store.version if b is None else b)
    for sign, names in (("+", found.added), ("-", found.removed), ("~", found.changed)):
        for name in names:
            click.echo(f"{sign} {plain(name)}")
    click.echo(f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed")


@click.command()
@click.argument("uri", metavar="POOL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(uri: str, as_json: bool) -> None:
    """Count the contents of a pool.

    \b
    Example:
      recap pool stats pools/mine
    """
    import json

    from recap.cli.terminal import plain

    found = opened(uri).stats()
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for key, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name or 'unknown'} {count}" for name, count in value.items()) or "none"
        elif isinstance(value, list):
            value = ", ".join(value) or "none"
        click.echo(f"{key.removeprefix('n_')}: {plain(value)}")
    click.echo(f"Next: recap pool ls {uri} --versions")
