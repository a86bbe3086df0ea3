"""`recap run` and `recap-client run`: find the robot, drive it, print a summary."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from recap_client.client import PolicyClient
from recap_client.errors import InputError, ServerError, one_of
from recap_client.limits import F64
from recap_client.messages import as_message, position_in
from recap_client.options import named, named_numbers, named_ranges
from recap_client.robot_loop import LoopReport, LoopSpec, Robot, RobotLoop
from recap_client.robots import make_robot


@dataclass(frozen=True)
class RunSpec:
    """The configuration of a run: robot, server and control loop."""

    robot: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the robot, as text
    url: str = "ws://127.0.0.1:8000"
    token: str | None = None
    loop: LoopSpec = field(default_factory=LoopSpec)
    rename: Mapping[str, str] = field(default_factory=dict)
    same_units: bool = False
    dry_run: bool = False
    seed: int = 500
    report: Path | None = None

    @classmethod
    def of_options(cls, robot: str, options: Mapping[str, str], given: Mapping[str, Any]) -> RunSpec:
        """Make a spec from the values of `RUN_OPTIONS` by name."""
        loop = LoopSpec(
            steps=given["steps"],
            rate_hz=given["rate"],
            speed=given["speed"],
            limits=named_ranges(given["limit"] or (), "--limit"),
            max_step=named_numbers(given["max_step"] or (), "--max-step"),
            delay_s=given["delay_ms"] / 1000,
            patience_s=given["patience"],
            task=given["task"] or "",
            gate=None if given["gate"] is None else one_of("gate", given["gate"], ("on", "off")) == "on",
        )
        return cls(
            robot=robot,
            options=options,
            url=given["url"],
            token=given["token"] or os.environ.get("RECAP_TOKEN") or None,
            loop=loop,
            rename=named(given["rename"] or (), "--rename"),
            same_units=given["same_units"],
            dry_run=given["dry_run"],
            seed=given["seed"],
            report=Path(given["report"]) if given["report"] else None,
        )


def drive(spec: RunSpec, film: Callable[[Any, float], None] | None = None) -> LoopReport:
    """Drive a robot until the run ends, and print a summary; raises ServerError if the server was lost.

    Args:
        film: called after every control period with the robot's picture and the rate.
    """
    # No retries in the client, since the loop itself retries until its patience ends.
    with PolicyClient(spec.url, spec.token, retries=0, connect_timeout_s=2.0, reply_timeout_s=5.0) as client:
        said = client.metadata
        simulated = {} if ":" in spec.robot else {"seed": str(spec.seed)}
        robot = make_robot(spec.robot, said, {**simulated, **spec.options}, spec.rename, spec.same_units)
        picture = getattr(robot, "picture", None)

        def watch(report: LoopReport) -> None:
            if film is not None and picture is not None:
                film(picture(), loop.rate_hz)
            if sys.stderr.isatty():
                print(f"\r{_line(report)}\033[K", end="", file=sys.stderr, flush=True)

        with ExitStack() as held:
            held.callback(getattr(robot, "close", lambda: None))
            if film is not None and not callable(picture):
                raise InputError(f"robot '{spec.robot}' has no picture() to film: leave out --video")
            how = spec.loop
            if spec.dry_run:
                robot = DryRobot(robot, said)
                how = replace(how, steps=how.steps or int(said["n_action_steps"]), gate=False)
            client.reset(seed=spec.seed, options=getattr(robot, "options", None))
            loop = RobotLoop(robot, client, how, watch)
            held.pop_all()  # from here on the loop closes the robot
        name = f"{said['policy']} ({said['fingerprint']})" if "policy" in said else "a policy"
        print(f"Robot: {spec.robot} at {loop.rate_hz:g} Hz, by {name} at {spec.url}", flush=True)
        if hasattr(robot, "takeover") and not said.get("pool_writable", False):
            print("Corrections: not kept, for the server's pool cannot be changed; serve one with --pool")
        with _stopping(loop):
            report = loop.run()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    _summarise(report)
    if spec.report is not None:
        _write_report(spec, loop)
    if report.failed:
        raise ServerError(report.reason)
    return report


@contextmanager
def _stopping(loop: RobotLoop) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the loop after the current period; a second signal ends it at once."""
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
    ended = "failed" if report.failed else report.reason  # the reason is printed last
    known = "".join(f", {key} {value:.3f}" for key, value in report.status.items())
    print(f"Ended: {ended} after {report.periods} periods, {report.seconds:.1f} s{known}")
    took = f", p50 {report.latency_p50_ms:.0f} ms, p99 {report.latency_p99_ms:.0f} ms"
    print(
        f"Replies: {report.replies}{took if report.replies else ''}; {report.held} held, "
        f"{report.failures} failed"
    )
    jerk = f"; jerk {report.jerk:.2f}" if math.isfinite(report.jerk) else ""  # a short run has none
    print(
        f"Misses: {report.misses} periods held for want of an action, {report.overruns} overran; "
        f"{report.limited} actions limited{jerk}"
    )
    if report.gated:
        print(f"Gate: {report.gated} periods waited for the robot to come to an action")
    if report.by_person:
        lost = f"; not kept: {report.not_kept}" if report.not_kept else ""
        print(f"Corrections: {report.corrections} in the pool, {report.by_person} periods by a person{lost}")


def _write_report(spec: RunSpec, loop: RobotLoop) -> None:
    assert spec.report is not None
    report = {key: None if value != value else value for key, value in asdict(loop.report).items()}
    asked = {"robot": spec.robot, "url": spec.url, "delay_ms": 1000 * spec.loop.delay_s, "seed": spec.seed}
    targets = [target.tolist() for target in loop.targets]
    text = json.dumps(
        {**asked, **spec.options, "rate_hz": loop.rate_hz, **report, "targets": targets}, indent=1
    )
    spec.report.parent.mkdir(parents=True, exist_ok=True)
    partial = spec.report.with_name(f".{spec.report.name}.partial")
    partial.write_text(text + "\n", "utf-8")
    partial.replace(spec.report)
    print(f"Report: {spec.report}")


class DryRobot:
    """Prints for each control period the current state and the action that would be sent.

    Args:
        robot: the robot to observe; its `act` is never called.
        said: the server's metadata.
    """

    def __init__(self, robot: Robot, said: Mapping[str, Any]) -> None:
        self.robot, self._said, self._n = robot, said, 0
        self._shown: F64 | None = None
        self.options = getattr(robot, "options", None)
        self._names = [
            (f"{f['name']}[{i}]" if f["size"] > 1 else str(f["name"]), str(f.get("unit", "")))
            for f in said.get("robot", {}).get("action", ())
            for i in range(int(f["size"]))
        ] or [(str(i), "") for i in range(int(said["action_dim"]))]

    def observe(self) -> Any:
        """The robot's observation."""
        return self.robot.observe()

    def act(self, action: F64) -> None:
        """Print the action."""
        self._n += 1
        if self._shown is not None and np.array_equal(action, self._shown):
            print(f"Step {self._n}: the same again")
            return
        self._shown = action
        seen = self.robot.observe()
        message = seen if isinstance(seen, Mapping) else as_message(seen)
        here = position_in(message, self._said)
        relative = self._said.get("action_mode") == "delta"
        rows = [("number", "unit", "now", "change" if relative else "target", "" if relative else "change")]
        for (name, unit), now, target in zip(self._names, here, action, strict=True):
            change = "" if relative else f"{target - now:+.4f}"
            rows.append((name, unit, "" if relative else f"{now:.4f}", f"{target:.4f}", change))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        print(f"Step {self._n}: dry run, not sent")
        for row in rows:
            left = f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}"
            print(f"{left}  {'  '.join(f'{row[i]:>{widths[i]}}' for i in (2, 3, 4))}".rstrip())

    def close(self) -> None:
        """Close the robot."""
        close = getattr(self.robot, "close", None)
        if callable(close):
            close()
