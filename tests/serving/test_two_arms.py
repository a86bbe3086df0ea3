"""A served two-arm policy drives another robot than the one in the pool, by the robot loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import Served, served

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.pool.store import Pool
from recap.serving.service import ServeSpec, Service
from recap.types import Episode, Observation
from recap_client.client import PolicyClient
from recap_client.robot_loop import LoopReport, LoopSpec, Robot, RobotLoop
from recap_client.robots import make_robot
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.simulated_robot import DualArmRobot

TOOLS = [0, 1, 2, 10, 11, 12]


@pytest.fixture(scope="module")
def shown() -> list[Episode]:
    """Two demonstrations of the other robot."""
    return [demonstrate("lift_pot", "ur5e", seed, 0) for seed in (100_000, 100_001)]


@pytest.fixture(scope="module")
def server(shown: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("arms") / "pool"
    Pool.create(place).add(shown)
    spec = ServeSpec(AgentConfig("dualarm-small"), pool=str(place), port=0)
    with served(Service.open(spec)) as running:
        yield running


def test_the_metadata_describes_two_arms(server: Served) -> None:
    with PolicyClient(server.ws) as client:
        said = client.metadata
    assert (said["policy"], said["retrieval"], said["control_hz"]) == ("dualarm-small", "dualarm-parts", 20.0)
    assert (said["action_dim"], said["state_dim"], said["action_horizon"]) == (20, 20, 16)
    assert (said["action_mode"], said["robot"]["goal"]) == ("absolute", None)
    assert (said["cameras_required"], said["objects_required"], said["poses_from_images"]) == ([], [], False)
    assert list(said["image_keys"]) == ["head", "left_wrist", "right_wrist"]
    assert [said["action_low"][9], said["action_high"][9]] == [0.0, 1.0], "limits of the gripper"
    assert said["action_low"][0] == -np.inf
    assert said["max_steps"] == []
    assert [f["kind"] for f in said["robot"]["proprio"]] == ["position", "rotation6d", "gripper"] * 2


def test_the_arms_of_another_robot_move_to_the_pot(server: Served) -> None:
    with PolicyClient(server.ws, retries=0) as client:
        robot = make_robot("dualarm-sim", client.metadata, {"task": "lift_pot", "seed": 500})
        assert isinstance(robot, DualArmRobot)
        client.reset(seed=500, options=robot.options)
        begun = robot.observe()

        def enough(so_far: LoopReport) -> None:  # on a busy machine replies are late and the arms hold
            if so_far.periods - so_far.misses >= 60:
                loop.stop()

        loop = RobotLoop(robot, client, LoopSpec(steps=2000), enough)
        report = loop.run()
    assert report.reason in ("stopped", "done")
    assert (report.failures, report.held, report.periods) == (0, 0, len(loop.targets))
    assert report.replies >= 4
    targets = np.array(loop.targets)
    assert targets.shape[1] == 20
    assert ((targets[:, [9, 19]] >= 0) & (targets[:, [9, 19]] <= 1)).all()
    assert set(report.status) == {"success", "steps"}
    ended = robot.observe()
    assert not begun.images
    pot = begun.objects["pot"][:3]
    away = [_from(each, pot) for each in (begun, ended)]
    assert (away[1] < 0.6 * away[0]).all(), "both tools are closer"
    metrics = server.http("/metrics")[1]
    assert b"recap_pool_unusable 0" in metrics
    assert b"recap_errors_total 0" in metrics


def _from(seen: Observation, place: np.ndarray) -> np.ndarray:
    tools = seen.proprio[TOOLS].reshape(2, 3)
    return np.asarray(np.linalg.norm(tools - place, axis=1))


def test_an_added_demonstration_of_the_same_robot_is_used_after_a_reset(
    server: Served, shown: list[Episode]
) -> None:
    own = demonstrate("lift_pot", "viperx", 501, 0)
    robot = DualArmRobot(seed=501)
    seen = robot.observe()
    message = {"observation/state": seen.proprio, "prompt": seen.task}
    message |= {"observation/objects/pot": seen.objects["pot"]}
    with PolicyClient(server.ws) as client:
        assert client.infer(message)["retrieval"]["episode_id"] in {episode.id for episode in shown}
        server.service.store.add([own])
        client.reset(seed=1)
        reply = client.infer(message)
        assert reply["retrieval"]["episode_id"] == own.id
        assert reply["actions"].shape == (16, 20)
        server.service.store.remove([own.id])
    robot.close()


def test_the_simulated_robot_sends_the_cameras_that_the_server_requires() -> None:
    said = {"cameras_required": ["head", "left_wrist"], "camera_size": 48, "option_names": []}
    robot = DualArmRobot.for_server(said, task="click_bell", embodiment="ur5e", seed=3)
    assert isinstance(robot, Robot)
    seen = robot.observe()
    assert {name: image.shape for name, image in seen.images.items()} == {
        "head": (48, 48, 3),
        "left_wrist": (48, 48, 3),
    }
    assert robot.options == {}
    assert robot.env.robot.name == "ur5e"
    robot.act(seen.proprio.astype(np.float64))
    assert (robot.status(), robot.done) == ({"success": 0.0, "steps": 1.0}, False)
    assert robot.picture().dtype == np.uint8
    robot.close()
    assert DualArmRobot.for_server({}).observe().images == {}
    with pytest.raises(InputError, match="camera 'top'"):
        DualArmRobot.for_server({"cameras_required": ["top"]})


def test_a_pool_of_another_robot_is_refused(tmp_path: Path) -> None:
    from episodes import random_episode

    Pool.create(tmp_path / "pool").add([random_episode("flat", 1)])
    spec = ServeSpec(AgentConfig("dualarm-small"), pool=str(tmp_path / "pool"), port=0)
    with pytest.raises(InputError, match=r"2-D actions .* another robot"):
        Service.open(spec)
