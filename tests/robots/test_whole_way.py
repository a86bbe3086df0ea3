"""Robots unknown to the library, from a hand-written description to a driven robot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recap
from recap.testing import check_robot
from robots import joint_arm, one_arm
from robots.following import environment, follow, follow_lines
from robots.recording import record_many, to_lerobot

ROOT = Path(__file__).parents[2]
ONE_ARM = """
name: one_arm
control_hz: 20
proprio:
  - {name: tool.position, kind: position, size: 3, unit: m}
  - {name: tool.rotation, kind: rotation6d}
  - {name: gripper, kind: gripper, limits: [0, 1]}
action: {like: proprio, mode: absolute, max_step: {tool.position: 0.05}}
cameras: {front: {size: [60, 80], fit: letterbox}, wrist: {size: [48, 96], fit: crop}}
objects: {}
"""
MAP = """
images: {front: images.front, wrist: images.wrist}
tasks: [lift, press]
max_steps: 12
control_hz: 20
"""
JOINT_ARM = """
name: joint_arm
control_hz: 20
proprio:
  - {name: joints, kind: joint, size: 3}
  - {name: gripper, kind: gripper}
cameras: {cam: {}}
"""


def run(folder: Path, *words: str) -> str:
    """Runs a command that must succeed; returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "recap", *words], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """A server's address, until the block ends."""
    command = [sys.executable, "-m", "recap", "serve", *words]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                found = re.search(r"Robots: (ws://\S+)", line)
                if found:
                    yield found[1]
                    break
            else:
                pytest.fail("".join(lines))
        finally:
            process.terminate()


class OneArmRobot:
    """The one-arm robot as `recap run` drives it, with openpi's keys for its two cameras."""

    def __init__(self) -> None:
        self.env = one_arm.OneArmEnv("target")
        self.seen, self.info = self.env.reset(seed=500, options={"task": "press"})
        self.actions: list[np.ndarray[Any, Any]] = []

    def observe(self) -> dict[str, Any]:
        return {
            "observation/state": self.seen["state"],
            "observation/image": self.seen["images"]["front"],
            "observation/wrist_image": self.seen["images"]["wrist"],
            "prompt": self.info["task"],
        }

    def act(self, action: Any) -> None:
        self.actions.append(np.array(action))
        self.seen, *_, self.info = self.env.step(np.asarray(action, np.float32))


def connect(metadata: Mapping[str, Any]) -> OneArmRobot:
    """The factory for `recap run --robot robots.test_whole_way:connect`."""
    return OneArmRobot()


def make_env() -> one_arm.OneArmEnv:
    """The factory for `recap eval --env robots.test_whole_way:make_env`."""
    return one_arm.OneArmEnv("target")


def make_joint_env() -> joint_arm.JointArmEnv:
    """The same for the joint arm."""
    return joint_arm.JointArmEnv("target")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets of both embodiments of the one-arm robot, its description, and a trained policy."""
    place = tmp_path_factory.mktemp("third")
    (place / "robot.yaml").write_text(ONE_ARM)
    (place / "map.yaml").write_text(MAP)
    for name in ("target", "pool"):
        env = one_arm.OneArmEnv(name)
        episodes = record_many(env, one_arm.expert, ("lift", "press"), range(3), f"one_arm-{name}")
        to_lerobot(episodes, place / name)
    run(place, "pool", "create", "pools/arm")
    run(place, "pool", "add", "pools/arm", "pool")
    told = run(
        place,
        *("train", "robot.yaml", "--size", "debug", "--target", "target", "--pool", "pools/arm"),
        *("--device", "cpu", "--out", "runs/arm"),
    )
    assert "recap serve runs/arm/best" in told
    return place


def test_the_one_arm_robot_is_evaluated_in_its_own_environment(folder: Path) -> None:
    for policy in ("runs/arm/best", "replay"):
        out = f"runs/eval-{policy.split('/')[0]}"
        told = run(
            folder,
            *("eval", policy, "--env", "robots.test_whole_way:make_env", "--map", "map.yaml"),
            *("--pool", "pools/arm", "--seeds", "500:502", "--workers", "1", "--out", out),
        )
        assert re.search(r"^lift +\d/2", told, re.MULTILINE)
        assert re.search(r"^all +\d/4 .* 0  ", told, re.MULTILINE), "no episode is an error"


def test_the_one_arm_robot_is_evaluated_offline_on_held_out_demonstrations(folder: Path) -> None:
    told = run(
        folder,
        *("eval", "runs/arm/best", "--offline", "--target", "target", "--pool", "pools/arm"),
        *("--out", "runs/offline"),
    )
    (result,) = json.loads((folder / "runs/offline/offline.json").read_text("utf-8"))["results"]
    assert result["units"] == {"tool.position": "m", "tool.rotation": "°", "gripper": ""}
    assert list(result["errors"]) == ["policy", "replay", "no retrieval", "hold", "mean action"]
    assert not any("learned" in note for note in result["notes"]), (
        "the demonstrations were held out of training"
    )
    assert result["descriptors"]["rows"][0]["term"] == "all"
    assert (folder / f"runs/offline/episode_{result['numbers'][0]}.mp4").exists()
    assert re.search(r"^hold: .* 0\.\d+ \[", told, re.MULTILINE)


def test_the_one_arm_robot_is_driven_by_a_policy_server(folder: Path) -> None:
    with served(folder, "runs/arm/best", "--pool", "pools/arm", "--port", "0") as url:
        with recap.PolicyClient(url) as client:
            said = client.metadata
            assert said["state_dim"] == said["action_dim"] == 10
            assert said["cameras_required"] == ["front", "wrist"]
            assert said["max_steps"] == [[0, 3, 0.05]]
            assert [low for low in said["action_low"] if np.isfinite(low)] == [0.0], (
                "only the gripper has a limit"
            )
        told = run(folder, "run", "--robot", "robots.test_whole_way:connect", "--url", url, "--steps", "12")
    assert "Ended: steps after 12 periods" in told
    assert "0 failed" in told


def test_check_robot_passes_and_the_agent_accepts_gym_and_lerobot_observations(folder: Path) -> None:
    spec = recap.load_robot(folder / "robot.yaml")
    check_robot(OneArmRobot(), spec)
    agent = recap.Agent(recap.load_policy(folder / "runs/arm/best"), folder / "pools/arm")
    env = make_env()
    seen, info = env.reset(seed=500)
    actions = []
    lerobot = {
        "observation.state": seen["state"],
        "observation.images.front": np.moveaxis(seen["images"]["front"], -1, 0) / 255,
        "observation.images.wrist": np.moveaxis(seen["images"]["wrist"], -1, 0) / 255,
        "task": info["task"],
    }
    plain = recap.Observation(seen["state"], info["task"], 0.0, seen["images"])
    for observation in (seen, lerobot, plain):
        agent.reset(seed=3, task=info["task"])
        actions.append(agent.act(observation, info if observation is seen else None))
    assert actions[0].shape == (10,)
    np.testing.assert_array_equal(actions[0], actions[2])
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-6)
    assert agent.last is not None
    assert agent.last.retrieval.matches[0].ref.episode_id.startswith("one_arm/")
    turns = actions[0][3:9].reshape(2, 3)
    np.testing.assert_allclose(turns @ turns.T, np.eye(2), atol=1e-5, err_msg="a rotation stays one")


def test_demonstrations_of_another_robot_are_refused_before_training(folder: Path, tmp_path: Path) -> None:
    env = joint_arm.JointArmEnv("target")
    to_lerobot(record_many(env, joint_arm.expert, ("reach",), range(2), "joint"), tmp_path / "joint")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recap", "train", str(folder / "robot.yaml"), "--size", "debug"),
            *("--target", str(tmp_path / "joint"), "--pool", str(folder / "pool")),
            *("--out", str(tmp_path / "out")),
        ],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "4-D action" in done.stderr
    assert "one_arm" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_joint_space_robot_is_trained_and_evaluated(tmp_path: Path) -> None:
    (tmp_path / "robot.yaml").write_text(JOINT_ARM)
    (tmp_path / "map.yaml").write_text("images: {cam: images.cam}\ntasks: [reach]\nmax_steps: 10\n")
    for name in ("target", "pool"):
        env = joint_arm.JointArmEnv(name)
        to_lerobot(record_many(env, joint_arm.expert, ("reach",), range(4), f"joint-{name}"), tmp_path / name)
    run(
        tmp_path,
        *("train", "robot.yaml", "--size", "debug", "--target", "target", "--pool", "pool"),
        *("--device", "cpu", "--out", "runs/joint"),
    )
    told = run(
        tmp_path,
        *("eval", "runs/joint/best", "--env", "robots.test_whole_way:make_joint_env", "--map", "map.yaml"),
        *("--pool", "pool", "--seeds", "500:502", "--workers", "1", "--out", "runs/eval"),
    )
    assert re.search(r"^all +\d/2 .* 0  ", told, re.MULTILINE)
    run(
        tmp_path,
        *(
            "eval",
            "runs/joint/best",
            "--offline",
            "--target",
            "target",
            "--pool",
            "pool",
            "--out",
            "runs/off",
        ),
    )
    (result,) = json.loads((tmp_path / "runs/off/offline.json").read_text("utf-8"))["results"]
    assert result["units"] == {"joints": "rad", "gripper": ""}
    agent = recap.Agent(None, tmp_path / "pool", robot=recap.load_robot(tmp_path / "robot.yaml"))
    seen, info = make_joint_env().reset(seed=500)
    assert agent.act(seen, info).shape == (4,)


@pytest.mark.long
def test_the_commands_of_the_my_robot_example_run(tmp_path: Path) -> None:
    place = tmp_path / "my_robot"
    shutil.copytree(ROOT / "examples" / "my_robot", place)
    follow(place / "README.md", place)
    assert (place / "runs" / "eval" / "eval_info.json").exists()


@pytest.mark.long
def test_the_commands_of_the_end_to_end_page_run_with_smaller_settings(tmp_path: Path) -> None:
    """A seen and an unseen task by policy, replay and without retrieval; a joint arm driven by a server."""
    place = tmp_path / "one_arm"
    shutil.copytree(ROOT / "examples" / "one_arm", place)
    less = {
        "--n 30": "--n 5",
        "--size small": "--size debug",
        "500:540": "500:501",
        "--steps 120": "--steps 20",
    }
    follow(
        ROOT / "docs/how-to/end-to-end.md",
        place,
        {**less, "cp -r examples/one_arm one_arm && cd one_arm": ""},
    )
    for run in ("press", "press-replay", "press-alone", "slide", "slide-replay", "slide-alone"):
        episodes = (place / "runs" / run / "episodes.jsonl").read_text("utf-8").splitlines()
        assert len(episodes) == 1, run
        assert not json.loads(episodes[0]).get("error"), episodes


@pytest.mark.long
def test_the_commands_of_the_readme_run_with_the_debug_network(tmp_path: Path) -> None:
    """Except `make`: its targets run in other tests and in the checks of every change."""
    place = tmp_path / "my_robot"
    shutil.copytree(ROOT / "examples" / "my_robot", place)
    subprocess.run([sys.executable, "my_robot.py", "data"], cwd=place, env=environment(), check=True)
    shutil.copytree(place / "data" / "robot", place / "data" / "new_task")
    follow(ROOT / "README.md", place, {"make demo": "", "make test": "", "--size small": "--size debug"})
    beside = re.findall(r"`(recap [^`]*)`", (ROOT / "README.md").read_text("utf-8"))
    assert sorted(beside) == ["recap check data/robot pools/mine", "recap studio", "recap studio data/robot"]
    follow_lines(beside[:1], place)  # tests/apps/studio has the others


@pytest.mark.long
@pytest.mark.parametrize(
    ("tutorial", "less"),
    [
        ("first-pool", {"--per-angle 40": "--per-angle 4", "500:510": "500:501"}),
        ("train", {"500:505": "500:501"}),
        ("serve-and-drive", {"--per-angle 20": "--per-angle 4", "--steps 60": "--steps 20"}),
    ],
)
def test_the_commands_of_a_tutorial_run_with_smaller_settings(
    tutorial: str, less: Mapping[str, str], tmp_path: Path
) -> None:
    follow(ROOT / "docs" / "tutorials" / f"{tutorial}.md", tmp_path, less)
