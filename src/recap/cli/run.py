"""`recap run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from recap.cli.settings import DottedCommand, dotted_text
from recap_client.options import RUN_OPTIONS


def _run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `recap run` shares with `recap-client run`."""
    for option in reversed(RUN_OPTIONS):
        shape: dict[str, Any] = {"type": option.kind, "default": option.default, "metavar": option.metavar}
        if option.kind is bool:
            shape = {"is_flag": True}
        elif option.kind is tuple:
            shape = {"multiple": True, "metavar": option.metavar}
        command = click.option(f"--{option.flag}", option.name, help=option.text, **shape)(command)
    return command


@click.command(cls=DottedCommand, prefix="robot")
@click.option(
    "--robot", "name", required=True, metavar="NAME", help="lerobot:TYPE, a name, or package.module:factory."
)
@_run_options
@click.option("--video", type=click.Path(path_type=Path), metavar="FILE", help="Write a video, .mp4.")
def run(name: str, video: Path | None, **given: Any) -> int:
    """Drive a robot with a policy server, at a fixed rate.

    The next chunk of actions is requested while the current one is executed, so the robot does not wait. If a
    reply comes too late, the robot holds still and a miss is counted. LeRobot robots are chosen by type. A
    factory is called with the server's metadata and returns an object with observe() and act(action).
    pusht-sim and dualarm-sim are simulated. Pass options of a robot as --robot.NAME VALUE. Ctrl-C holds the
    robot and exits. Where LeRobot is installed, `recap-client run` is the same command.

    \b
    Example:
      recap serve pusht-nano --port 8000
      recap run --robot pusht-sim --robot.angle 20 --seed 500 --video runs/robot.mp4
      recap run --robot dualarm-sim --robot.task lift_pot --seed 500
      recap run --robot my_lab.arm:connect --url ws://127.0.0.1:8000 --steps 300
      recap run --robot lerobot:so101_follower --robot.port /dev/ttyACM0 --task "pick up the cube" --dry-run
    """
    from recap_client.driving import RunSpec, drive

    frames: list[Any] = []
    rates: set[float] = set()

    def film(picture: Any, rate_hz: float) -> None:
        frames.append(picture)
        rates.add(rate_hz)

    try:
        drive(RunSpec.of_options(name, dotted_text(), given), None if video is None else film)
    finally:
        if video is not None and frames:
            from recap.video import write_video

            video.parent.mkdir(parents=True, exist_ok=True)
            write_video(video, frames, rates.pop())
            click.echo(f"Video: {video}")
    return 0
