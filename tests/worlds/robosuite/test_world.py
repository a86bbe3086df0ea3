"""Robosuite's arms through the public world interface; not skipped in `make test-long` and CI."""

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import recap
from recap.agent_config import AgentConfig
from recap.api import Agent
from recap.cli import cli
from recap.kinematics import JointSpace
from recap.pool.importers import open_source
from recap.pool.memory import MemoryPool
from recap.testing import check_world
from recap.types import F64
from recap_worlds.collecting import SuiteSpec, collect_suite
from recap_worlds.robosuite.control import OperationalSpace
from recap_worlds.robosuite.expert import Expert
from recap_worlds.robosuite.suite import RobosuiteSuite
from recap_worlds.robosuite.tasks import TASKS
from recap_worlds.robosuite.world import ARM, ARMS, RETREAT_M, STILL, RobosuiteWorld, point_of

pytestmark = pytest.mark.long
if "robosuite" not in os.environ.get("RECAP_NEEDS", "") and not os.environ.get("CI"):
    pytest.importorskip("robosuite", reason="no robosuite: make .venv/.robosuite installs it")


def run_expert(
    world: RobosuiteWorld, arm: str, task: str, seed: int
) -> list[tuple[F64, Mapping[str, float]]]:
    """The tool and the metrics of each step."""
    world.reset(seed, task)
    expert, steps = Expert(task, arm), []
    for _ in range(TASKS[task].max_steps):
        seen = world.observe(None)
        metrics, ended = world.step(expert.act(seen))
        steps.append((np.asarray(world.observe(None).proprio, np.float64), metrics))
        if ended:
            break
    return steps


def test_the_world_passes_check_world() -> None:
    check_world(RobosuiteSuite(), "stack")


def test_a_seed_gives_bitwise_the_same_episode_after_any_other_episode() -> None:
    world = RobosuiteWorld("ur5e")
    first = run_expert(world, "ur5e", "lift", 500)
    run_expert(world, "ur5e", "lift", 501)
    again, fresh = (run_expert(w, "ur5e", "lift", 500) for w in (world, RobosuiteWorld("ur5e")))
    for other in (again, fresh):
        assert len(other) == len(first)
        assert all(np.array_equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("arm", sorted(ARMS))
def test_torques_are_bitwise_equal_to_robosuites_controller(arm: str) -> None:
    world = RobosuiteWorld(arm)
    world.reset(500, "stack")
    expert, env = Expert("stack", arm), world._env
    controller = env.robots[0].part_controllers["right"]
    for _ in range(60):
        world.step(expert.act(world.observe(None)))
        env.sim.step1()
        ours = OperationalSpace(controller, world._site)()
        assert np.array_equal(ours, controller.run_controller())
        env.sim.step2()
    world.close()


def test_the_arms_model_separates_reachable_from_unreachable_poses() -> None:
    world = RobosuiteWorld("panda")
    world.reset(500, "square_nut")
    joints = JointSpace(world.reaching())
    here = np.asarray(world.observe(None).proprio, np.float64)
    near, far = here + 0.1 * np.eye(10)[0], here + 0.6 * np.eye(10)[0]
    assert joints.can_reach(np.array([here, near, far]), joints.posture(here)).tolist() == [True, True, False]
    world.close()


@pytest.mark.parametrize("task", sorted(TASKS))
def test_all_robots_start_in_the_same_scene(task: str) -> None:
    poses = []
    for arm in ARMS:
        world = RobosuiteWorld(arm)
        world.reset(500, task)
        poses.append(world.observe(None).objects)
        world.close()
    for other in poses[1:]:
        assert set(other) == set(poses[0])
        for name, pose in other.items():
            assert pose == pytest.approx(poses[0][name], abs=5e-4), name


@pytest.mark.parametrize("arm", sorted(ARMS))
def test_the_expert_of_every_arm_lifts_the_cube(arm: str) -> None:
    steps = run_expert(RobosuiteWorld(arm), arm, "lift", 500)
    assert steps[-1][1]["success"] == 1


@pytest.mark.parametrize("task", ["stack", "can", "square_nut", "door"])
def test_success_needs_the_task_to_stay_done_and_the_tool_to_retreat(task: str) -> None:
    world = RobosuiteWorld("panda")
    steps = run_expert(world, "panda", task, 500)
    done = [bool(metrics["done"]) for _, metrics in steps]
    assert steps[-1][1]["success"] == 1
    assert all(done[-STILL:])
    assert len(done) == STILL or not done[-STILL - 1]
    handled = point_of(world.observe(None).objects[TASKS[task].main], TASKS[task].grip)
    assert np.linalg.norm(steps[-1][0][:3] - handled) >= RETREAT_M


def test_two_collected_tasks_are_one_dataset_and_replay_succeeds(tmp_path: Path) -> None:
    spec = SuiteSpec("robosuite", ("lift", "stack"), 1, "ur5e", {"embodiment": "ur5e"}, image_size=0)
    collect_suite(spec, tmp_path / "ur5e")
    lift, stack = open_source(tmp_path / "ur5e")
    assert (sorted(lift.objects), sorted(stack.objects)) == (["cube"], ["base", "cube"])
    assert lift.scene_id == "robosuite/lift/100000"
    agent = Agent(None, MemoryPool([lift, stack]), AgentConfig(retrieval="robosuite-parts"), robot=ARM)
    world = RobosuiteWorld("panda")
    world.reset(501, "stack")
    ended = False
    for _ in range(TASKS["stack"].max_steps):
        metrics, ended = world.step(agent.act(world.observe(None)))
        if ended:
            break
    assert metrics["success"] == 1
    world.close()


def test_a_policy_is_trained_on_pairs_of_two_arms_with_the_command(tmp_path: Path) -> None:
    for arm in ("panda", "ur5e"):
        spec = SuiteSpec("robosuite", ("lift",), 3, arm, {"embodiment": arm}, image_size=0)
        collect_suite(spec, tmp_path / arm)
    description = str(files("recap_worlds.robosuite") / "robot.yaml")
    data = ["--target", str(tmp_path / "panda"), "--pool", str(tmp_path / "ur5e")]
    how = ["--size", "debug", "--retrieval", "robosuite-parts", "--set", "policy.inputs=S", "--device", "cpu"]
    out = tmp_path / "run"
    done = CliRunner().invoke(
        cli, ["train", description, *data, *how, "--iterations", "2", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert recap.load_policy(str(out / "last")).config.robot == ARM


def test_both_cameras_are_rendered_and_poses_can_be_withheld() -> None:
    world = RobosuiteWorld("panda", poses=False)
    world.reset(500, "lift")
    seen = world.observe(128)
    assert not seen.objects
    assert sorted(seen.images) == ["agentview", "robot0_eye_in_hand"]
    for picture in seen.images.values():
        assert picture.shape == (128, 128, 3)
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
    world.close()
