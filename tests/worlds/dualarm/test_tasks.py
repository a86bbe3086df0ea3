"""The tasks: experts solve them, idle and random actions do not; their wordings and names are consistent."""

import re

import gymnasium as gym
import numpy as np
import pytest

import recap_worlds.envs  # noqa: F401  registers the ids
from recap.errors import InputError
from recap.geometry3 import quaternion_to_matrix
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.robots import ROBOTS
from recap_worlds.dualarm.tasks import LEVELS, REAL_ROBOT, SEEN, TASKS, UNSEEN, task_named, tasks_named
from recap_worlds.dualarm.waypoints import (
    Hands,
    down,
    drawn_back,
    grip,
    heading,
    in_step,
    standing,
    swung,
    together,
)

MEASURED = sorted((*SEEN, *UNSEEN))
POOL = sorted(set(TASKS) - set(MEASURED))


@pytest.mark.parametrize("robot", sorted(ROBOTS))
@pytest.mark.parametrize("key", MEASURED)
def test_the_expert_solves_every_evaluation_task(key: str, robot: str) -> None:
    episodes = [demonstrate(key, robot, seed, 0) for seed in (540, 541)]
    assert all(episode.success for episode in episodes)
    for episode in episodes:
        assert np.abs(np.diff(episode.actions[:, [0, 1, 2, 10, 11, 12]], axis=0)).max() < 0.03, "no jumps"


@pytest.mark.parametrize("key", POOL)
def test_the_expert_demonstrates_every_pool_task(key: str) -> None:
    episode = demonstrate(key, "ur5e", 540, 0)
    assert episode.success
    assert tuple(episode.objects) == task_named(key).objects
    assert np.abs(np.diff(episode.actions[:, [0, 1, 2, 10, 11, 12]], axis=0)).max() < 0.03, "no jumps"


@pytest.mark.parametrize("key", MEASURED)
def test_neither_idle_nor_random_actions_solve_a_task(key: str) -> None:
    env = DualArmEnv(key, "viperx", image_size=0)
    rng = np.random.default_rng(0)
    for seed in (550, 551):
        env.reset(seed=seed)
        still = env.proprio()
        assert not any(env.step(still)[2] for _ in range(30))
        env.reset(seed=seed)
        target = still
        for t in range(120):
            if t % 10 == 0:  # long enough in one direction to get somewhere
                target = rng.uniform(env.action_space.low, env.action_space.high)
                target[[0, 1, 2, 10, 11, 12]] *= 0.3
            assert not env.step(target)[2]


@pytest.mark.parametrize("key", MEASURED)
def test_a_demonstration_has_its_id_scene_and_attributes(key: str) -> None:
    episode = demonstrate(key, "ur5e", 545, 0)
    task = task_named(key)
    assert episode.id == f"dualarm/{key}/clean/545/ur5e"
    assert episode.scene_id == f"dualarm/{key}/clean/545"
    assert episode.proprio.shape == episode.actions.shape == (len(episode), 20)
    assert tuple(episode.objects) == task.objects
    assert all(poses.shape == (len(episode), 7) for poses in episode.objects.values())
    assert episode.attributes == {
        "env": "dualarm",
        "task_key": key,
        "split": "clean",
        "seed": 545,
        "main_object": task.objects[0],
    }


@pytest.mark.parametrize("key", sorted(TASKS))
def test_every_task_has_enough_distinct_seen_and_unseen_wordings(key: str) -> None:
    task = task_named(key)
    words = [*task.seen, *task.unseen]
    assert len(task.seen) >= 4
    assert len(task.unseen) >= 2
    assert len(set(words)) == len(words)
    assert all(re.fullmatch(r"[a-z][a-z ,'-]+[a-z]", sentence) for sentence in words)


def test_every_task_has_an_id_and_a_level() -> None:
    assert {task.id for task in TASKS.values()} <= set(gym.registry)
    assert "recap/DualArm-MoveCanPot-v0" in gym.registry
    assert LEVELS[0] == SEEN
    assert {level[0] for level in LEVELS[1:]} == set(UNSEEN)
    flat = [key for level in LEVELS for key in level]
    assert len(set(flat)) == len(flat)
    assert list(TASKS) == [*flat, *REAL_ROBOT[1:]], "all tasks of all levels are listed in that order"


def test_groups_of_tasks_have_names() -> None:
    assert tasks_named("seen") == tasks_named("level1") == SEEN
    assert tasks_named("level6") == LEVELS[5]
    assert tasks_named("real-robot") == REAL_ROBOT
    assert tasks_named("lift_pot, move_can_pot,lift_pot") == ("lift_pot", "move_can_pot")
    with pytest.raises(InputError, match="did you mean 'lift_pot'"):
        tasks_named("lift_pots")


def test_the_tool_frame_approaches_along_x_and_opens_along_y() -> None:
    straight = quaternion_to_matrix(down((0, 0, 0.1))[3:])
    assert np.allclose(straight[:, 0], (0, 0, -1))
    assert np.allclose(straight[:, 1], (0, 1, 0))
    turned = quaternion_to_matrix(down((0, 0, 0.1), yaw=30)[3:])
    assert np.allclose(turned[:, 1], (-0.5, np.sqrt(0.75), 0))
    assert np.allclose(down((0, 0, 0.1), yaw=100), down((0, 0, 0.1), yaw=-80)), (
        "of two equivalent grips the nearer one"
    )
    leaning = quaternion_to_matrix(down((0, 0, 0.1), lean=20)[3:])
    assert leaning[0, 0] > 0.3, "the approach leans towards +x"


def test_grip_drawn_back_and_swung_transform_poses() -> None:
    pot = np.array([0.1, 0.2, 0, np.cos(0.25), 0, 0, np.sin(0.25)])
    assert heading(pot) == pytest.approx(np.degrees(0.5))
    pose = grip(pot, (0.1, 0, 0.05))
    assert np.allclose(pose[:3], (0.1 + 0.1 * np.cos(0.5), 0.2 + 0.1 * np.sin(0.5), 0.05))
    assert np.allclose(drawn_back(pose, 0.1)[:3] - pose[:3], (0, 0, 0.1))
    quarter = swung(down((0.1, 0, 0)), np.zeros(3), 90)
    assert np.allclose(quarter[:3], (0, 0.1, 0), atol=1e-9)


def hands() -> Hands:
    tools = {"left": down((-0.2, 0, 0.2)), "right": down((0.2, 0, 0.2))}
    return Hands({"cup": standing(-0.2, 0, 0.15, yaw=20)}, tools, {"left": 1.0, "right": 1.0}, dict(tools))


def test_bringing_moves_the_tool_so_that_the_held_object_reaches_its_target() -> None:
    mine = hands()
    tool = mine.bringing("left", "cup", standing(0.1, 0.1, 0.05, yaw=80))
    assert np.allclose(tool[:3], (0.1, 0.1, 0.1)), "as far above the cup as now"
    assert np.allclose(tool[3:], down((0, 0, 0), yaw=60)[3:]), "rotated by the same angle as the cup"


def test_turn_rotates_the_hand_in_place() -> None:
    turned = hands().turn("left", 30).poses["left"]
    assert np.allclose(turned[:3], (-0.2, 0, 0.2))
    assert np.allclose(turned[3:], down((0, 0, 0), yaw=-30)[3:]), (
        "about the approach direction, which points down"
    )
    tipped = hands().turn("right", 40, np.array([1.0, 0, 0])).poses["right"]
    assert np.allclose(tipped[3:], down((0, 0, 0), tilt=40)[3:])


def test_pressing_goes_down_and_comes_back() -> None:
    mine, heights = hands(), []
    for move in mine.press("right", down((0.2, 0, 0.1)), by=0.02):
        mine.poses.update(move.poses)
        heights.append(mine.poses["right"][2])
    assert heights == pytest.approx([0.16, 0.1, 0.08, 0.16])


def test_together_and_in_step_combine_moves_of_both_arms() -> None:
    mine = hands()
    move = together(mine.lift("left", 0.1, speed=0.1), mine.close("right"))
    assert set(move.poses) == {"left"}
    assert move.grips == {"right": 0.0}
    assert move.speed == 0.1
    assert move.settle_s > 0
    both = list(
        in_step(mine.pick("left", down((-0.2, 0.1, 0.05))), mine.press("right", down((0.2, 0, 0)), 0.01))
    )
    assert len(both) == 4
    assert all(set(move.poses) | set(move.grips) == {"left", "right"} for move in both)
