"""`recap demo`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from recap.errors import InputError


@click.command()
@click.option("--block", default="tee", show_default=True, help="tee, ell, zed, plus or cup.")
@click.option("--angle", metavar="DEGREES", help="Goal angle.  [default: 30]")
@click.option("--additions", metavar="N,N…", help="Demonstrations to add in each round.  [default: 10,40]")
@click.option("--seeds", type=int, metavar="N", help="Number of starts.  [default: 8]")
@click.option(
    "--policy",
    default="pusht-nano",
    show_default=True,
    metavar="POLICY",
    help="Name of an included policy, or a path.",
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Cores to use.  [default: all]")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, metavar="DIR"
)
def demo(
    block: str,
    angle: str | None,
    additions: str | None,
    seeds: int | None,
    policy: str,
    workers: int | None,
    out: Path,
) -> int:
    """Run the demo: a frozen policy gains a task from added demonstrations.

    The triangle tries a task with an empty pool. Then a different pusher, the disc, demonstrates the task.
    Its demonstrations are added to the live pool, and the triangle tries again with the same weights. Prints
    a table and writes a page with a video. Takes two or three minutes on two cores, without a GPU or a
    network connection.

    \b
    Example:
      recap demo
      recap demo --angle 17 --additions 20,80
      recap demo --block ell --out demo-ell
    """
    from recap.cli.ranges import parse_numbers
    from recap.cli.terminal import progress_bar, show
    from recap_apps.demo.report import FILM, PAGE, STILL, conclusion, next_steps, render_stages
    from recap_apps.demo.run import POOL, Voice, run_demo
    from recap_apps.demo.spec import ADDITIONS, ANGLE, N_SEEDS, DemoSpec
    from recap_worlds.pusht.tasks import wrapped

    angles = (ANGLE,) if angle is None else parse_numbers(angle)
    if len(angles) != 1:
        raise InputError(f"the demo shows one goal and '{angle}' names {len(angles)}: give one angle")
    spec = DemoSpec(
        policy=policy,
        block=block,
        angle=wrapped(angles[0]),
        additions=ADDITIONS if additions is None else _sizes(additions),
        n_seeds=N_SEEDS if seeds is None else seeds,
    )
    voice = Voice(click.echo, progress_bar)
    result = run_demo(spec, out, workers or os.cpu_count() or 1, voice)
    click.echo()
    show(render_stages(result.stages))
    click.echo(f"\n{conclusion(result)}")
    click.echo(
        f"\nPage: {out / PAGE}    Video: {out / FILM}    Still: {out / STILL}    ({result.wall_s:.0f} s)"
    )
    click.echo("Next:")
    for command, why in next_steps(spec, str(out / POOL)):
        click.echo(f"  {command}    ({why})")
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    """Parse sizes such as `10,40`."""
    try:
        return tuple(int(item) for item in text.split(","))
    except ValueError:
        raise InputError(
            f"additions '{text}' are no numbers: give sizes with commas between, such as 10,40"
        ) from None
