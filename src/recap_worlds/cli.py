"""`recap collect`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.exporting import FORMATS
from recap.cli.ranges import parse_numbers
from recap.cli.settings import DottedCommand, dotted

if TYPE_CHECKING:
    from recap.pool.robotwin_write import Layout
    from recap.suites import Options


@click.group()
def collect() -> None:
    """Collect demonstrations from a scripted expert.

    \b
    Example:
      recap collect pusht --pusher disc --angles=-45,45 --per-angle 100 --out data/disc
    """


@collect.command()
@click.option("--pusher", default="disc", show_default=True, help="disc or triangle.")
@click.option(
    "--angles", default="-45,45", show_default=True, help="Goals, degrees: -60,0 or first:last:step."
)
@click.option(
    "--per-angle", type=int, default=100, show_default=True, metavar="N", help="Episodes per goal angle."
)
@click.option("--block", default="tee", show_default=True, help="tee, ell, zed, plus or cup.")
@click.option(
    "--noise",
    type=float,
    default=0.0,
    metavar="PX",
    help="Noise on executed actions; recorded actions are clean.",
)
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="Speed of the expert; 0.5 takes twice as long.",
)
@click.option(
    "--style", default="0", show_default=True, metavar="N|vary", help="Pushing style of the expert."
)
@click.option(
    "--near", type=float, default=0.0, metavar="PX", help="Start within PX pixels and PX degrees of the goal."
)
@click.option("--seed", type=int, default=100_000, show_default=True, help="Seed of the first scene.")
@click.option(
    "--image-size", type=int, default=96, show_default=True, metavar="PX", help="Image size; 0 for no video."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes.  [default: one a core]")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Output dataset.")
def pusht(
    pusher: str,
    angles: str,
    per_angle: int,
    block: str,
    noise: float,
    speed: float,
    style: str,
    near: float,
    seed: int,
    image_size: int,
    workers: int | None,
    out: Path,
) -> int:
    """Write PushT demonstrations as a LeRobotDataset v3.

    Two pushers with the same angles, number and seed start from the same scenes. To resume a stopped
    collection, repeat the command.

    \b
    Example:
      recap collect pusht --pusher disc --angles=-45,45 --per-angle 100 --out data/disc
      recap collect pusht --pusher triangle --angles=-45,45 --per-angle 100 --out data/triangle
    """
    from recap.cli.terminal import progress_bar
    from recap.errors import InputError
    from recap_worlds.pusht.collecting import CollectSpec
    from recap_worlds.pusht.collecting import collect as run
    from recap_worlds.pusht.tasks import wrapped

    if not (style == "vary" or (style.isdecimal() and style.isascii())):
        raise InputError(f"unknown style '{style}': give a whole number, or vary for one each")
    spec = CollectSpec(
        pusher=pusher,
        angles=tuple(wrapped(angle) for angle in parse_numbers(angles)),
        per_angle=per_angle,
        block=block,
        noise=noise,
        speed=speed,
        style=None if style == "vary" else int(style),
        near=near,
        first_seed=seed,
        image_size=image_size,
    )
    try:
        with progress_bar("demonstrations") as progress:
            run(spec, out, workers=workers or os.cpu_count() or 1, progress=progress)
    except KeyboardInterrupt as stop:
        click.echo(f"recap: {str(stop) or 'stopped'}", err=True)
        return 130
    click.echo(f"Dataset: {out} ({len(spec.demos())} demonstrations)")
    return 0


@collect.command()
@click.option(
    "--tasks",
    required=True,
    metavar="NAMES",
    help="Tasks: move_can_pot,lift_pot, or seen, or level2.",
)
@click.option("--embodiment", default="ur5e", show_default=True, help="ur5e, viperx or hand.")
@click.option(
    "--film",
    default="truth",
    show_default=True,
    help="hand: simulate tracking noise of two-cameras or one-camera.",
)
@click.option("--episodes", type=int, default=50, show_default=True, metavar="N", help="Episodes per task.")
@click.option("--split", default="clean", show_default=True, help="clean or randomised.")
@click.option("--seed", type=int, default=100_000, show_default=True, help="Seed of the first scene.")
@click.option(
    "--image-size", type=int, default=128, show_default=True, metavar="PX", help="Image size; 0 for no video."
)
@click.option("--format", "format_", default="lerobot", show_default=True, help="lerobot or robotwin.")
@click.option(
    "--config", metavar="NAME", help="robotwin: name of the output folder.  [default: EMBODIMENT_SPLIT]"
)
@click.option("--layout", default="release", show_default=True, help="robotwin: release or v1.0.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes.  [default: one a core]")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Output dataset.")
def dualarm(
    tasks: str,
    embodiment: str,
    film: str,
    episodes: int,
    split: str,
    seed: int,
    image_size: int,
    format_: str,
    config: str | None,
    layout: Layout,
    workers: int | None,
    out: Path,
) -> int:
    """Write dual-arm demonstrations as LeRobotDatasets v3, or in RoboTwin 2.0's format.

    One task is written to DIR, several to one dataset each, DIR/TASK. RoboTwin's files always go to
    DIR/TASK/CONFIG; its release layout stores no actions, v1.0 does. Two embodiments with the same tasks,
    number, split and seed start from the same scenes. To resume a stopped collection, repeat the command.

    \b
    Example:
      recap collect dualarm --tasks lift_pot --embodiment ur5e --episodes 50 --out data/lift_pot
      recap collect dualarm --tasks seen --embodiment viperx --episodes 50 --out data/viperx
      recap collect dualarm --tasks unseen --embodiment hand --film two-cameras --out data/hand
      recap collect dualarm --tasks lift_pot --format robotwin --config ur5e_clean --out RoboTwin/data
    """
    from recap.cli.terminal import progress_bar
    from recap.errors import one_of
    from recap.pool.robotwin_write import folder_named
    from recap_worlds.dualarm.collecting import DualArmSpec, collect_dualarm, collect_robotwin, is_lerobot
    from recap_worlds.dualarm.tasks import tasks_named

    one_of("format", format_, FORMATS)
    keys = tasks_named(tasks)
    specs = [DualArmSpec(key, embodiment, episodes, split, seed, image_size, film) for key in keys]
    to_lerobot = partial(collect_dualarm, workers=workers or os.cpu_count() or 1)
    to_robotwin = partial(collect_robotwin, layout=layout, workers=workers or os.cpu_count() or 1)
    try:
        for spec in specs:
            if format_ == "robotwin":
                place = folder_named(out, spec.task, config or f"{embodiment}_{split}")
                there, run = place.exists(), to_robotwin
            else:
                place = out if len(specs) == 1 else out / spec.task
                there, run = is_lerobot(place), to_lerobot
            if there and len(specs) > 1:
                continue  # complete from an earlier, stopped call
            with progress_bar(f"demonstrations of {spec.task}") as progress:
                run(spec, place, progress=progress)
            click.echo(f"Dataset: {place} ({spec.episodes} demonstrations)")
    except KeyboardInterrupt as stop:
        click.echo(f"recap: {str(stop) or 'stopped'}", err=True)
        return 130
    return 0


@collect.command(cls=DottedCommand, prefix="env")
@click.option("--tasks", required=True, metavar="NAMES", help="Tasks: box-close,reach, or seen, unseen, all.")
@click.option("--episodes", type=int, default=25, show_default=True, metavar="N", help="Episodes per task.")
@click.option("--seed", type=int, default=100_000, show_default=True, help="Seed of the first scene.")
@click.option(
    "--image-size", type=int, default=128, show_default=True, metavar="PX", help="Image size; 0 for no video."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes.  [default: one a core]")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Output dataset.")
def metaworld(tasks: str, episodes: int, seed: int, image_size: int, workers: int | None, out: Path) -> int:
    """Write demonstrations by Meta-World's scripted experts as one LeRobotDataset v3.

    Pass options of the env as --env.NAME VALUE. To resume a stopped collection, repeat the command.

    \b
    Example:
      recap collect metaworld --tasks seen --out data/seen
      recap collect metaworld --tasks box-close --episodes 5 --env.offset_y 0.03 --out data/other_hand
    """
    return _collect_suite("metaworld", "sawyer", tasks, episodes, seed, image_size, workers, out, dotted())


@collect.command(cls=DottedCommand, prefix="env")
@click.option("--tasks", required=True, metavar="NAMES", help="Tasks: lift,stack, or seen, unseen, all.")
@click.option("--embodiment", default="ur5e", show_default=True, help="panda, ur5e, iiwa or kinova3.")
@click.option("--episodes", type=int, default=25, show_default=True, metavar="N", help="Episodes per task.")
@click.option("--seed", type=int, default=100_000, show_default=True, help="Seed of the first scene.")
@click.option(
    "--image-size", type=int, default=0, show_default=True, metavar="PX", help="Image size; 0 for no video."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes.  [default: one a core]")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Output dataset.")
def robosuite(
    tasks: str, embodiment: str, episodes: int, seed: int, image_size: int, workers: int | None, out: Path
) -> int:
    """Write demonstrations by a robosuite arm as one LeRobotDataset v3.

    Two arms with the same tasks, number and seed start from the same scenes; where the scripted expert fails,
    another scene is used. To resume a stopped collection, repeat the command.

    \b
    Example:
      recap collect robosuite --tasks unseen --embodiment ur5e --out data/ur5e
      recap collect robosuite --tasks seen --embodiment panda --env.kp 30 --out data/weak_panda
    """
    given = {"embodiment": embodiment, **dotted()}
    return _collect_suite(
        "robosuite", str(given["embodiment"]), tasks, episodes, seed, image_size, workers, out, given
    )


def _collect_suite(
    env: str,
    embodiment: str,
    tasks: str,
    episodes: int,
    seed: int,
    image_size: int,
    workers: int | None,
    out: Path,
    options: Options,
) -> int:
    """Collect demonstrations of a suite's expert as one dataset."""
    from recap.cli.terminal import progress_bar
    from recap.suites import suites
    from recap_worlds.collecting import SuiteSpec, collect_suite

    suite = suites()[env]
    suite.check(options)
    keys = tuple(dict.fromkeys(key for name in tasks.split(",") for key in suite.expand(name.strip())))
    spec = SuiteSpec(env, keys, episodes, embodiment, options, seed, image_size)
    try:
        with progress_bar("demonstrations") as progress:
            collect_suite(spec, out, workers=workers or os.cpu_count() or 1, progress=progress)
    except KeyboardInterrupt as stop:
        click.echo(f"recap: {str(stop) or 'stopped'}", err=True)
        return 130
    click.echo(f"Dataset: {out} ({len(spec.demos())} demonstrations)")
    return 0
