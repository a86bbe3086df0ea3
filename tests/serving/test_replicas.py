"""Two servers on one pool behind the load balancers of `examples/fleet`: no robot loses a reply."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from served import EPISODES, message_of

from episodes import observation_of, random_episode
from recap.pool.store import Pool
from recap_client.client import PolicyClient

pytestmark = pytest.mark.long
EXAMPLES = Path(__file__).parents[2] / "examples/fleet"
BALANCERS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "haproxy": ("haproxy.cfg", lambda config: ["haproxy", "-db", "-f", str(config)]),
    "nginx": (
        "nginx.conf",
        lambda config: [
            *("nginx", "-e", "stderr", "-c", str(config)),
            *("-g", f"daemon off; error_log stderr; pid {config.parent / 'pid'};"),
        ],
    ),
}
N_ROBOTS = 8


def free_ports(n: int) -> list[int]:
    with ExitStack() as held:
        ports = []
        for _ in range(n):
            taken = held.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            ports.append(int(taken.getsockname()[1]))
        return ports


def until(what: Callable[[], bool], timeout_s: float = 300.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.kill()


def replica(place: Path, port: int) -> list[str]:
    words = ["serve", "replay", "--retrieval", "pusht-object", "--pool", str(place), "--port", str(port)]
    return [sys.executable, "-c", "from recap.cli import main; main()", *words]


def ask(client: PolicyClient, number: int) -> dict[str, Any]:
    """Asks for an action and checks that the reply is for this robot's observation."""
    reply = client.infer(message_of(observation_of(EPISODES[number], 5)))
    assert reply["retrieval"]["episode_id"] == f"demo/{number}"
    assert not reply["held"]
    return reply


@pytest.mark.parametrize("name", BALANCERS)
def test_robots_continue_when_a_server_is_killed_or_stopped(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None and name not in os.environ.get("RECAP_NEEDS", ""):
        pytest.skip(f"{name} is not installed: make system")
    place, log = tmp_path / "pool", tmp_path / "log"
    Pool.create(place).add(EPISODES[:N_ROBOTS])
    front, *ports = free_ports(3)
    file, command = BALANCERS[name]
    text = (EXAMPLES / file).read_text()
    for stated, taken in zip((8000, 8001, 8002), (front, *ports), strict=True):
        assert str(stated) in text
        text = text.replace(f"127.0.0.1:{stated}", f"127.0.0.1:{taken}")
    (tmp_path / file).write_text(text)
    done, n_replies, n_connects = threading.Event(), [0] * N_ROBOTS, [0] * N_ROBOTS

    def drive(number: int) -> None:
        with PolicyClient(f"127.0.0.1:{front}", retries=8) as client:
            while not done.is_set():
                if n_replies[number] % 10 == 0:
                    client.reset(seed=n_replies[number])
                ask(client, number)
                n_replies[number] += 1
                n_connects[number] = client.n_connects

    def all_go_on() -> None:
        before = list(n_replies)
        until(lambda: bool(failed()) or all(n > b + 3 for n, b in zip(n_replies, before, strict=True)))
        assert not failed()

    def failed() -> list[BaseException | None]:
        return [robot.exception() for robot in robots if robot.done()]

    with ExitStack() as held:
        one, two = (held.enter_context(running(replica(place, port), log)) for port in ports)
        until(lambda: all(map(is_ready, ports)))
        held.enter_context(running(command(tmp_path / file), log))
        until(lambda: is_ready(front))
        threads = held.enter_context(ThreadPoolExecutor(N_ROBOTS))
        held.callback(done.set)
        robots = [threads.submit(drive, number) for number in range(N_ROBOTS)]
        all_go_on()

        # An upload to one server is used by the other at once.
        with PolicyClient(f"127.0.0.1:{ports[0]}") as first, PolicyClient(f"127.0.0.1:{ports[1]}") as second:
            version = first.upload(episode_message("new"))
            assert ask(second, 3)["pool_version"] == version

        one.kill()
        all_go_on()
        assert max(n_connects) == 2, "the robots of the killed server have reconnected"
        one = held.enter_context(running(replica(place, ports[0]), log))
        until(lambda: is_ready(ports[0]))
        two.send_signal(signal.SIGTERM)
        assert two.wait(20) == 0
        all_go_on()
        done.set()
        for robot in robots:
            robot.result()
        one.send_signal(signal.SIGTERM)
        assert one.wait(20) == 0
    assert b"Traceback" not in log.read_bytes()
    assert "new" in Pool.open(place).ids()


def episode_message(name: str) -> dict[str, Any]:
    episode = random_episode(name, 40)
    keys = ("id", "task", "embodiment", "fps", "proprio", "actions", "goal")
    message = {key: getattr(episode, key) for key in keys}
    return {**message, "objects": dict(episode.objects), "attributes": dict(episode.attributes)}
