"""`recap demo`."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, metavar="DIR"
)
def demo(out: Path) -> int:
    """See it work: the expert pushes the T to four goals, with both pushers.

    Prints how often it succeeds and writes a video. A stopped demo is resumed by the same command.

    \b
    Example:
      recap demo --out demo
    """
    from recap.cli.terminal import progress_bar, show
    from recap.demo import run_demo
    from recap.evaluation.summary import render_summary

    click.echo("Rolling out the scripted expert, 4 goals × 4 starts × 2 pushers …")
    click.echo("(the first run compiles the planner, about half a minute)")
    with progress_bar("episodes") as progress:
        summaries = run_demo(out, os.cpu_count() or 1, progress)
    for pusher, summary in summaries.items():
        click.echo(f"\nPusher: {pusher}")
        show(render_summary(summary))
    click.echo(f"\nVideo: {out / 'demo.mp4'} (top: the disc, which will fill the pool; bottom: the triangle)")
    click.echo(f"Strip: {out / 'demo.png'} (the triangle at each goal)    Numbers: {out}/*/eval_info.json")
    click.echo("Next: recap eval expert --pusher triangle --block zed --angles 17 --seeds 500:505 --record 2")
    return 0
