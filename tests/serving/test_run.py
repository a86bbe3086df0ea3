"""The command `recap run` in a subprocess, driving robots through a real server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, replay_service, served

from recap.types import Episode
from recap.video import video_length

ENV = {key: value for key, value in os.environ.items() if key != "RECAP_TOKEN"}
TOKEN = "a-long-secret"


@pytest.fixture(scope="module")
def server(demos: list[Episode]) -> Iterator[Served]:
    """A replay server with a token over a few demonstrations."""
    service = replay_service(demos, token=TOKEN)
    with served(service) as server:
        yield server


def command(server: Served, *options: str) -> list[str]:
    return [sys.executable, "-m", "recap", "run", "--url", server.ws, "--token", TOKEN, *options]


def test_run_drives_a_simulated_robot_and_writes_report_and_video(server: Served, tmp_path: Path) -> None:
    files = {"--report": tmp_path / "out" / "run.json", "--video": tmp_path / "out" / "run.mp4"}
    options = [text for name, file in files.items() for text in (name, str(file))]
    options += [
        "--robot",
        "pusht-sim",
        "--robot.angle",
        "30",
        "--seed",
        "510",
        "--steps",
        "30",
        "--rate",
        "20",
    ]
    ran = subprocess.run(
        command(server, *options, "--delay-ms", "50"), capture_output=True, text=True, env=ENV, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = ran.stdout.splitlines()
    assert shown[0].startswith("Robot: pusht-sim at 20 Hz, by replay")
    assert shown[1].startswith("Ended: steps after 30 periods")
    assert "coverage" in shown[1]
    assert shown[2].startswith("Replies: ")
    assert shown[3].startswith("Misses: ")
    report = json.loads(files["--report"].read_text("utf-8"))
    assert (report["reason"], report["periods"], len(report["targets"])) == ("steps", 30, 30)
    assert report["replies"] >= 3
    assert report["latency_p50_ms"] >= 50
    assert report["status"]["best"] >= report["status"]["coverage"] >= 0
    assert video_length(files["--video"], 20) == 30


def test_run_can_turn_on_the_gate_without_the_servers_gate(server: Served, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    options = [
        "--robot",
        "pusht-sim",
        "--seed",
        "510",
        "--steps",
        "30",
        "--rate",
        "20",
        "--report",
        str(file),
    ]
    ran = subprocess.run(
        command(server, *options, "--gate", "on"), capture_output=True, text=True, env=ENV, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    gated = json.loads(file.read_text("utf-8"))["gated"]
    assert gated > 5, "the pusher lags behind its target"
    assert f"Gate: {gated} periods" in ran.stdout


def test_ctrl_c_ends_the_run_with_a_summary(server: Served) -> None:
    with subprocess.Popen(
        command(server, "--robot", "pusht-sim", "--robot.angle", "30"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENV, "PYTHONUNBUFFERED": "1"},
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline().startswith("Robot: ")
        time.sleep(0.6)
        run.send_signal(signal.SIGINT)
        rest, errors = run.communicate(timeout=120)
    assert (run.returncode, errors) == (0, "")
    assert rest.startswith("Ended: stopped after ")


ARM = """
import numpy as np

class Arm:
    at = np.array([100.0, 100.0])

    def observe(self):
        pose, goal = np.array([200.0, 200.0, 0.0]), np.array([256.0, 256.0, 0.5])
        seen = {"observation/state": self.at, "observation/goal": goal}
        return seen | {"observation/objects/block": pose}

    def act(self, action):
        self.at = action

    def close(self):
        print("closed", flush=True)

def connect(metadata):
    assert metadata["control_hz"] == 10
    return Arm()
"""


def test_a_custom_robot_is_found_by_module_and_function(server: Served, tmp_path: Path) -> None:
    (tmp_path / "arm.py").write_text(ARM, "utf-8")
    options = ["--robot", "arm:connect", "--steps", "5", "--rate", "50"]
    ran = subprocess.run(
        command(server, *options), capture_output=True, text=True, env=ENV, cwd=tmp_path, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "closed\nEnded: steps after 5 periods" in ran.stdout
    options += ["--video", "run.mp4"]
    ran = subprocess.run(
        command(server, *options), capture_output=True, text=True, env=ENV, cwd=tmp_path, timeout=300
    )
    assert (ran.returncode, ran.stdout) == (2, "closed\n"), "this robot has no image for a video"
    assert "--video" in ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--robot", "pusht-simm"], "did you mean 'pusht-sim'"),
        (["--robot", "pusht-sim", "--token", "another-secret"], "check the token"),
        (["--robot", "pusht-sim", "--url", "ws://127.0.0.1:9"], "is `recap serve` running"),
        (["--robot", "pusht-sim", "--rate", "0"], "0.1 to 1000"),
        (["--robot", "pusht-sim", "--gate", "yes"], "choose one of on, off"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(server: Served, options: list[str], words: str) -> None:
    ran = subprocess.run(command(server, *options), capture_output=True, text=True, env=ENV, timeout=300)
    assert ran.returncode == 2
    assert ran.stderr.startswith("recap: ")
    assert ran.stderr.count("\n") == 1
    assert words in ran.stderr
