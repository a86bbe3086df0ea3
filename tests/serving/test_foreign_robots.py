"""Robots known only by their description: cameras of any shape, limits per feature, delta actions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import served

from recap import config as configs
from recap.assembly import AgentConfig
from recap.body import Feature, arm_features
from recap.errors import InputError, ServerError
from recap.pool.memory import MemoryPool
from recap.robot import CameraSpec, RobotSpec, infer_robot
from recap.serving.service import ServeSpec, Service
from recap.types import F32, F64, U8, Episode
from recap_client.client import PolicyClient
from recap_client.robot_loop import LoopSpec, RobotLoop
from robots import joint_arm, one_arm
from robots.joint_arm import JointArmEnv
from robots.one_arm import OneArmEnv
from robots.recording import Robot, record_many

ARM = RobotSpec(
    "one_arm",
    20.0,
    arm_features("tool"),
    max_step={"tool.position": 0.012},
    cameras={"front": CameraSpec((60, 80)), "wrist": CameraSpec((48, 96), "crop")},
)
JOINTS = RobotSpec(
    "joint_arm",
    20.0,
    (Feature("joints", "joint", 3, limits=(-2.6, 2.6)), Feature("grip", "gripper")),
    max_step={"joints": 0.05, "grip": 0.25},
    cameras={"cam": CameraSpec((72, 54), "letterbox")},
)


@cache
def one_arm_demos() -> list[Episode]:
    """Demonstrations of two tasks with the slow arm."""
    return record_many(OneArmEnv("pool"), one_arm.expert, ("lift", "press"), range(3), "slow arm")


@cache
def joint_demos() -> list[Episode]:
    """Demonstrations of the arm in joint space."""
    return record_many(JointArmEnv("pool"), joint_arm.expert, ("reach",), range(4), "slow joints")


def as_changes(episode: Episode) -> Episode:
    """The same episode with delta joint actions; the gripper stays absolute."""
    changes = episode.actions - episode.proprio
    return replace(episode, actions=np.concatenate([changes[:, :3], episode.actions[:, 3:]], axis=1))


def service_of(robot: RobotSpec, demos: list[Episode], folder: Path, **changes: Any) -> Service:
    """A replay service with the robot description in a file."""
    configs.save_file(folder / "robot.yaml", robot)
    spec = ServeSpec(AgentConfig(), robot=str(folder / "robot.yaml"), port=0, **changes)
    return Service(spec, MemoryPool(demos))


def message_at(episode: Episode, t: int) -> dict[str, Any]:
    """The message for one recorded step, cameras by name."""
    message = {"observation/state": episode.proprio[t], "prompt": episode.task}
    message |= {"observation/time_s": float(episode.timestamps[t])}
    return message | {f"observation/images/{name}": frames[t] for name, frames in episode.images.items()}


class Driven:
    """An environment as a robot for the control loop."""

    def __init__(self, env: Robot, task: str, seed: int, deltas: bool = False) -> None:
        self.env, self.deltas = env, deltas
        self.seen, info = env.reset(seed=seed, options={"task": task})
        self.words, self.done = str(info["task"]), False
        self.states: list[F32] = [self.seen["state"]]

    def observe(self) -> dict[str, Any]:
        message = {"observation/state": self.seen["state"], "prompt": self.words}
        return message | {f"observation/images/{n}": image for n, image in self.seen["images"].items()}

    def act(self, action: F64) -> None:
        target = np.array(action, np.float32)
        if self.deltas:
            target[:3] += self.seen["state"][:3]
        space = self.env.action_space
        self.seen, _, done, _, _ = self.env.step(np.clip(target, space.low, space.high))  # type: ignore[attr-defined]
        self.done = self.done or done
        self.states.append(self.seen["state"])


def test_cameras_of_any_shape_are_read_by_name_and_by_openpi_keys(tmp_path: Path) -> None:
    demos = one_arm_demos()
    with served(service_of(ARM, demos, tmp_path)) as server, PolicyClient(server.ws) as client:
        said = client.metadata
        assert said["cameras"] == {"front": [60, 80], "wrist": [48, 96]}
        assert said["cameras_required"] == ["front", "wrist"]
        assert said["image_keys"] == {"front": "observation/image", "wrist": "observation/images/wrist"}
        named = message_at(demos[2], 0)
        openpi = {key: value for key, value in named.items() if "images/" not in key}
        openpi |= {"observation/image": demos[2].images["front"][0]}
        replies = []
        for wrist in ("observation/images/wrist", "observation/wrist_image"):
            client.reset()
            replies.append(client.infer({**openpi, wrist: demos[2].images["wrist"][0]}))
        client.reset()
        replies.append(client.infer(named))
        for reply in replies:
            assert (reply["retrieval"]["episode_id"], reply["retrieval"]["t"]) == (demos[2].id, 0)
            assert reply["retrieval"]["distance"] < 1e-3
            np.testing.assert_array_equal(reply["actions"], replies[0]["actions"])
        with pytest.raises(ServerError, match="no 'observation/images/wrist'"):
            client.infer(openpi)
        with pytest.raises(ServerError, match="'observation/images/left' is not a camera of robot 'one_arm'"):
            client.infer({**named, "observation/images/left": U8_IMAGE})
        client.reset()
        larger = {"observation/images/front": np.repeat(np.repeat(demos[2].images["front"][0], 2, 0), 2, 1)}
        again = client.infer({**named, **larger})
        assert again["retrieval"]["episode_id"] == demos[2].id, (
            "an image of twice the size retrieves the same"
        )


U8_IMAGE: U8 = np.zeros((48, 64, 3), np.uint8)


def test_the_prompt_selects_the_task_and_the_robot_moves_in_an_unseen_scene(tmp_path: Path) -> None:
    with served(service_of(ARM, one_arm_demos(), tmp_path)) as server:
        for task in ("lift", "press"):
            robot = Driven(OneArmEnv("target"), task, 77)
            with PolicyClient(server.ws, retries=0) as client:
                loop = RobotLoop(robot, client, LoopSpec(steps=40, rate_hz=100))
                report = loop.run()
                reply = client.infer(robot.observe())
            assert report.reason in ("steps", "done")
            assert (report.failures, report.held) == (0, 0)
            assert f"/{task}/" in reply["retrieval"]["episode_id"]
            steps = np.diff(np.array(loop.targets)[:, :3], axis=0)
            assert np.linalg.norm(steps, axis=1).max() <= 0.012 * 20 / 100 + 1e-9, (
                "the speed limit holds at any control rate"
            )
            assert np.ptp(np.array(loop.targets)[:, :3], axis=0).max() > 0.02, "it moves"


def test_a_robot_without_a_description_is_inferred_from_a_demonstration() -> None:
    demos = one_arm_demos()
    service = Service(ServeSpec(AgentConfig(), port=0), MemoryPool(demos))
    assert service.robot == infer_robot(demos[0])
    assert [f.name for f in service.robot.action] == ["tool.position", "tool.rotation", "tool.gripper"]
    said = service.metadata()
    assert (said["cameras"], said["max_steps"]) == ({"front": None, "wrist": None}, [])
    assert [said["action_low"][9], said["action_high"][9]] == [0.0, 1.0]


def test_every_feature_has_its_own_limits(tmp_path: Path) -> None:
    demos = joint_demos()
    service = service_of(JOINTS, demos, tmp_path, max_step={"joints": 0.01, "grip": 9.0})
    assert service.metadata()["max_steps"] == [[0, 3, 0.01], [3, 4, 0.25]], "the spec only tightens"
    assert service.metadata()["action_low"] == [-2.6, -2.6, -2.6, 0.0]
    assert service.metadata()["action_high"] == [2.6, 2.6, 2.6, 1.0]
    with served(service) as server, PolicyClient(server.ws) as client:
        here = demos[1].proprio[5]
        actions = client.infer(message_at(demos[1], 5))["actions"]
        limited = server.http("/metrics")[1]
    steps = np.diff(np.vstack([here, actions]), axis=0)
    assert np.linalg.norm(steps[:, :3], axis=1).max() <= 0.01 + 1e-6
    assert np.abs(steps[:, 3]).max() <= 0.25 + 1e-6
    assert np.linalg.norm(np.diff(demos[1].actions[5:10, :3], axis=0), axis=1).max() > 0.01
    assert b"recap_actions_limited_total 0" not in limited
    assert b"recap_actions_limited_total" in limited
    with pytest.raises(InputError, match="elbow"):
        service_of(JOINTS, demos, tmp_path, max_step={"elbow": 1.0})


def test_a_robot_description_that_does_not_fit_the_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"4-D actions .* another robot"):
        service_of(ARM, joint_demos(), tmp_path)


DELTAS = replace(
    JOINTS,
    action=(Feature("turn", "joint", 3, limits=(-0.1, 0.1)), Feature("squeeze", "gripper")),
    action_mode="delta",
    max_step={"turn": 0.03},
)


def test_with_delta_actions_holding_sends_zeros(tmp_path: Path) -> None:
    """An unsure policy sends zero deltas at any position, and the loop holds with zero deltas too."""
    demos = [as_changes(episode) for episode in joint_demos()]
    message = message_at(demos[0], 4)
    unsure = Service(
        ServeSpec(AgentConfig(min_confidence=0.99), robot=str(_saved(DELTAS, tmp_path)), port=0),
        MemoryPool(demos),
    )
    far = {**message, "observation/state": np.array([1.0, -1.0, 1.0, 0.5], np.float32)}
    with served(unsure) as server, PolicyClient(server.ws) as client:
        assert client.metadata["action_mode"] == "delta"
        reply = client.infer(far)
        assert reply["held"]
        assert not reply["actions"].any()
    with served(service_of(DELTAS, demos, tmp_path)) as server:
        with PolicyClient(server.ws) as client:
            actions = client.infer(message)["actions"]
            assert np.linalg.norm(actions[:, :3], axis=1).max() <= 0.03 + 1e-6
            assert np.abs(actions[:, :3]).max() > 0.001
        robot = Driven(JointArmEnv("target"), "reach", 31, deltas=True)
        with PolicyClient(server.ws, retries=0) as client:
            loop = RobotLoop(robot, client, LoopSpec(steps=40, rate_hz=50, delay_s=0.3))
            report = loop.run()
    targets = np.array(loop.targets)
    assert report.misses > 5
    assert (targets == 0).all(axis=1).sum() >= report.misses
    assert np.linalg.norm(targets[:, :3], axis=1).max() <= 0.03 * 20 / 50 + 1e-9
    assert np.abs(np.diff(robot.states[-2:], axis=0))[0, :3].max() < 1e-6, "it is at rest at the end"
    assert np.ptp(np.array(robot.states)[:, :3], axis=0).max() > 0.01, "it moved before"


def _saved(robot: RobotSpec, folder: Path) -> Path:
    configs.save_file(folder / "robot.yaml", robot)
    return folder / "robot.yaml"
