"""How does the server cope with many clients: throughput, fairness, health, memory, and malicious clients?

python research/benchmarks/serve_load.py --minutes 10 --json docs/results/serve_load.json

Server, robots and the health monitor are separate processes on loopback. Every robot sends the next
observation as soon as it is answered: a 96-px image and a position; poses are estimated from the image.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from report import arguments, finish

from recap.assembly import REPLAY, AgentConfig
from recap.cli.one_line import run_script
from recap.serving.spec import Limits
from recap_client.wire import decode_map, encode

N_MOMENTS = 24  # observations of each recorded episode
HEALTH_EVERY_S = 0.02
RSS_EVERY_S = 0.5
UPGRADE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
HALF_A_FRAME = b"\x82\xfe\x40\x00AAAA" + b"x" * 100  # the other 16 kB never arrive


@dataclass(frozen=True)
class Phase:
    """One server under one load."""

    name: str
    seconds: float
    limits: Limits
    n_robots: int = 64
    hostile: bool = False


@dataclass
class Robot:
    """The measurements of one client."""

    latencies_s: list[float] = field(default_factory=list)
    n_busy: int = 0
    n_errors: int = 0


def agent_named(name: str) -> AgentConfig:
    """An included policy, or replay on PushT, which has a pool."""
    return AgentConfig(name, retrieval="pusht-object" if name == REPLAY else "")


def serve(agent: str, limits: Limits, port: Any) -> None:
    """Run the server until it is stopped."""
    from recap.serving.app import build_app, run
    from recap.serving.service import ServeSpec, Service

    spec = ServeSpec(agent_named(agent), port=0, limits=limits)

    def ready(bound: int) -> None:
        port.send(bound)

    run(build_app(Service.open(spec)), spec, ready)


def idle(port: Any) -> None:
    """A server that does nothing else: the cost of an answer on this machine at this time."""
    from aiohttp import web

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/healthz", health)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.send(int(runner.addresses[0][1]))
        await asyncio.Event().wait()

    asyncio.run(main())


def moments(n_episodes: int) -> list[list[bytes]]:
    """Messages of episodes in which the pusher wanders: (episode, moment)."""
    from recap_worlds.pusht.env import PushTEnv

    found = []
    for i in range(n_episodes):
        env = PushTEnv("triangle", 15.0 * (i % 9 - 4))
        env.reset(seed=600 + i)
        rng = np.random.default_rng(i)
        messages = []
        for _ in range(N_MOMENTS):
            seen = env.observe(96, with_poses=False)
            message = {
                "observation/image": seen.images["top"],
                "observation/state": seen.proprio,
                "prompt": seen.task,
            }
            messages.append(encode(message))
            for _ in range(4):
                env.step(np.clip(seen.proprio + rng.normal(0, 30, 2), 0, 512))
        found.append(messages)
    return found


async def robot(port: int, messages: Sequence[bytes], until: float, seen: Robot) -> None:
    """Send, wait for the answer, repeat."""
    timeout = aiohttp.ClientWSTimeout(ws_close=2.0)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/", compress=0, timeout=timeout) as wire,
    ):
        await wire.receive()
        n = 0
        while time.monotonic() < until:
            if n % N_MOMENTS == 0:
                await wire.send_bytes(encode({"reset": True}))
                await wire.receive()
            started = time.monotonic()
            await wire.send_bytes(messages[n % N_MOMENTS])
            answer = await wire.receive()
            if answer.type is aiohttp.WSMsgType.BINARY:
                reply = decode_map(answer.data, 2**20)
                assert reply["actions"].shape == (8, 2)
                assert np.isfinite(reply["actions"]).all()
                now = time.monotonic()
                if now < until:  # later answers are outside the measured time
                    seen.latencies_s.append(now - started)
                n += 1
            elif answer.type is aiohttp.WSMsgType.TEXT and answer.data.startswith("busy"):
                seen.n_busy += 1
                await asyncio.sleep(0.05)
            else:
                seen.n_errors += 1
                return


def run_robots(port: int, n: int, seconds: float, out: Any) -> None:
    """Run all robots in one process."""
    episodes = moments(16)

    async def all_of_them() -> list[Robot]:
        robots = [Robot() for _ in range(n)]
        until = time.monotonic() + seconds
        tasks = (robot(port, episodes[i % len(episodes)], until, r) for i, r in enumerate(robots))
        await asyncio.gather(*tasks)
        return robots

    out.send([(r.latencies_s, r.n_busy, r.n_errors) for r in asyncio.run(all_of_them())])


def watch(port: int, other: int, seconds: float, out: Any) -> None:
    """Request the health of both servers repeatedly, and sometimes the length of the queue."""
    health_s: list[float] = []
    other_s: list[float] = []
    queue = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for where, times in ((port, health_s), (other, other_s)):
            started = time.monotonic()
            assert _get(where, "/healthz") == "ok\n"
            times.append(time.monotonic() - started)
        if len(health_s) % 10 == 0:
            queue.append(metric(_get(port, "/metrics"), "recap_queue_length"))
        time.sleep(HEALTH_EVERY_S)
    out.send((health_s, other_s, queue))


def _get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def metric(text: str, name: str) -> float:
    """One value of a Prometheus page."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def misbehave(port: int, seconds: float, out: Any) -> None:
    """Garbage, stalls, resets during a frame, clients that do not read, endless headers; repeated."""
    rng = np.random.default_rng(0)
    until, n, held = time.monotonic() + seconds, 0, []
    while time.monotonic() < until:
        with suppress(OSError):
            peer = socket.create_connection(("127.0.0.1", port), timeout=2)
            kind = n % 5
            if kind == 0:
                peer.sendall(rng.bytes(2000))
            elif kind == 1:
                peer.sendall(b"POST /api/pool HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
            else:
                peer.sendall(UPGRADE.format(port=port).encode())
                peer.recv(200)
                peer.sendall(HALF_A_FRAME if kind < 4 else b"\x82\x84AAAA\x00\x00\x00\x00" * 30)
            if kind == 2:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                peer.close()
            else:
                held.append(peer)
            n += 1
        if len(held) > 40:
            held.pop(0).close()
        time.sleep(0.02)
    for peer in held:
        peer.close()
    out.send(n)


def rss_mib(pid: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, which do not depend on other load."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_phase(phase: Phase, agent: str) -> dict[str, Any]:
    """Run one server with its load, and return the measurements."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(agent, phase.limits, theirs))
    server.start()
    beside = context.Process(target=idle, args=(theirs,))
    try:
        port = ours.recv()
        beside.start()
        other = ours.recv()
        jobs: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "robots": (run_robots, (port, phase.n_robots, phase.seconds)),
            "health": (watch, (port, other, phase.seconds)),
        }
        if phase.hostile:
            jobs["hostile"] = (misbehave, (port, phase.seconds))
        pipes, processes = {}, []
        for name, (work, given) in jobs.items():
            pipes[name], end = context.Pipe()
            processes.append(context.Process(target=work, args=(*given, end)))
            processes[-1].start()
        rss, before_s = [], cpu_s(server.pid or 0)
        while not pipes["robots"].poll(RSS_EVERY_S):
            assert server.is_alive(), "the server has died"
            rss.append(rss_mib(server.pid or 0))
        got = {name: pipe.recv() for name, pipe in pipes.items()}
        for process in processes:
            process.join()
        text = _get(port, "/metrics")
        spent_s = cpu_s(server.pid or 0) - before_s
    finally:
        for process in (beside, server):
            process.terminate()
            process.join(20)
    assert server.exitcode == 0, f"the server ended with {server.exitcode}"
    served = metric(text, "recap_requests_total")
    return {**_summary(phase, got, rss, text), "replies_per_cpu_s": served / spent_s}


def _summary(phase: Phase, got: dict[str, Any], rss: Sequence[float], text: str) -> dict[str, Any]:
    robots = got["robots"]
    counts = [len(each) for each, _, _ in robots]
    latencies = np.array([x for each, _, _ in robots for x in each] or [math.nan])
    health, other = (found or [math.nan] for found in got["health"][:2])
    settled = rss[len(rss) // 4 :] or [0.0]
    half = len(settled) // 2
    return {
        "name": phase.name,
        "seconds": phase.seconds,
        "robots": phase.n_robots,
        "max_batch": phase.limits.max_batch,
        "max_waiting": phase.limits.max_waiting,
        "replies": sum(counts),
        "replies_per_s": sum(counts) / phase.seconds,
        "latency_p50_s": float(np.quantile(latencies, 0.5)),
        "latency_p99_s": float(np.quantile(latencies, 0.99)),
        "replies_a_robot": [min(counts), max(counts)],
        "errors": sum(n for _, _, n in robots),
        "busy": sum(n for _, n, _ in robots),
        "longest_queue": max(got["health"][2], default=0),
        "batch_mean": metric(text, "recap_batch_size_sum") / metric(text, "recap_batch_size_count"),
        "health_asked": len(got["health"][0]),
        "health_p50_ms": 1000 * statistics.median(health),
        "health_p99_ms": 1000 * float(np.quantile(health, 0.99)),
        "health_max_ms": 1000 * max(health),
        "health_over_100_ms": sum(x > 0.1 for x in health),
        "idle_p50_ms": 1000 * statistics.median(other),
        "idle_p99_ms": 1000 * float(np.quantile(other, 0.99)),
        "idle_max_ms": 1000 * max(other),
        "rss_mib": [round(statistics.mean(part), 1) for part in (settled[:half] or settled, settled[half:])],
        "rss_max_mib": round(max(rss, default=0.0), 1),
        "hostile_connections": got.get("hostile", 0),
    }


def phases(minutes: float, n_robots: int) -> list[Phase]:
    """The same load on several servers; the first two alternate, because other load on the machine varies."""
    s = 60 * minutes
    one = Phase("one at a time", 0.1 * s, Limits(max_batch=1), n_robots)
    batched = Phase("batched", 0.15 * s, Limits(), n_robots)
    return [
        one,
        batched,
        batched,
        one,
        Phase("batched, hostile clients beside", 0.4 * s, Limits(), n_robots, hostile=True),
        Phase("batched, short queue", 0.1 * s, Limits(max_waiting=n_robots // 4), n_robots),
    ]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all, without starting the servers")
    parser.add_argument("--robots", type=int, default=64)
    parser.add_argument("--agent", default="pusht-nano")
    options = parser.parse_args()
    minutes = 0.5 if options.quick else options.minutes
    rows = []
    for phase in phases(minutes, options.robots):
        rows.append(run_phase(phase, options.agent))
        print({key: round(v, 3) if isinstance(v, float) else v for key, v in rows[-1].items()}, flush=True)
    gains = {
        key: [rows[b][key] / rows[a][key] for a, b in ((0, 1), (3, 2))]
        for key in ("replies_per_s", "replies_per_cpu_s")
    }
    print("batched / one at a time:", gains)
    finish({"agent": options.agent, "minutes": minutes, "gains": gains, "rows": rows}, options.json)


if __name__ == "__main__":
    run_script(main)
