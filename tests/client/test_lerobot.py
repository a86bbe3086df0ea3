"""LeRobot robots are matched to the server's names and units; a mismatch is refused."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fake_lerobot
import numpy as np
import pytest
from served import served

from jointed import arm, walk
from recap import config as configs
from recap.assembly import AgentConfig
from recap.kinematics import JointSpace
from recap.pool.memory import MemoryPool
from recap.serving.service import ServeSpec, Service
from recap_client.cli import parser
from recap_client.client import PolicyClient
from recap_client.driving import DryRobot, RunSpec
from recap_client.errors import InputError
from recap_client.lerobot import LeRobotRobot, build
from recap_client.options import take_dotted
from recap_client.robot_loop import LoopSpec, RobotLoop
from recap_client.robots import make_robot

JOINT = {"kind": "joint", "size": 1, "unit": "rad", "limits": None}
GRIPPER = {"name": "gripper", "kind": "gripper", "size": 1, "unit": "", "limits": [0.0, 1.0]}
FEATURES = [{"name": "shoulder_pan", **JOINT}, {"name": "elbow_flex.pos", **JOINT}, GRIPPER]


def described(features: list[dict[str, Any]] = FEATURES, **more: Any) -> dict[str, Any]:
    """The metadata of a server."""
    n = sum(int(f["size"]) for f in features)
    return {
        "control_hz": 50.0,
        "action_horizon": 8,
        "n_action_steps": 4,
        "action_dim": n,
        "state_dim": n,
        "action_low": [-4.0] * n,
        "action_high": [4.0] * n,
        "max_steps": [],
        "cameras": {"front": [48, 64]},
        "cameras_required": ["front"],
        "robot": {"proprio": features, "action": features},
        **more,
    }


@pytest.fixture(autouse=True)
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_lerobot.install(monkeypatch)


def connected(said: Mapping[str, Any] | None = None, **options: str) -> tuple[Any, Any]:
    driven = make_robot("lerobot:arm_follower", said or described(), {"port": "/dev/arm", **options})
    assert isinstance(driven, LeRobotRobot)
    return driven, driven.robot


class Policy:
    """A policy that adds 0.1 to every number in each step."""

    def __init__(self, **more: Any) -> None:
        self.metadata = described(**more)
        self.asked: list[Mapping[str, Any]] = []

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(observation)
        return {"actions": np.asarray(observation["observation/state"]) + 0.1 * np.arange(1, 9)[:, None]}


def test_motors_and_cameras_are_converted_to_the_servers_units() -> None:
    robot, arm = connected()
    seen = robot.observe()
    assert seen["observation/state"] == pytest.approx([math.pi / 2, math.pi / 2, 0.5])
    assert seen["observation/state"].dtype == np.float32
    assert seen["observation/images/front"].shape == (48, 64, 3)
    robot.act(np.array([math.pi, 0.0, 1.0]))
    assert arm.sent == [{"shoulder_pan.pos": pytest.approx(180), "elbow_flex.pos": 0, "gripper.pos": 100}]
    robot.close()
    assert not arm.is_connected


def test_a_feature_of_several_numbers_takes_the_remaining_motors_in_order() -> None:
    joints = {**JOINT, "name": "joints", "size": 2, "unit": "deg"}
    robot, arm = connected(described([GRIPPER, joints]))
    arm.at = {"shoulder_pan.pos": 10.0, "elbow_flex.pos": 20.0, "gripper.pos": 30.0}
    assert robot.observe()["observation/state"] == pytest.approx([0.3, 10, 20])


def test_rename_maps_motors_and_cameras_of_other_names() -> None:
    said = described(
        [{"name": "base", **JOINT}, *FEATURES[1:]], cameras={"top": None}, cameras_required=["top"]
    )
    renamed = {"shoulder_pan": "base", "front": "top"}
    robot = make_robot("lerobot:arm_follower", said, {"port": "/dev/arm"}, renamed)
    assert set(robot.observe()) == {"observation/state", "observation/images/top"}
    with pytest.raises(InputError, match="--rename") as raised:
        make_robot("pusht-sim", {}, {}, renamed)
    assert raised.value.code == "input"


def test_with_same_units_numbers_are_not_converted() -> None:
    robot = make_robot("lerobot:arm_follower", described(), {"port": "/dev/arm"}, {}, same_units=True)
    assert robot.observe()["observation/state"] == pytest.approx([90, 90, 50])


@pytest.mark.parametrize(
    ("said", "options", "code", "word"),
    [
        (described([{"name": "knee", **JOINT}, *FEATURES]), {}, "robot.motors", "knee"),
        (described([{**JOINT, "name": "joints", "size": 6}]), {}, "robot.motors", r"joints \(6\)"),
        (described(cameras={"wrist": None}, cameras_required=["wrist"]), {}, "robot.cameras", "wrist"),
        (
            described(cameras={"top": None}, cameras_required=[], poses_from_images=True),
            {},
            "robot.cameras",
            "top",
        ),
        (described(), {"use_degrees": "false"}, "robot.units", "use_degrees"),
        (described([{**FEATURES[0], "unit": "m"}, *FEATURES[1:]]), {}, "robot.units", "shoulder_pan"),
        (described(action_mode="delta"), {}, "robot.mode", "absolute"),
        ({"control_hz": 10}, {}, "server", "recap serve"),
        (described(), {"port": "/dev/none"}, "robot.connect", "no such port"),
        (described(), {"colour": "red"}, "robot.options", "colour"),
    ],
)
def test_a_robot_that_does_not_match_the_server_is_refused_before_it_moves(
    said: dict[str, Any], options: dict[str, str], code: str, word: str
) -> None:
    with pytest.raises(InputError, match=word) as raised:
        connected(said, **options)
    assert raised.value.code == code


def test_an_unknown_type_and_a_missing_lerobot_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'arm_follower'"):
        build("arm_folower", {})
    monkeypatch.setitem(sys.modules, "draccus", None)
    with pytest.raises(InputError) as raised:
        build("arm_follower", {})
    assert raised.value.code == "robot.lerobot"


def test_the_loop_limits_features_by_name_and_sends_the_task() -> None:
    robot, arm = connected()
    policy = Policy()
    how = LoopSpec(
        steps=6, limits={"gripper": (0.0, 0.55)}, max_step={"shoulder_pan": 0.02}, task="pick it up"
    )
    RobotLoop(robot, policy, how).run()
    pans = np.array([90.0, *(action["shoulder_pan.pos"] for action in arm.sent)])
    assert np.abs(np.diff(np.deg2rad(pans))).max() <= 0.02 + 1e-6
    assert max(action["gripper.pos"] for action in arm.sent) == pytest.approx(55)
    assert policy.asked[0]["prompt"] == "pick it up"
    with pytest.raises(InputError, match="did you mean 'gripper'"):
        RobotLoop(robot, policy, LoopSpec(max_step={"griper": 1.0}))


def test_a_lost_connection_to_the_robot_ends_the_loop_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    robot, arm_ = connected()

    def broken(*_: Any) -> None:
        raise ConnectionError("no status packet")

    monkeypatch.setattr(arm_, "send_action", broken)
    monkeypatch.setattr(arm_, "disconnect", broken)
    with pytest.raises(InputError, match="no status packet") as raised:
        RobotLoop(robot, Policy(), LoopSpec(steps=6)).run()
    assert raised.value.code == "robot.lost"


def test_a_dry_run_prints_every_step_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    robot, arm = connected()
    RobotLoop(DryRobot(robot, described()), Policy(), LoopSpec(steps=2)).run()
    shown = capsys.readouterr().out.splitlines()
    assert arm.sent == []
    assert [line for line in shown if line.startswith("Step")] == [
        "Step 1: dry run, not sent",
        "Step 2: dry run, not sent",
        "Step 3: the same again",
    ]
    assert shown[1].split() == ["number", "unit", "now", "target", "change"]
    assert shown[2].split() == ["shoulder_pan", "rad", "1.5708", "1.6708", "+0.1000"]
    assert shown[4].split() == ["gripper", "0.5000", "0.6000", "+0.1000"]
    assert not arm.is_connected, "the robot is disconnected"


def test_the_command_needs_numpy_msgpack_and_websockets_only() -> None:
    heavy = ["torch", "recap", "msgspec", "click", "aiohttp", "pyarrow"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy})); "
        "from recap_client.cli import main; main(['run', '--help'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "--dry-run" in ran.stdout


def test_the_commands_of_the_how_to_are_parsed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "use-with-lerobot.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("recap-client run")]
    assert len(lines) >= 3
    for line in lines:
        left, options = take_dotted(shlex.split(line)[1:], "robot")
        given = vars(parser().parse_args(left))
        spec = RunSpec.of_options(given.pop("robot"), options, given)
        assert spec.robot.startswith("lerobot:")
        assert set(options) & {"port", "seed", "env"}


def test_an_arm_in_degrees_follows_a_policy_in_tool_space(tmp_path: Path) -> None:
    robot, demo = arm(), walk(1)
    configs.save_file(tmp_path / "robot.yaml", robot)
    spec = ServeSpec(AgentConfig(), robot=str(tmp_path / "robot.yaml"), port=0)
    pool = MemoryPool([JointSpace(robot).episode(walk(seed)) for seed in range(3)])

    class SixJoints(fake_lerobot.Arm):
        joints = (*(str(f.name) for f in JointSpace(robot).robot.action[:6]), "gripper")

    theirs = SixJoints(fake_lerobot.ArmConfig("/dev/arm", cameras={}))
    theirs.connect()
    begun = dict(zip(theirs.at, [*np.rad2deg(demo.proprio[0, :6]), 100 * demo.proprio[0, 6]], strict=True))
    theirs.at = {name: float(value) for name, value in begun.items()}
    with served(Service(spec, pool)) as server, PolicyClient(server.ws, retries=0) as client:
        driven = LeRobotRobot(theirs, client.metadata, {})
        assert driven.observe()["observation/state"] == pytest.approx(demo.proprio[0], abs=1e-5)
        report = RobotLoop(driven, client, LoopSpec(steps=20, task="walk about")).run()
    assert (report.reason, report.failures) == ("steps", 0)
    path = np.deg2rad([[action[f"{name}.pos"] for name in theirs.joints[:6]] for action in theirs.sent])
    assert np.abs(path[8] - demo.proprio[8, :6]).max() < 0.05, "the arm follows the demonstration"
    assert np.abs(np.diff(path, axis=0)).max() <= 0.1 + 1e-6, "3 rad/s at 30 Hz"
