"""Serving a joint-space robot with a policy in tool space, through the robot's kinematics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import served

from jointed import HOME, arm, walk
from recap import config as configs
from recap.assembly import AgentConfig
from recap.errors import ServerError
from recap.kinematics import JointSpace
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.serving.service import ServeSpec, Service
from recap_client.client import PolicyClient
from recap_client.limits import ActionLimits
from recap_client.robot_loop import LoopSpec, RobotLoop

DEMOS = [walk(seed) for seed in range(4)]


def service(folder: Path, **changes: Any) -> Service:
    """A replay service with the robot description in a file, over demonstrations in tool space."""
    robot = arm(**changes)
    configs.save_file(folder / "robot.yaml", robot)
    spec = ServeSpec(AgentConfig(), robot=str(folder / "robot.yaml"), port=0)
    return Service(spec, MemoryPool([JointSpace(arm()).episode(demo) for demo in DEMOS]))


def message(state: Any) -> dict[str, Any]:
    return {"observation/state": np.asarray(state, np.float32), "prompt": "walk about"}


def test_joint_states_are_accepted_and_joint_actions_returned(tmp_path: Path) -> None:
    made = service(tmp_path)
    made.warm_up()
    with served(made) as server, PolicyClient(server.ws) as client:
        said = client.metadata
        assert (said["action_dim"], said["state_dim"]) == (7, 7)
        assert said["hold"] == list(range(7))
        assert [feature["name"] for feature in said["robot"]["action"]][:2] == [
            "shoulder_pan",
            "shoulder_lift",
        ]
        assert said["robot"]["kinematics"] is None  # a client needs no model
        limits = ActionLimits.read(said)
        assert np.allclose([limits.low[0], limits.high[0]], [-2.8, 2.8])
        assert limits.steps[0] == (0, 1, pytest.approx(0.1))  # 3 rad/s at 30 Hz
        reply = client.infer(message(DEMOS[2].proprio[0]))
        assert np.allclose(reply["actions"][:5], DEMOS[2].actions[:5], atol=5e-3)
        assert reply["kinematics"]["error_mm"] < 0.5
        assert reply["kinematics"]["error_deg"] < 0.1
        assert reply["kinematics"]["n_unreachable"] == 0
        with pytest.raises(ServerError, match="array of 7 numbers"):
            client.infer(message(np.zeros(10)))


def test_unreachable_targets_are_counted_and_reported(tmp_path: Path) -> None:
    base = {"position": [0.0, 0.0, -3.0], "rotation": [0.0, 0.0, 0.0]}  # a wrong base, three metres too low
    robot = configs.plain(arm())
    robot["kinematics"] |= {"base": base, "unreachable": "hold"}
    robot["max_step"] = {}
    configs.save_file(tmp_path / "robot.yaml", robot)
    made = Service(
        ServeSpec(AgentConfig(), robot=str(tmp_path / "robot.yaml"), port=0),
        MemoryPool([JointSpace(arm()).episode(demo) for demo in DEMOS]),
    )
    with served(made) as server, PolicyClient(server.ws) as client:
        reply = client.infer(message(np.append(HOME, 0.5)))
        assert reply["kinematics"]["error_mm"] > 1000
        assert reply["kinematics"]["n_unreachable"] == len(reply["actions"])
        assert np.allclose(reply["actions"][:, :6], HOME, atol=1e-6)  # held
    assert f"recap_targets_unreachable_total {len(reply['actions'])}" in made.metrics.render()
    assert "recap_kinematics_error_mm_count 1" in made.metrics.render()


class Jointed:
    """A robot that reaches every target at once."""

    def __init__(self) -> None:
        self.state = DEMOS[1].proprio[0].astype(np.float64)
        self.states = [self.state]

    def observe(self) -> dict[str, Any]:
        return message(self.state)

    def act(self, action: Any) -> None:
        self.state = np.asarray(action)
        self.states.append(self.state)


def test_the_control_loop_drives_a_joint_robot_within_its_speed(tmp_path: Path) -> None:
    robot = Jointed()
    with served(service(tmp_path, max_speed=0.9)) as server, PolicyClient(server.ws) as client:
        report = RobotLoop(robot, client, LoopSpec(steps=20, rate_hz=30)).run()
    assert (report.reason, report.failures) == ("steps", 0)
    assert np.abs(np.diff(np.array(robot.states)[:, :6], axis=0)).max() <= 0.03 + 1e-6
    assert np.ptp(np.array(robot.states)[:, :6], axis=0).max() > 0.02


def test_an_upload_in_joints_is_stored_in_the_pool_as_tool_poses(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool", robot=arm())
    pool.add(DEMOS[:2])
    made = Service(ServeSpec(AgentConfig(), port=0), pool)
    shown = walk(9)
    body = {"id": "shown", "scene_id": "shown", "task": shown.task, "embodiment": "arm", "fps": 30.0}
    body |= {"timestamps": shown.timestamps, "proprio": shown.proprio, "actions": shown.actions}
    with served(made) as server, PolicyClient(server.ws) as client:
        client.upload(body)
        reply = client.infer(message(shown.proprio[0]))
        with pytest.raises(ServerError, match="'other_arm'"):
            client.upload({**body, "id": "other", "embodiment": "other_arm"})
    assert np.allclose(pool.get("shown").proprio, JointSpace(arm()).episode(shown).proprio, atol=1e-6)
    assert reply["retrieval"]["episode_id"] == "shown"
    assert np.allclose(reply["actions"][:5], shown.actions[:5], atol=5e-3)
