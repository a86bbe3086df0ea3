"""`recap pool export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.pool_look import opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from recap.pool.robotwin_write import Layout
    from recap.robot import RobotSpec
    from recap.types import Episode

FORMATS = ("lerobot", "robotwin")


@click.command()
@click.argument("uri", metavar="POOL")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--format", "format_", default="lerobot", show_default=True, help="lerobot or robotwin.")
@click.option(
    "--task",
    metavar="NAME",
    help="lerobot: only this task, by key or instruction; robotwin: task of episodes without one.",
)
@click.option("--config", default="recap", show_default=True, metavar="NAME", help="robotwin: output folder.")
@click.option("--layout", default="release", show_default=True, help="robotwin: release or v1.0.")
def export(uri: str, folder: Path, format_: str, task: str | None, config: str, layout: Layout) -> None:
    """Write the newest version as a LeRobotDataset v3, or in RoboTwin 2.0's format.

    All tasks of a pool go into one LeRobot dataset, which keeps the instruction of each episode. An object
    that a task does not have is stored as zeros and is absent again when recap reads it. RoboTwin's format is
    for two arms; its files go to DIR/TASK/CONFIG, one folder per task, and can be added to an existing DIR.
    The release layout stores no actions (the next state is the action); v1.0 stores them.

    \b
    Example:
      recap pool export pools/mine data/all
      recap pool export pools/mine data/press --task "press the button"
      recap pool export pools/arms RoboTwin/data --format robotwin --config ur5_clean
    """
    from recap.cli.terminal import progress_bar, say
    from recap.errors import InputError, one_of

    one_of("format", format_, FORMATS)
    pool = opened(uri)
    episodes = list(pool)
    robot: RobotSpec | None = getattr(pool.view(), "robot", None)  # names the numbers, if known
    if not episodes:
        raise InputError(f"pool {uri} is empty: recap pool add {uri} DATASET first")
    with progress_bar("episodes") as progress:
        n_all = len(episodes)
        if format_ == "lerobot":
            folders = [folder]
            episodes = _write_lerobot(episodes, task, folder, robot, lambda n: progress(n, n_all))
        else:
            from recap.pool.robotwin_write import has_joints, write_tasks

            folders = write_tasks(
                episodes, folder, config, task=task, layout=layout, progress=lambda n: progress(n, n_all)
            )
            if not all(map(has_joints, episodes)):
                say("Tool poses alone: the pool has no joint angles, which RoboTwin's scripts read")
    click.echo(f"Dataset: {folder} ({len(episodes)} demonstrations)")
    for each in folders:
        click.echo(f"Next: recap pool add OTHER_POOL {each}")


def _write_lerobot(
    episodes: list[Episode],
    task: str | None,
    folder: Path,
    robot: RobotSpec | None,
    report: Callable[[int], None],
) -> list[Episode]:
    """Write the episodes of the task, or all, and return them."""
    import tempfile

    from recap.errors import InputError, RunDirectoryError, did_you_mean
    from recap.pool.lerobot import alike, assemble, stage_episode

    if folder.exists():
        raise RunDirectoryError(f"{folder} exists already: give another DIR, or remove it first")
    if task is not None:
        names = {str(name): None for e in episodes for name in (e.attributes.get("task_key"), e.task) if name}
        if task not in names:
            raise InputError(f"the pool has no task '{task}': {did_you_mean(task, names)}")
        episodes = [e for e in episodes if task in (str(e.attributes.get("task_key")), e.task)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
        for index, episode in enumerate(alike(episodes)):
            stage_episode(Path(staging), index, episode)
            report(index + 1)
        assemble(Path(staging), len(episodes), folder, robot=robot)
    return episodes
