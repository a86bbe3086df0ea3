"""The LeRobot plugins: registration, messages and actions; the last tests run LeRobot itself."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fake_lerobot
import numpy as np
import pytest
from served import Served, replay_service, served

from episodes import random_episode
from recap_client.errors import InputError

ROOT = Path(__file__).parents[2]
PLUGINS = {"lerobot_policy_recap": "lerobot_policy_", "lerobot_robot_recap_sim": "lerobot_robot_"}
PYTHON = os.environ.get("RECAP_LEROBOT_PYTHON")  # of a venv with LeRobot
VENV = Path(PYTHON).parents[1] if PYTHON else ROOT / ".lerobot-venv"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, type]]]:
    yield fake_lerobot.install_plugin_api(monkeypatch)
    for name in [name for name in sys.modules if name.startswith(tuple(PLUGINS))]:
        del sys.modules[name]  # they keep references to the fake modules


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(replay_service([random_episode(f"demo/{i}", i) for i in range(6)])) as server:
        yield server


@pytest.mark.parametrize(("package", "prefix"), PLUGINS.items())
def test_each_distribution_has_the_name_that_lerobot_looks_for(package: str, prefix: str) -> None:
    project = tomllib.loads((ROOT / "integrations" / package / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["name"] == package, "LeRobot imports the distribution by this exact name"
    assert package.startswith(prefix)
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"] == {"": package}


def test_the_policy_registers_under_lerobots_naming_scheme(registered: dict[str, dict[str, type]]) -> None:
    importlib.import_module("lerobot_policy_recap")
    config = registered["policy"]["recap"]
    assert config.__name__ == "RecapConfig"
    for part, name in {"modeling": "RecapPolicy", "processor": "make_recap_pre_post_processors"}.items():
        module = importlib.import_module(config.__module__.replace("configuration_", f"{part}_"))
        assert hasattr(module, name)
    policy = importlib.import_module("lerobot_policy_recap.modeling_recap").RecapPolicy
    assert (policy.config_class, policy.name) == (config, "recap")


def test_the_robot_registers_under_lerobots_naming_scheme(registered: dict[str, dict[str, type]]) -> None:
    package = importlib.import_module("lerobot_robot_recap_sim")
    config = registered["robot"]["recap_sim"]
    assert getattr(package, config.__name__.removesuffix("Config")).config_class is config
    assert not hasattr(config, "cameras"), "LeRobot would read it as camera configs"


def test_the_lerobot_processors_do_not_normalise(registered: dict[str, dict[str, type]]) -> None:
    module = importlib.import_module("lerobot_policy_recap.processor_recap")
    config = registered["policy"]["recap"]
    before, after = module.make_recap_pre_post_processors(config())
    names = [[type(step).__name__ for step in pipeline.given["steps"]] for pipeline in (before, after)]
    assert names == [["RenameObservations", "AddBatchDimension", "Device"], ["Device"]]


def batch(n: int, image: str = "observation.image") -> dict[str, Any]:
    """A batch as LeRobot gives it to a policy: images as floats from 0 to 1, channels first, and tasks."""
    import torch

    state = torch.arange(2.0 * n).reshape(n, 2) + 100
    return {"observation.state": state, image: torch.rand(n, 3, 96, 96), "task": ["push"] * n}


def policy_for(server: Served, **config: Any) -> Any:
    module = importlib.import_module("lerobot_policy_recap.modeling_recap")
    return module.RecapPolicy(module.RecapConfig(url=server.ws, **config))


def test_a_batch_becomes_one_message_per_environment(
    server: Served, registered: dict[str, dict[str, type]]
) -> None:
    policy = policy_for(server)
    given = batch(3)
    messages = policy._messages(given)
    assert [list(m) for m in messages] == [["observation/state", "prompt", "observation/images/top"]] * 3
    picture = messages[1]["observation/images/top"]
    assert (picture.dtype, picture.shape) == (np.uint8, (96, 96, 3))
    wanted = np.rint(given["observation.image"][1].numpy() * 255).transpose(1, 2, 0)
    assert np.array_equal(picture, wanted)
    assert messages[2]["observation/state"].tolist() == [104, 105]
    named = policy._messages({**batch(1, "observation.images.top"), "task": "push"})
    assert list(named[0]) == list(messages[0])
    policy.remote.close()


def test_select_action_requests_chunks_and_reset_starts_a_new_episode(
    server: Served, registered: dict[str, dict[str, type]], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_for(server, n_action_steps=4)
    asked: list[Mapping[str, Any]] = []
    client = type(policy.remote.clients[0])
    infer = client.infer
    monkeypatch.setattr(client, "infer", lambda self, m: asked.append(m) or infer(self, m))
    policy.reset()
    taken = [policy.select_action(batch(2)) for _ in range(5)]
    assert {tuple(action.shape) for action in taken} == {(2, 2)}
    assert len(asked) == 4, "two environments, two chunks of four"
    assert ["executed" in m for m in asked] == [False, False, True, True]
    assert asked[2]["executed"] == 4
    policy.reset()
    policy.select_action(batch(2))
    assert "executed" not in asked[-1]
    assert tuple(policy.predict_action_chunk(batch(2)).shape) == (2, policy.remote.chunk_size, 2)
    assert policy.supports_rtc() is False
    policy.remote.close()


def test_with_the_servers_gate_each_environment_waits_for_its_own_state(
    registered: dict[str, dict[str, type]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    with served(replay_service(agent={"gate": True, "gate_patience": 3})) as server:
        policy = policy_for(server, n_action_steps=3)
    executed: list[Any] = []
    chunk = np.repeat(100.0 * np.arange(1, 9)[:, None], 2, axis=1).astype(np.float32)
    monkeypatch.setattr(
        policy.remote, "chunks", lambda _, done=None: executed.append(done) or np.stack([chunk, chunk])
    )
    given, taken = batch(2), []
    given["observation.state"] *= 0
    for _ in range(6):
        taken.append([float(action[0]) for action in policy.select_action(given)])
        given["observation.state"][0] = torch.full(
            (2,), taken[-1][0] - 3
        )  # the second environment never moves
    assert taken == [[100, 100], [200, 100], [300, 100], [100, 100], [200, 100], [300, 100]]
    assert executed == [None, [3, 1]], "when one chunk ends, chunks for all environments are requested"
    policy.remote.close()


def test_a_mismatch_with_the_server_is_an_error(
    server: Served, registered: dict[str, dict[str, type]]
) -> None:
    import torch

    policy = policy_for(server)
    with pytest.raises(InputError, match=r"\(batch, 2\)"):
        policy.select_action({**batch(1), "observation.state": torch.zeros(1, 6)})
    with pytest.raises(InputError, match="n_action_steps"):
        policy_for(server, n_action_steps=99)
    with pytest.raises(NotImplementedError, match="recap train"):
        policy.forward({})
    policy.remote.said = {**policy.remote.said, "cameras_required": ["wrist"]}
    with pytest.raises(InputError, match=r"wrist.*rename_map"):
        policy.select_action(batch(1))
    policy.remote.close()


class Line:
    """An environment whose goal is to reach 3."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at, self.options = float(seed or 0), options
        return self._seen(), {"is_success": False, "near": 0.0}

    def step(self, action: Any) -> Any:
        self.at = float(action[0])
        near = 1 / (1 + abs(self.at - 3))
        return self._seen(), 0.0, False, False, {"is_success": near > 0.9, "near": near}

    def close(self) -> None:
        pass

    def _seen(self) -> dict[str, Any]:
        return {"state": np.array([self.at]), "images": {"front": np.zeros((8, 8, 3), np.uint8)}}


def make_line() -> Line:
    return Line()


def test_a_gym_environment_is_a_lerobot_robot(registered: dict[str, dict[str, type]], tmp_path: Path) -> None:
    package = importlib.import_module("lerobot_robot_recap_sim")
    config = package.RecapSimConfig(
        env=f"{__name__}:make_line",
        env_options={},
        reset_options={"task": "go"},
        motors=["x"],
        state="state",
        images={"front": "images.front"},
        metrics=["is_success", "near"],
        seed=5,
        report=tmp_path / "out" / "report.jsonl",
    )
    robot = package.RecapSim(config)
    assert robot.observation_features == {"x.pos": float, "front": (8, 8, 3)}
    robot.connect()
    assert robot.get_observation()["x.pos"] == 5
    robot.send_action({"x.pos": 2.0})
    assert not robot.done
    robot.send_action({"x.pos": 3.0})
    assert robot.done
    robot.send_action({"x.pos": 9.0})
    assert robot.get_observation()["x.pos"] == 3, "actions after the end are ignored"
    robot.disconnect()
    line = json.loads((tmp_path / "out" / "report.jsonl").read_text("utf-8"))
    assert (line["seed"], line["steps"], line["is_success"], line["near"]) == (5, 2, 1.0, 1.0)


SO101 = """
import sys
from recap_client.lerobot import LeRobotRobot, build
joint = {"kind": "joint", "size": 5, "unit": "rad", "limits": None, "name": "joints"}
features = [joint, {"name": "gripper", "kind": "gripper", "size": 1, "unit": "", "limits": [0, 1]}]
camera = "{front: {type: opencv, index_or_path: 0, width: 640, height: 480, fps: 30}}"
try:
    arm = build("so101_follower", {"port": "/dev/none", "cameras": camera})
except Exception as error:
    sys.exit(f"skip: {error}" if "feetech" in str(error) else f"{error}")
said = {"robot": {"proprio": features, "action": features}, "cameras": {"front": None}}
driven = LeRobotRobot(arm, {**said, "cameras_required": ["front"]}, {})
print([(c.motor, round(c.scale, 4)) for c in driven._action])
"""
needs_lerobot = pytest.mark.skipif(
    not (VENV / "bin" / "lerobot-eval").exists(),
    reason="no LeRobot: research/scripts/lerobot_run.py makes .lerobot-venv, or set RECAP_LEROBOT_PYTHON",
)


@pytest.mark.long
@needs_lerobot
def test_lerobots_so101_motors_are_matched_in_order_and_degrees() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client")}
    command = [VENV / "bin" / "python", "-c", SO101]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    if "skip:" in ran.stderr:
        pytest.skip("LeRobot is installed without its extra 'feetech'")
    assert ran.returncode == 0, ran.stderr
    names = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
    assert ran.stdout.strip() == str([*((f"{name}.pos", 0.0175) for name in names), ("gripper.pos", 0.01)])


@pytest.mark.long
@needs_lerobot
def test_lerobot_evaluates_and_rolls_out_a_served_policy(tmp_path: Path) -> None:
    out, script = tmp_path / "run", ROOT / "research" / "scripts" / "lerobot_run.py"
    words = ["--venv", str(VENV), "--out", str(out), "--policy", "pusht-small"]
    words += ["--episodes", "2", "--batch", "2", "--rollouts", "1"]
    ran = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads((out / "lerobot.json").read_text("utf-8"))
    assert (figures["eval"]["n"], figures["rollout"]["n"], figures["client"]["n"]) == (2, 1, 1)
    assert (out / "eval" / "videos").is_dir()
    assert figures["rollout"]["episodes"][0]["steps"] > 20
