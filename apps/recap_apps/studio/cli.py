"""`recap studio`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from recap_apps.studio.explore import Extras


@click.command()
@click.argument("path", required=False)
@click.option(
    "--robot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Robot description of PATH.  [default: as PATH says]",
)
@click.option(
    "--pool",
    metavar="URI",
    help="PushT: pool to use; created if missing.  [default: a scratch pool in the cache]",
)
@click.option(
    "--policy",
    default="pusht-small",
    show_default=True,
    metavar="POLICY",
    help="PushT: name of an included policy, a path, or replay.",
)
@click.option(
    "--retrieval",
    metavar="NAME|FILE",
    help="How to retrieve.  [default: as the data allow; PushT: the policy's, or object]",
)
@click.option(
    "--write", is_flag=True, help="Allow the page to put demonstrations of the pool PATH into quarantine."
)
@click.option("--into", metavar="POOL", help="Pool that accepted hand films are added to.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="LOG",
    help="Log of recap serve --log: show which demonstrations led robots astray; repeatable.",
)
@click.option("--port", type=int, default=8100, show_default=True, help="Port; 0 for any free one.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="PushT: folder of evaluations.",
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
def studio(
    path: str | None,
    robot: Path | None,
    pool: str | None,
    policy: str,
    retrieval: str | None,
    write: bool,
    into: str | None,
    logs: tuple[Path, ...],
    port: int,
    runs: Path,
    no_browser: bool,
) -> int:
    """Open the studio: browse a pool or dataset, or teach PushT.

    PATH is a pool, a packed snapshot, a standard pool, or a dataset that recap pool add can import, such as a
    LeRobot dataset of your own arm; it is not changed. Without PATH you teach PushT by dragging, and watch
    the frozen policy use it. The page is served on this machine only. Ctrl-C ends it.

    \b
    Example:
      recap studio pools/mine
      recap studio pools/mine --write --log logs/use.jsonl
      recap studio data/hand --into pools/mine
      recap studio --pool pools/taught --no-browser
    """
    from recap.errors import InputError

    if path is not None:
        if pool is not None:
            raise InputError("PATH is looked at, --pool is for teaching PushT: give one of them")
        from recap_apps.studio.explore import Extras

        return explore(path, robot, Extras(retrieval, write, into, logs), port, no_browser)
    if write or into or logs or robot:
        raise InputError("--robot, --write, --into and --log are of PATH: give a pool or dataset")
    return teach(pool, policy, retrieval, port, runs, no_browser)


def explore(path: str, robot: Path | None, extras: Extras, port: int, no_browser: bool) -> int:
    """Serve the pages to browse a pool or dataset."""
    from recap.cli.terminal import say
    from recap.robot import load_robot
    from recap.serving.app import run
    from recap_apps.studio.explore import build_explorer, explorer_spec
    from recap_apps.studio.library import open_library

    say(f"Opening {path} …")
    library = open_library(path, None if robot is None else load_robot(robot))
    spec = explorer_spec(path, port)
    app = build_explorer(library, spec, extras)

    def ready(bound: int) -> None:
        url = f"http://{spec.host}:{bound}/"
        change = "quarantine is allowed" if extras.writable else "it is not changed"
        click.echo(f"Opened: {path}, a {library.kind}, {len(library.entries)} demonstrations; {change}")
        click.echo(f"Studio: {url}")
        click.echo("Next: open that page; Ctrl-C ends it")
        if not no_browser and has_desktop():
            click.launch(url)

    try:
        run(app, spec, ready)
    except KeyboardInterrupt:
        click.echo("Stopped.")
    return 0


def teach(
    pool: str | None, policy: str, retrieval: str | None, port: int, runs: Path, no_browser: bool
) -> int:
    """Serve the PushT studio."""
    from recap.serving.app import build_app, run
    from recap.serving.service import Service
    from recap_apps.studio.app import add_studio
    from recap_apps.studio.serving import studio_spec

    uri = pool or str(scratch_pool())
    spec = studio_spec(uri, policy, retrieval, port)
    open_or_create(uri)
    service = Service.open(spec)
    app = build_app(service)
    add_studio(app, runs)

    def ready(bound: int) -> None:
        url = f"http://{spec.host}:{bound}/"
        view = service.pool.view()
        click.echo(f"Policy: {policy}, fingerprint {service.fingerprint}, frozen")
        click.echo(f"Pool: {uri}, version {view.version}, {len(view.episode_ids)} demonstrations")
        click.echo(f"Studio: {url}")
        click.echo("Next: open that page, drag the disc, add what you did, and watch the triangle use it")
        if not no_browser and has_desktop():
            click.launch(url)  # without a desktop, the printed address is enough

    try:
        run(app, spec, ready)
    except KeyboardInterrupt:
        click.echo("Stopped.")
    return 0


def has_desktop() -> bool:
    """True if a browser would open a window; a text browser would take over the terminal."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(shown)


def scratch_pool() -> Path:
    """The pool for taught demonstrations if none is given."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "recap" / "studio-pool"


def open_or_create(uri: str) -> None:
    """Create an empty pool if there is none; a named snapshot or a folder of another kind is an error."""
    from recap.errors import InputError
    from recap.pool.files import open_files
    from recap.pool.opening import pool_names
    from recap.pool.store import MARK, Pool

    if uri in pool_names() or uri.endswith(".safetensors"):
        raise InputError(
            f"'{uri}' is a snapshot and cannot grow: give the place of a pool, new or not, with --pool"
        )
    if not open_files(uri).exists(MARK):
        Pool.create(uri)
