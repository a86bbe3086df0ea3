"""The test robots are valid Gymnasium environments, and their experts succeed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.store import Pool
from recap.types import Episode
from robots import joint_arm, one_arm
from robots.common import MAX_STEPS, Embodiment
from robots.joint_arm import JointArmEnv
from robots.one_arm import OneArmEnv
from robots.recording import Expert, Robot, record, record_many, to_lerobot

Make = Callable[[Embodiment], Robot]
ROBOTS: Mapping[str, tuple[Make, Expert]] = {
    "one_arm": (OneArmEnv, one_arm.expert),
    "joint_arm": (JointArmEnv, joint_arm.expert),
}
SIZES = {"front": (60, 80, 3), "wrist": (48, 96, 3), "cam": (72, 54, 3)}
EMBODIMENTS: tuple[Embodiment, ...] = get_args(Embodiment)
CASES = [
    (robot, task, embodiment)
    for robot, (make, _) in ROBOTS.items()
    for task in make("target").get_wrapper_attr("tasks")
    for embodiment in EMBODIMENTS
]
STARTS = [(robot, task) for robot, task, embodiment in CASES if embodiment == "target"]


def first(robot: str, task: str, seed: int, embodiment: Embodiment = "target") -> dict[str, Any]:
    observation, _ = ROBOTS[robot][0](embodiment).reset(seed=seed, options={"task": task})
    return observation


def demonstration(robot: str, task: str, seed: int, embodiment: Embodiment = "target") -> Episode:
    make, expert = ROBOTS[robot]
    return record(make(embodiment), expert, task, seed, f"{robot}-{embodiment}", f"{robot}/{task}/{seed}")


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # metres and radians are neither
@pytest.mark.parametrize("embodiment", EMBODIMENTS)
@pytest.mark.parametrize("robot", ROBOTS)
def test_the_environments_pass_gymnasiums_checker(robot: str, embodiment: Embodiment) -> None:
    check_env(ROBOTS[robot][0](embodiment), skip_render_check=True)


@pytest.mark.parametrize(("robot", "task", "embodiment"), CASES)
def test_experts_succeed(robot: str, task: str, embodiment: Embodiment) -> None:
    make, expert = ROBOTS[robot]
    env = make(embodiment)
    episodes = [record(env, expert, task, seed, "arm", "scene") for seed in range(5)]
    assert all(episode.success for episode in episodes)
    assert all(8 < len(episode) < MAX_STEPS for episode in episodes)


@pytest.mark.parametrize(("robot", "task"), STARTS)
def test_the_pool_arm_takes_longer(robot: str, task: str) -> None:
    fast, slow = (demonstration(robot, task, 3, embodiment) for embodiment in EMBODIMENTS)
    assert len(slow) > 1.5 * len(fast)


@pytest.mark.parametrize(("robot", "task"), STARTS)
def test_random_actions_fail_and_are_truncated_at_the_step_limit(robot: str, task: str) -> None:
    env = ROBOTS[robot][0]("target")
    env.reset(seed=1, options={"task": task})
    env.action_space.seed(1)
    for number in range(1, MAX_STEPS + 1):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert (reward, terminated, truncated) == (0.0, False, number == MAX_STEPS)
        assert not info["is_success"]
        assert info["distance"] > 0


@pytest.mark.parametrize(("robot", "task"), STARTS)
def test_images_depend_on_the_scene_and_on_the_arm(robot: str, task: str) -> None:
    views = first(robot, task, 0)["images"]
    for camera, picture in views.items():
        assert picture.shape == SIZES[camera]
        assert picture.dtype == np.uint8
        assert (picture != first(robot, task, 1)["images"][camera]).any()
        assert (picture != first(robot, task, 0, "pool")["images"][camera]).any()


@pytest.mark.parametrize(("robot", "task"), STARTS)
def test_only_the_images_show_the_object(robot: str, task: str) -> None:
    env = ROBOTS[robot][0]("target")
    observation, info = env.reset(seed=0, options={"task": task})
    assert set(observation) == {"state", "images"}
    assert set(info) == {"task"}
    assert set(env.step(env.action_space.sample())[4]) == {"task", "is_success", "distance"}


@pytest.mark.parametrize(("robot", "task"), STARTS)
def test_equal_seeds_give_equal_demonstrations(robot: str, task: str) -> None:
    one, other = (demonstration(robot, task, 4) for _ in range(2))
    assert np.array_equal(one.proprio, other.proprio)
    assert np.array_equal(one.actions, other.actions)
    for camera, frames in one.images.items():
        assert np.array_equal(frames, other.images[camera])
    assert not np.array_equal(one.proprio[0], demonstration(robot, task, 5).proprio[0])


def test_both_arms_start_from_the_same_scene() -> None:
    states = [first("one_arm", "lift", 7, embodiment)["state"] for embodiment in EMBODIMENTS]
    assert np.array_equal(*states)


def test_a_released_cube_falls() -> None:
    env = OneArmEnv()
    observation, _ = env.reset(seed=0, options={"task": "lift"})
    while env._thing[2] < 0.1:
        observation = env.step(one_arm.expert(env))[0]
    action = observation["state"].copy()
    action[9] = 1.0
    for _ in range(4):
        env.step(action)
    assert env._thing[2] == one_arm.CUBE


@pytest.mark.parametrize("robot", ROBOTS)
def test_invalid_actions_and_tasks_are_refused(robot: str) -> None:
    env = ROBOTS[robot][0]("target")
    env.reset(seed=0)
    action = env.action_space.sample()
    for bad in (action[:-1], np.full_like(action, np.nan)):
        with pytest.raises(ValueError, match="finite numbers"):
            env.step(bad)
    with pytest.raises(ValueError, match="no task 'fly'"):
        env.reset(options={"task": "fly"})


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_dataset_of_the_robots_can_be_read_and_added_to_a_pool(robot: str, tmp_path: Path) -> None:
    make, expert = ROBOTS[robot]
    env = make("target")
    episodes = record_many(env, expert, env.get_wrapper_attr("tasks"), range(2), f"{robot}-target")
    to_lerobot(episodes, tmp_path / "data")
    source = open_source(tmp_path / "data")
    assert not [finding for finding in check_dataset(source) if finding.severity == "error"]
    for kept, episode in zip(source, episodes, strict=True):
        assert (kept.id, kept.task, kept.attributes) == (episode.id, episode.task, episode.attributes)
        assert np.array_equal(kept.actions, episode.actions)
        assert {camera: frames[0].shape for camera, frames in kept.images.items()} == {
            camera: SIZES[camera] for camera in episode.images
        }
    pool = Pool.create(str(tmp_path / "pool"))
    pool.add(list(source))
    assert len(pool) == len(episodes)
