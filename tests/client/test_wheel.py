"""The recap-client wheel in an environment without recap."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from served import replay_service, served

from episodes import random_episode

ROOT = Path(__file__).parents[2]
ARM = """
import numpy as np

class Arm:
    at = np.array([100.0, 100.0])

    def observe(self):
        pose, goal = np.array([200.0, 200.0, 0.0]), np.array([256.0, 256.0, 0.5])
        return {"observation/state": self.at, "observation/goal": goal, "observation/objects/block": pose}

    def act(self, action):
        self.at = action

def connect(metadata):
    return Arm()
"""


@pytest.mark.long
def test_the_client_wheel_alone_drives_a_robot_by_a_served_policy(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
        )

    assert run(sys.executable, "-m", "venv", "venv").returncode == 0
    installed = run("venv/bin/pip", "install", "-q", "--disable-pip-version-check", str(ROOT / "client"))
    assert installed.returncode == 0, installed.stderr
    listed = run("venv/bin/pip", "list", "--format=freeze").stdout
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert names - {"pip", "setuptools"} == {"recap-client", "numpy", "msgpack", "websockets"}
    (tmp_path / "arm.py").write_text(ARM, "utf-8")
    with served(replay_service([random_episode(f"demo/{i}", i) for i in range(6)])) as server:
        command = ["venv/bin/recap-client", "run", "--robot", "arm:connect", "--url", server.ws]
        ran = run(*command, "--steps", "10", "--rate", "50", "--report", "run.json")
        dry = run(*command, "--steps", "1", "--dry-run")
        lost = run(*command, "--robot", "lerobot:so101_follower")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Ended: steps after 10 periods" in ran.stdout
    assert (tmp_path / "run.json").exists()
    assert "Step 1: dry run, not sent" in dry.stdout
    assert lost.returncode == 2
    assert "[robot.lerobot]" in lost.stderr
