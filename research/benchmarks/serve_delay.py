"""What does a slow reply cost: success and smoothness with 0, 100 and 300 ms, by how the robot bridges it?

    python research/benchmarks/serve_delay.py --json docs/results/serve_delay.json

Time is simulated: a delay is a number of control periods of 100 ms, so the speed of this machine has no
effect. The server's own code answers (`Service.serve`), without the socket. A last part runs the real loop
with its threads and a real server in real time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish
from serve_load import agent_named

from recap.cli.one_line import run_script
from recap.evaluation.statistics import wilson
from recap.serving.observations import Reset
from recap.serving.service import Request, ServeSpec, Service, Session
from recap.types import F64
from recap_client.realtime import Timeline, ask_after
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.tasks import FPS, MAX_STEPS

ANGLES = (-30.0, 20.0, 50.0)
DELAYS_MS = (0, 100, 300)
THRESHOLDS = (0.85, 0.95)


class Ensemble(Timeline):
    """Averages all chunks that contain the current period; newer ones weigh more."""

    def __init__(self, decay: float) -> None:
        super().__init__(0)
        self.decay = decay
        self._chunks: list[tuple[int, F64]] = []

    def __len__(self) -> int:
        return max((at + len(chunk) - self.n_taken for at, chunk in self._chunks), default=0)

    def join(self, chunk: F64, asked_at: int) -> int:
        """Add a chunk."""
        self._chunks.append((asked_at, np.asarray(chunk, np.float64)))
        return len(chunk)

    def take(self) -> F64 | None:
        """The weighted mean for the current period."""
        self._chunks = [(at, c) for at, c in self._chunks if at + len(c) > self.n_taken]
        if not self._chunks:
            return None
        said = np.array([chunk[self.n_taken - at] for at, chunk in self._chunks])
        weights = np.exp(-self.decay * np.arange(len(said))[::-1])
        self.last = np.asarray(weights @ said / weights.sum(), np.float64)
        self.n_taken += 1
        return self.last


@dataclass(frozen=True)
class Way:
    """A way to bridge the wait."""

    name: str
    waits: bool = False  # requests only at the end of a chunk
    frozen: bool = False  # time stops while waiting, which is possible only in simulation
    stale: bool = False  # a late chunk starts at its first action
    n_blend: int = 0
    decay: float | None = None  # of an ensemble

    def timeline(self) -> Timeline:
        """An empty timeline."""
        return Timeline(self.n_blend) if self.decay is None else Ensemble(self.decay)


WAYS = (
    Way("synchronous, time stands still", waits=True, frozen=True),
    Way("synchronous, holds while it waits", waits=True),
    Way("asynchronous, late chunk from its start", stale=True),
    Way("asynchronous, switch at the right index"),
    Way("asynchronous, ensemble 0.5", decay=0.5),
    Way("asynchronous, fade over 2", n_blend=2),
    Way("asynchronous, fade over 3", n_blend=3),
    Way("asynchronous, fade over 4", n_blend=4),
    Way("asynchronous, fade over 6", n_blend=6),
)
CHOSEN = "asynchronous, fade over 4"
# The cells measured for a policy, which takes a hundred times as long as replay.
FEW = {(0, WAYS[0].name), (0, CHOSEN), (100, WAYS[1].name), (100, CHOSEN)}
FEW |= {(300, WAYS[1].name), (300, WAYS[2].name), (300, CHOSEN)}


@dataclass
class Robot:
    """One simulated episode."""

    env: PushTEnv
    session: Session
    timeline: Timeline
    answered_at: int = 0  # actions taken when the last observation was made
    due: int | None = None  # the period in which the requested chunk arrives
    chunk: F64 | None = None
    best: float = 0.0
    done: bool = False
    misses: int = 0
    targets: list[F64] = field(default_factory=list)


def roll_out(service: Service, way: Way, delay: int, angle: float, seeds: Sequence[int]) -> list[Robot]:
    """Episodes in lockstep, so that their requests are answered together."""
    robots = []
    for seed in seeds:
        env = PushTEnv("triangle", angle)
        env.reset(seed=seed)
        session = service.new_session()
        session.pending = Reset(seed)
        robots.append(Robot(env, session, way.timeline()))
    delay = 0 if way.frozen else delay
    n = service.agent.n_action_steps
    every = n if way.waits else ask_after(service.chunk_size, n, delay)
    for period in range(MAX_STEPS):
        running = [robot for robot in robots if not robot.done]
        receive(running, way, period, n)
        asking = [r for r in running if r.due is None and is_due(r, way, every)]
        ask(service, asking, period + delay)
        receive(asking, way, period, n)
        for robot in running:
            act(robot)
    for robot in robots:
        service.release(robot.session)
    return robots


def is_due(robot: Robot, way: Way, every: int) -> bool:
    """True if the next observation is to be sent."""
    if way.waits or not robot.targets:
        return not len(robot.timeline)
    return not len(robot.timeline) or robot.timeline.n_taken - robot.answered_at >= every


def ask(service: Service, robots: Sequence[Robot], due: int) -> None:
    """Compute the answers now; they arrive later."""
    size = service.agent.image_size
    for first in range(0, len(robots), 10):
        some = robots[first : first + 10]
        requests = [Request(r.session, r.env.observe(size), r.timeline.n_taken - r.answered_at) for r in some]
        for robot, reply in zip(some, service.serve(requests), strict=True):
            if isinstance(reply, Exception):
                raise reply
            robot.chunk = np.asarray(reply.message["actions"], np.float64)
            robot.answered_at, robot.due = robot.timeline.n_taken, due


def receive(robots: Sequence[Robot], way: Way, period: int, n_action_steps: int) -> None:
    """Add the chunks that arrive in this period."""
    for robot in robots:
        if robot.due is None or robot.due > period or robot.chunk is None:
            continue
        chunk = robot.chunk[:n_action_steps] if way.waits else robot.chunk
        robot.timeline.join(chunk, robot.timeline.n_taken if way.stale else robot.answered_at)
        robot.due = None


def act(robot: Robot) -> None:
    """One period: the next action, or hold."""
    action = robot.timeline.take()
    if action is None:
        robot.misses += bool(robot.targets)  # the wait for the first chunk is no miss
        action = robot.targets[-1] if robot.targets else np.asarray(robot.env.agent.position)
    if robot.timeline.n_taken:
        robot.targets.append(action)
    _, _, robot.done, _, info = robot.env.step(action)
    robot.best = max(robot.best, float(info["coverage"]))


def roughness(robots: Sequence[Robot], order: int) -> float:
    """Mean length of the targets' differences of this order, px per period to that power."""
    parts = [np.linalg.norm(np.diff(np.array(r.targets), order, axis=0), axis=1) for r in robots]
    return float(np.mean(np.concatenate(parts)))


def cell(service: Service, way: Way, delay_ms: int, angles: Sequence[float], seeds: Sequence[int]) -> Any:
    """One way at one delay."""
    delay = round(delay_ms / 1000 * FPS)
    robots = [r for angle in angles for r in roll_out(service, way, delay, angle, seeds)]
    success = {}
    for threshold in THRESHOLDS:
        k = sum(robot.best > threshold for robot in robots)
        interval = wilson(k, len(robots))
        success[f"{threshold:g}"] = {
            "successes": k,
            "n": len(robots),
            "low": interval.low,
            "high": interval.high,
        }
    return {
        "agent": service.spec.agent.policy,
        "way": way.name,
        "delay_ms": delay_ms,
        "angles": list(angles),
        "seeds": [seeds[0], seeds[-1]],
        "success": success,
        "steps": float(np.mean([len(robot.targets) for robot in robots])),
        "acceleration": roughness(robots, 2),
        "jerk": roughness(robots, 3),
        "misses": sum(robot.misses for robot in robots),
        "periods": sum(len(robot.targets) for robot in robots),
    }


def is_new(way: Way, delay_ms: int) -> bool:
    """True if the way differs from the previous ways at that delay."""
    if way.frozen or not delay_ms:
        return not delay_ms and (way.frozen or way.n_blend > 0 or way.decay is not None)
    return True


def by_the_clock(n_periods: int) -> list[dict[str, Any]]:
    """`recap run` with `recap serve replay`, each a process: do the threads keep the rate?"""
    recap = [sys.executable, "-m", "recap"]
    serve = [*recap, "serve", "replay", "--retrieval", "pusht-object", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=environment) as server,
    ):
        try:
            assert server.stdout is not None
            url = next(line.split()[1] for line in server.stdout if line.startswith("Robots: "))
            for delay_ms in DELAYS_MS:
                file = Path(folder) / f"{delay_ms}.json"
                run = [*recap, "run", "--robot", "pusht-sim", "--url", url, "--steps", str(n_periods)]
                run += ["--delay-ms", str(delay_ms), "--seed", "501", "--json", str(file)]
                subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
                row = json.loads(file.read_text("utf-8"))
                del row["targets"], row["url"]
                rows.append(row)
                print(row, flush=True)
        finally:
            server.terminate()
    return rows


def main() -> None:
    """Run it."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--agents", default="replay,pusht-nano")
    options = parser.parse_args()
    rows: list[Any] = []
    clock = by_the_clock(20 if options.quick else 100)
    for agent in filter(None, options.agents.split(",")):
        service = Service.open(ServeSpec(replace(agent_named(agent), reaction="ignore")))
        is_slow = service.policy is not None
        angles = ANGLES[:2] if is_slow else ANGLES
        seeds = range(500, 502 if options.quick else 510 if is_slow else 520)
        for delay_ms in DELAYS_MS:
            for way in WAYS:
                if not is_new(way, delay_ms) or (is_slow and (delay_ms, way.name) not in FEW):
                    continue
                row = cell(service, way, delay_ms, angles, seeds)
                rows.append(row)
                shown = {k: v["successes"] for k, v in row["success"].items()}
                print({**row, "success": shown}, flush=True)
    finish({"rows": rows, "clock": clock}, options.json)


if __name__ == "__main__":
    run_script(main)
