"""Is anything lost while robots, writers, attackers and killed processes share one pool for a long time?

python research/benchmarks/soak.py --minutes 30 --json docs/results/soak.json

Servers run on one pool behind HAProxy. Robots send the observations of a recorded episode at their own pace.
Writers append to the pool directly and over HTTP; direct writers are killed repeatedly. Servers are killed
too, and stopped gracefully in turn. A maintenance process prunes old versions. Attackers send malformed
frames, hostile uploads and unusable demonstrations; they stall, disconnect and do not read. Everything
stays on loopback.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import multiprocessing
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish
from serve_fuzz import as_message, mutations, observation, odd_messages, zips
from serve_load import misbehave, moments, rss_mib

from recap.cli.one_line import run_script
from recap.errors import DatasetError, InputError, RecapError
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.types import Episode
from recap_client.client import PolicyClient
from recap_client.wire import decode_map, encode
from recap_worlds.pusht.collecting import CollectSpec, demonstrate

TRACEBACK = re.compile(r"^Traceback .*\n(?: .*\n|\n)+(\S.*)", re.MULTILINE)  # its last line
HAPROXY = Path(__file__).parents[2] / "examples/fleet/haproxy.cfg"
CONTEXT = multiprocessing.get_context("forkserver")  # writers start quickly
READY_S = 180.0  # start-up time of a server on a busy machine
N_KEPT = 200  # versions
N_FRAMES = 12  # frames of the writers' demonstrations


@dataclass(frozen=True)
class Soak:
    """The processes to run, and how often each kind is killed."""

    minutes: float
    policy: str = "replay"
    robots: int = 16
    servers: int = 2  # more than one need HAProxy
    writer_s: float = 1.5  # between two appends of a writer
    kill_writer_s: float = 8.0
    kill_server_s: float = 90.0
    attack_s: float = 0.2  # between two attacks of a kind


def robot(address: str, messages: list[dict[str, Any]], seconds: float, told: dict[str, Any]) -> None:
    """Send observations at the rate of a robot, and check each reply."""
    until = time.time() + seconds
    with PolicyClient(address, retries=14, reply_timeout_s=60) as client:
        period_s = client.metadata["n_action_steps"] / client.metadata["control_hz"]
        n = 0
        while time.time() < until:
            began = time.monotonic()
            try:
                if n % len(messages) == 0:
                    client.reset(seed=n)
                    began = time.monotonic()
                reply = client.infer(messages[n % len(messages)])
                actions = np.asarray(reply["actions"])
                low, high = (np.asarray(client.metadata[f"action_{end}"]) for end in ("low", "high"))
                good = ((actions >= low) & (actions <= high)).all()  # false for nan
                told["odd"] += int(not good or reply["held"])
                told["latencies"].append(time.monotonic() - began)
            except RecapError as error:
                told["errors"][f"{error.code}: {str(error).rpartition(': ')[2][:80]}"] += 1
            n += 1
            time.sleep(max(0.0, period_s - (time.monotonic() - began)))
        told["connects"] += client.n_connects


def robots(address: str, n: int, seconds: float, out: Path) -> None:
    """Run all robots in one process."""
    told = [{"latencies": [], "odd": 0, "connects": 0, "errors": Counter()} for _ in range(n)]
    seen = [[decode_map(message, 2**24) for message in episode] for episode in moments(n)]
    threads = [threading.Thread(target=robot, args=(address, seen[i], seconds, told[i])) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.write_text(json.dumps(told))


def sound(base: Episode, name: str) -> Episode:
    """A valid demonstration for a writer: one of the pool, cut, and shifted by an amount from its name."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    return replace(
        base,
        id=name,
        timestamps=base.timestamps[:N_FRAMES],
        proprio=(base.proprio[:N_FRAMES] + rng.normal(0, 3, (N_FRAMES, 2))).astype(np.float32),
        actions=base.actions[:N_FRAMES],
        objects={key: poses[:N_FRAMES] for key, poses in base.objects.items()},
    )


def same(a: Episode, b: Episode) -> bool:
    """True if all numbers are bitwise equal."""
    pairs = [(a.proprio, b.proprio), (a.actions, b.actions), (a.objects["block"], b.objects["block"])]
    return all(x.tobytes() == y.tobytes() for x, y in pairs)


def first(place: str) -> Episode:
    """The pool's oldest demonstration."""
    return next(iter(Pool.open(place)))


def write(place: str, prefix: str, pause_s: float, out: Path) -> None:
    """Append until killed, and record what the pool acknowledged."""
    pool, base = Pool.open(place), first(place)
    with out.open("a") as acknowledged:
        for i in range(10**9):
            pool.add([sound(base, f"{prefix}/{i}")])
            print(f"{prefix}/{i}", file=acknowledged, flush=True)
            time.sleep(pause_s)


def upload(address: str, place: str, pause_s: float, seconds: float, out: Path) -> None:
    """Append over HTTP; after a failed upload, check whether it arrived and repeat it if not."""
    with out.open("a") as acknowledged:
        client, i, base, until = PolicyClient(address, retries=14), 0, first(place), time.time() + seconds
        while time.time() < until:
            name = f"http/{i}"
            try:
                client.upload(as_message(sound(base, name)))
            except RecapError as error:  # the server died before its answer, or all are busy
                if "is in the pool already" not in str(error):
                    time.sleep(0.2)
                    continue
            print(name, file=acknowledged, flush=True)
            i += 1
            time.sleep(pause_s)
        client.close()


def keep_house(place: str, seconds: float, out: Path) -> None:
    """Remove old versions."""
    pool, n, until = Pool.open(place), 0, time.time() + seconds
    while time.time() < until:
        n += len(pool.prune(N_KEPT, timedelta(seconds=60)))
        time.sleep(min(20.0, seconds / 4))
    out.write_text(json.dumps({"versions removed": n}))


def attack_by_frames(address: str, pause_s: float, seconds: float, out: Path) -> None:
    """Malformed messages and odd observations on separate connections."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    rng, until = np.random.default_rng(1), time.time() + seconds
    sources = [mutations([encode(observation())], rng), odd_messages(observation(), rng)]
    told: Counter[str] = Counter()
    while time.time() < until:
        with contextlib.suppress(OSError, EOFError, WebSocketException), connect(f"ws://{address}") as peer:
            peer.recv(timeout=30)
            while time.time() < until:
                peer.send(next(sources[rng.random() < 0.5]))
                told["refused" if isinstance(peer.recv(timeout=30), str) else "taken"] += 1
                time.sleep(pause_s / 10)
        told["connections"] += 1
    out.write_text(json.dumps(told))


def hostile(base: Episode, folder: Path, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Endless uploads that are broken, too large when unpacked, or unusable."""
    good = as_message(base)
    one = {"proprio": good["proprio"][:1], "actions": good["actions"][:1]}
    packed = zips(folder, rng)
    space = np.tile(np.array([0.1, 0.2, 0.3, 1, 0, 0, 0], np.float32), (12, 1))
    traps: list[dict[str, Any]] = [
        {"objects": {}},
        {"goal": None},
        {"goal": np.zeros(2, np.float32)},
        {"objects": {"block": space}},
        {"attributes": {"symmetry": 0, "block": "tee"}},
        {"attributes": {"symmetry": "many", "correction_from_s": "never"}},
        {"proprio": np.full((12, 2), 3e38, np.float32)},
        {**one, "objects": {"block": good["objects"]["block"][:1]}},
    ]
    for i in range(10**9):
        message = {**good, "id": f"evil/{i}"}
        kind = rng.integers(5)
        if kind == 0:
            yield "application/msgpack", next(mutations([encode(message)], rng))
        elif kind == 1:
            yield "application/msgpack", next(odd_messages(message, rng))
        elif kind == 2:
            yield "application/msgpack", encode({**message, **traps[i % len(traps)]})
        elif kind == 3:
            yield "application/zip", next(packed)
        else:
            yield "application/zip", bomb(folder)


def bomb(folder: Path) -> bytes:
    """A dataset that claims a billion episodes, with 50 MB of zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        info = json.loads((folder / "meta/info.json").read_text())
        archive.writestr("meta/info.json", json.dumps({**info, "total_episodes": 10**9}))
        archive.writestr("data/zeros.parquet", b"\0" * 50_000_000)
    return out.getvalue()


def attack_by_uploads(address: str, place: str, pause_s: float, seconds: float, out: Path) -> None:
    """Hostile uploads over HTTP."""
    told, base, until = Counter[str](), first(place), time.time() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        stage_episode(Path(scratch) / "staging", 0, sound(base, "evil"))
        assemble(Path(scratch) / "staging", 1, Path(scratch) / "data")
        for kind, data in hostile(sound(base, "evil"), Path(scratch) / "data", np.random.default_rng(2)):
            if time.time() > until:
                break
            where = f"http://{address}/api/pool?skip_existing=1"
            request = urllib.request.Request(where, data, {"Content-Type": kind})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    told[str(answer.status)] += 1
            except urllib.error.HTTPError as error:
                told[str(error.code)] += 1
                error.close()
            except OSError as error:
                told[type(error).__name__] += 1
            time.sleep(5 * pause_s)
    out.write_text(json.dumps(told))


def attack_by_stalling(port: int, seconds: float, out: Path) -> None:
    """Garbage, stalls, resets during a frame, clients that do not read, endless headers."""
    ours, theirs = CONTEXT.Pipe()
    misbehave(port, seconds, theirs)
    out.write_text(json.dumps({"connections": ours.recv()}))


class Servers:
    """`recap serve` processes on one pool, behind a load balancer."""

    def __init__(self, soak: Soak, place: str, folder: Path) -> None:
        self.soak, self.place, self.log = soak, place, folder / "log"
        self.front, *self.ports = free_ports(1 + soak.servers)
        self.exits: Counter[str] = Counter()
        self.processes = [self._start(port) for port in self.ports]
        self.balancer: subprocess.Popen[bytes] | None = None
        for port in self.ports:
            self._wait(port)
        if soak.servers == 1:
            self.front = self.ports[0]
            return
        if shutil.which("haproxy") is None:
            raise InputError("several servers need haproxy: make system, or --servers 1")
        text = HAPROXY.read_text().partition("    server one")[0].replace(":8000", f":{self.front}")
        text += "".join(f"    server s{port} 127.0.0.1:{port}\n" for port in self.ports)
        (folder / "haproxy.cfg").write_text(text)
        self.balancer = self._run(["haproxy", "-db", "-f", str(folder / "haproxy.cfg")])
        self._wait(self.front)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        how = ["--retrieval", "pusht-object"] if self.soak.policy == "replay" else []
        words = ["serve", self.soak.policy, "--pool", self.place, "--port", str(port), "--threads", "1", *how]
        return self._run([sys.executable, "-c", "from recap.cli import main; main()", *words])

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _wait(self, port: int) -> None:
        end = time.monotonic() + READY_S
        while not is_ready(port):
            if time.monotonic() > end:
                raise DatasetError(f"no server is ready at port {port}: see {self.log}")
            time.sleep(0.1)

    def replace(self, number: int, how: signal.Signals) -> None:
        """Stop one server and start it again; the others keep serving."""
        self._end(self.processes[number], how)
        self.processes[number] = self._start(self.ports[number])
        self._wait(self.ports[number])

    def _end(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        process.send_signal(how)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = "never"
        self.exits[f"{how.name}: {code}"] += 1

    def memory(self) -> list[float]:
        """Memory of each server in MiB."""
        found = []
        for process in self.processes:
            with contextlib.suppress(OSError, IndexError):
                found.append(round(rss_mib(process.pid), 1))
        return found

    def close(self) -> None:
        """Stop all servers."""
        for process in self.processes:
            self._end(process, signal.SIGTERM)
        if self.balancer is not None:
            self.balancer.kill()
            self.balancer.wait()


def is_ready(port: int) -> bool:
    """True if a server, or one behind a load balancer, accepts robots."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_ports(n: int) -> list[int]:
    """Unused ports."""
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


def run(soak: Soak, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Run everything and return the results."""
    with tempfile.TemporaryDirectory(prefix="recap-soak-") as scratch:
        return _run(soak, Path(scratch), say)


def _run(soak: Soak, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    place, rng = str(folder / "pool"), random.Random(0)
    spec = CollectSpec("disc", (-30.0, 0.0, 30.0), 6)
    Pool.create(place).add([replace(demonstrate(spec, demo), images={}) for demo in spec.demos()])
    say(f"Starting {soak.servers} servers …")
    servers = Servers(soak, place, folder)
    address, seconds = f"127.0.0.1:{servers.front}", 60 * soak.minutes
    for acknowledged in ("writers", "uploads"):
        (folder / acknowledged).touch()
    began = time.time()
    jobs: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
        "robots": (robots, (address, soak.robots, seconds)),
        "uploads": (upload, (address, place, soak.writer_s, seconds)),
        "house": (keep_house, (place, seconds)),
        "frames": (attack_by_frames, (address, soak.attack_s, seconds)),
        "hostile": (attack_by_uploads, (address, place, soak.attack_s, seconds)),
        "stalls": (attack_by_stalling, (servers.front, seconds)),
    }
    processes = {
        name: CONTEXT.Process(target=work, args=(*given, folder / name), daemon=True)
        for name, (work, given) in jobs.items()
    }
    writers: list[Any] = []
    memory: list[list[float]] = []
    n_killed = n_replaced = 0
    try:
        for process in processes.values():
            process.start()
        next_writer, next_server, next_look = began, began + soak.kill_server_s, began
        while processes["robots"].is_alive() and time.time() < began + seconds + READY_S:
            now = time.time()
            if now >= next_writer:
                for process in writers:
                    process.kill()
                    process.join()
                n_killed += len(writers)
                given = [(place, f"beside {n_killed + side}", soak.writer_s) for side in range(2)]
                writers = [
                    CONTEXT.Process(target=write, args=(*each, folder / "writers"), daemon=True)
                    for each in given
                ]
                for process in writers:
                    process.start()
                next_writer = now + rng.uniform(0.5, 1.5) * soak.kill_writer_s
            if now >= next_server and soak.servers > 1:
                how = (signal.SIGTERM, signal.SIGKILL)[n_replaced // soak.servers % 2]
                servers.replace(n_replaced % soak.servers, how)
                n_replaced += 1
                next_server = time.time() + soak.kill_server_s
            if now >= next_look:
                memory.append([round(now - began, 1), *servers.memory()])
                say(f"{now - began:6.0f} s of {seconds:.0f}, servers MiB {servers.memory()}")
                next_look = now + max(5.0, seconds / 60)
            time.sleep(0.2)
        for process in processes.values():
            process.join(120)
    finally:
        for process in (*writers, *processes.values()):
            if process.is_alive():
                process.kill()
        servers.close()
    told = {name: json.loads((folder / name).read_text()) for name in processes if name != "uploads"}
    acknowledged = [
        name for file in ("writers", "uploads") for name in (folder / file).read_text().splitlines()
    ]
    log = (folder / "log").read_text(errors="replace")
    return {
        "soak": asdict(soak),
        **_replies(told.pop("robots"), time.time() - began),
        "writers_killed": n_killed,
        "servers_ended": dict(servers.exits),
        "attacks": told,
        "memory_mib": memory,
        "tracebacks": dict(Counter(TRACEBACK.findall(log))),
        **_losses(place, acknowledged),
    }


def _replies(told: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    latencies = np.array([x for each in told for x in each["latencies"]])
    errors: Counter[str] = Counter()
    for each in told:
        errors.update(each["errors"])
    return {
        "seconds": round(seconds, 1),
        "replies": len(latencies),
        "replies_a_robot": [min(n := [len(each["latencies"]) for each in told]), max(n)],
        "latency_p50_ms": 1000 * float(np.quantile(latencies, 0.5)),
        "latency_p99_ms": 1000 * float(np.quantile(latencies, 0.99)),
        "latency_max_ms": 1000 * float(latencies.max()),
        "errors": dict(errors),
        "odd_replies": sum(each["odd"] for each in told),
        "connected_anew": sum(each["connects"] for each in told) - len(told),
    }


def _losses(place: str, acknowledged: list[str]) -> dict[str, Any]:
    pool = Pool.open(place)
    view, report, base = pool.view(), pool.verify(), first(place)
    there = set(view.episode_ids)
    kept = [name for name in acknowledged if name in there]
    return {
        "acknowledged": len(acknowledged),
        "lost": len(acknowledged) - len(kept),
        "changed": sum(not same(view.episode(name), sound(base, name)) for name in kept),
        "demonstrations": len(there),
        "version": pool.version,
        "damaged": [finding.file for finding in report.findings],
    }


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--policy", default="pusht-small")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--robots", type=int, default=16)
    options = parser.parse_args()
    minutes = 0.5 if options.quick else options.minutes
    often = min(90.0, 20 * minutes)
    soak = Soak(minutes, options.policy, options.robots, options.servers, kill_server_s=often)
    result = run(soak, lambda text: print(text, flush=True))
    print(json.dumps({key: value for key, value in result.items() if key != "memory_mib"}, indent=1))
    finish(result, options.json)


if __name__ == "__main__":
    run_script(main)
