"""`recap studio`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


@click.command()
@click.option(
    "--pool", metavar="URI", help="Made if it is not there.  [default: a scratch pool in the cache]"
)
@click.option(
    "--policy",
    default="pusht-small",
    show_default=True,
    metavar="POLICY",
    help="By shipped name or path, or replay.",
)
@click.option(
    "--retrieval",
    metavar="NAME",
    help="How to retrieve: object, contact, world.  [default: the policy's, or object]",
)
@click.option("--port", type=int, default=8100, show_default=True, help="0 takes any that is free.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where evaluations lie.",
)
@click.option("--no-browser", is_flag=True, help="Only say where the page is.")
def studio(
    pool: str | None, policy: str, retrieval: str | None, port: int, runs: Path, no_browser: bool
) -> int:
    """Open the studio: teach by dragging, watch the frozen policy use it.

    One page with four views: Teach, Run, Pool, Results. It is served on this machine only, together with
    everything that recap serve offers to robots. Ctrl-C ends it; what was added to the pool stays.

    \b
    Example:
      recap studio
      recap studio --pool pools/mine --no-browser
    """
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
            click.launch(url)  # where there is none, the line above is enough

    try:
        run(app, spec, ready)
    except KeyboardInterrupt:
        click.echo("Stopped.")
    return 0


def has_desktop() -> bool:
    """Whether a browser would be a window; one in the terminal would take it over."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(shown)


def scratch_pool() -> Path:
    """Where what is taught lies when no pool is named."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "recap" / "studio-pool"


def open_or_create(uri: str) -> None:
    """Make an empty pool where there is none; a named snapshot or another thing is refused."""
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
