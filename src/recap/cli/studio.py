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
@click.option("--checkpoint", default="pusht-small", show_default=True, help="A policy, or replay.")
@click.option(
    "--mode", help="How to retrieve: aligned, contact, single.  [default: the policy's, or aligned]"
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
    pool: str | None, checkpoint: str, mode: str | None, port: int, runs: Path, no_browser: bool
) -> int:
    """Open the studio: teach by dragging, watch the frozen policy use it.

    One page with four views: Teach, Run, Pool, Results. It is served on this machine only, together with
    everything that recap serve offers to robots. Ctrl-C ends it; what was added to the pool stays.

    \b
    Example:
      recap studio
      recap studio --pool pools/mine --no-browser
    """
    from recap.assembly import usual_mode
    from recap.serving.app import build_app, run
    from recap.serving.service import ServeSpec, Service
    from recap.studio.app import add_studio
    from recap.studio.running import PUSHER

    uri = pool or str(scratch_pool())
    open_or_create(uri)
    chosen = mode or usual_mode(checkpoint)
    spec = ServeSpec(
        agent=checkpoint,
        pool=uri,
        mode=chosen,
        pusher=PUSHER if chosen == "contact" else None,
        reaction="hold",
        port=port,
    )
    service = Service.open(spec)
    app = build_app(service)
    add_studio(app, runs)

    def ready(bound: int) -> None:
        url = f"http://{spec.host}:{bound}/"
        view = service.pool.view()
        click.echo(f"Policy: {checkpoint}, fingerprint {service.fingerprint}, frozen")
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
    from recap.pool.store import MARK, Pool
    from recap.standard_pools import STANDARD_POOLS

    if uri in STANDARD_POOLS or uri.endswith(".safetensors"):
        raise InputError(
            f"'{uri}' is a snapshot and cannot grow: give the place of a pool, new or not, with --pool"
        )
    if not open_files(uri).exists(MARK):
        Pool.create(uri)
