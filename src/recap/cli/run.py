"""`recap run`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recap.cli.settings import DottedCommand, dotted

if TYPE_CHECKING:
    from recap_client.robot_loop import LoopReport, RobotLoop


@click.command(cls=DottedCommand, prefix="robot")
@click.option(
    "--robot", "name", required=True, metavar="NAME", help="A simulated one, or package.module:factory."
)
@click.option("--url", default="ws://127.0.0.1:8000", show_default=True, help="Of the policy server.")
@click.option("--token", metavar="KEY", help="For the server.  [default: the variable RECAP_TOKEN, or none]")
@click.option(
    "--steps", type=int, metavar="N", help="Control periods.  [default: until it is done, or Ctrl-C]"
)
@click.option("--rate", type=float, metavar="HZ", help="Of the control loop.  [default: the server's]")
@click.option("--delay-ms", type=float, default=0.0, show_default=True, help="Added to every reply, to try.")
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Share of the server's speed limits."
)
@click.option(
    "--box", type=float, nargs=2, metavar="LOW HIGH", help="For every number.  [default: the server's]"
)
@click.option("--patience", type=float, default=10.0, show_default=True, help="With a lost server, s.")
@click.option("--seed", type=int, default=500, show_default=True, help="The noise; of a simulator the start.")
@click.option("--video", type=click.Path(path_type=Path), metavar="FILE", help="Write what happened, .mp4.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report."
)
def run(
    name: str,
    url: str,
    token: str | None,
    steps: int | None,
    rate: float | None,
    delay_ms: float,
    speed: float,
    box: tuple[float, float] | None,
    patience: float,
    seed: int,
    video: Path | None,
    json_file: Path | None,
) -> int:
    """Drive a robot by a policy server, at a fixed rate.

    The next chunk of actions is asked for while this one is carried out, so the robot never waits; when a
    reply comes too late it holds, and that is counted as a miss. A factory is called with what the server
    says of itself and returns an object with observe() and act(action); pusht-sim and dualarm-sim are
    simulated. Options of a robot are given as --robot.NAME VALUE. Ctrl-C holds and ends.

    \b
    Example:
      recap serve pusht-nano --port 8000
      recap run --robot pusht-sim --robot.angle 20 --seed 500 --video runs/robot.mp4
      recap run --robot dualarm-sim --robot.task lift_pot --seed 500
      recap run --robot my_lab.arm:connect --url ws://127.0.0.1:8000 --steps 300
    """
    from recap.errors import InputError, ServerError
    from recap.serving.robot import make_robot
    from recap_client.client import PolicyClient
    from recap_client.robot_loop import LoopSpec, RobotLoop

    spec = LoopSpec(
        steps=steps,
        rate_hz=rate,
        box=box,
        speed=speed,
        delay_s=delay_ms / 1000,
        patience_s=patience,
    )
    frames = []
    options = dotted()
    key = token or os.environ.get("RECAP_TOKEN") or None
    # The loop has its own patience: a client that retries would only answer later.
    with PolicyClient(url, key, retries=0, connect_timeout_s=2.0, reply_timeout_s=5.0) as client:
        simulated = {} if ":" in name else {"seed": seed}
        robot = make_robot(name, client.metadata, {**simulated, **options})
        picture = getattr(robot, "picture", None)

        def watch(report: LoopReport) -> None:
            if video is not None and picture is not None:
                frames.append(picture())
            if sys.stderr.isatty():
                click.echo(f"\r{_line(report)}\033[K", nl=False, err=True)

        with ExitStack() as held:
            held.callback(getattr(robot, "close", lambda: None))
            if video is not None and not callable(picture):
                raise InputError(f"robot '{name}' has no picture() to make a video of: leave out --video")
            client.reset(seed=seed, options=getattr(robot, "options", None))
            loop = RobotLoop(robot, client, spec, watch)
            held.pop_all()  # from here on the loop closes it
        said = client.metadata
        click.echo(
            f"Robot: {name} at {loop.rate_hz:g} Hz, by {said['policy']} ({said['fingerprint']}) at {url}"
        )
        with _stopping(loop):
            report = loop.run()
    if sys.stderr.isatty():
        click.echo(err=True)
    _summarise(report)
    if json_file is not None:
        _write_json(
            json_file, loop, {"robot": name, "url": url, "delay_ms": delay_ms, "seed": seed, **options}
        )
    if video is not None and frames:
        from recap.video import write_video

        video.parent.mkdir(parents=True, exist_ok=True)
        write_video(video, frames, loop.rate_hz)
        click.echo(f"Video: {video}")
    if report.failed:
        raise ServerError(report.reason)
    return 0


@contextmanager
def _stopping(loop: RobotLoop) -> Iterator[None]:
    """Ctrl-C and a kill end the period that runs, then hold; a second Ctrl-C ends at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: object) -> None:
        loop.stop()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(report: LoopReport) -> str:
    known = "  ".join(f"{key} {value:.2f}" for key, value in report.status.items())
    return (
        f"period {report.periods}  {known}  reply {report.latency_p50_ms:.0f} ms  misses {report.misses}"
        f"  failures {report.failures}"
    )


def _summarise(report: LoopReport) -> None:
    ended = "failed" if report.failed else report.reason  # why it failed is printed last
    known = "".join(f", {key} {value:.3f}" for key, value in report.status.items())
    click.echo(f"Ended: {ended} after {report.periods} periods, {report.seconds:.1f} s{known}")
    click.echo(
        f"Replies: {report.replies}, p50 {report.latency_p50_ms:.0f} ms, p99 {report.latency_p99_ms:.0f} ms; "
        f"{report.held} held, {report.failures} failed"
    )
    click.echo(
        f"Misses: {report.misses} periods held for want of an action, {report.overruns} overran; "
        f"{report.limited} actions limited; jerk {report.jerk:.2f}"
    )


def _write_json(file: Path, loop: RobotLoop, options: dict[str, object]) -> None:
    import json
    from dataclasses import asdict

    from recap.run_directory import whole_file

    report = {key: None if value != value else value for key, value in asdict(loop.report).items()}
    targets = [target.tolist() for target in loop.targets]
    text = json.dumps({**options, "rate_hz": loop.rate_hz, **report, "targets": targets}, indent=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(text + "\n", "utf-8")
    click.echo(f"Report: {file}")
