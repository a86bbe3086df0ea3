"""Outliers: demonstrations whose actions contradict their states, or that stop early."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recap.body import Feature
from recap.pool.memory import MemoryView
from recap.retrieval.outliers import Outlier, outliers
from recap.retrieval.presets import find_retrieval
from recap.robot import RobotSpec
from recap.types import Episode

TOOL = (Feature("tool", "position", 3, "m"), Feature("gripper", "gripper", limits=(0.0, 1.0)))
ROBOT = RobotSpec("reacher", 10, TOOL)


def reach(number: int, task: str = "reach", delta: bool = False) -> Episode:
    """A line from a random start to the task's end; actions are the next position plus noise."""
    rng = np.random.default_rng(number)
    n = int(rng.integers(36, 44))
    start, end = rng.uniform(-0.2, 0.2, 3), np.array([0.5, 0.0, 0.1]) + rng.normal(0, 0.01, 3)
    path = start + (end - start) * np.linspace(0, 1, n + 1)[:, None]
    states = np.column_stack([path[:-1], np.linspace(1, 0, n)]).astype(np.float32)
    targets = np.column_stack([path[1:] + rng.normal(0, 0.001, (n, 3)), rng.uniform(0, 1, n)])
    if delta:
        targets -= states
    return Episode(
        id=f"{task}/{number}",
        scene_id=f"scene-{task}-{number}",
        task=task,
        embodiment="arm",
        fps=10.0,
        timestamps=np.arange(n) / 10,
        proprio=states,
        actions=targets.astype(np.float32),
    )


def found_in(episodes: list[Episode], robot: RobotSpec = ROBOT, **how: Any) -> list[Outlier]:
    return outliers(MemoryView(episodes, robot=robot), robot, find_retrieval("world", robot), **how)


def mirrored(episode: Episode) -> Episode:
    actions = episode.actions.copy()
    actions[:, :3] = 2 * episode.proprio[:, :3] - actions[:, :3]
    return replace(episode, actions=actions)


def slowed(episode: Episode, times: int) -> Episode:
    """The same path in so many times the steps."""
    n = (len(episode) - 1) * times + 1
    states = np.column_stack(
        [np.interp(np.arange(n), np.arange(len(episode)) * times, column) for column in episode.proprio.T]
    ).astype(np.float32)
    return replace(
        episode, timestamps=np.arange(n) / 10, proprio=states, actions=np.vstack([states[1:], states[-1:]])
    )


def shifted(episode: Episode) -> Episode:
    return replace(episode, actions=episode.actions + np.float32([0.04, 0, 0, 0]))


def cut(episode: Episode) -> Episode:
    return replace(
        episode,
        timestamps=episode.timestamps[:15],
        proprio=episode.proprio[:15],
        actions=episode.actions[:15],
    )


def test_a_sound_pool_has_few_outliers() -> None:
    found = [one for seed in range(20) for one in found_in([reach(100 * seed + i) for i in range(20)])]
    assert len(found) <= 0.02 * 20 * 20, found


@pytest.mark.parametrize(
    ("harm", "reason"), [(mirrored, "(tool)"), (shifted, "(tool)"), (cut, "stops early")]
)
def test_a_corrupted_demonstration_is_found_with_its_reason(
    harm: Callable[[Episode], Episode], reason: str
) -> None:
    pool = [reach(i) for i in range(20)]
    pool[7] = harm(pool[7])
    found = found_in(pool)
    assert [one.episode_id for one in found] == ["reach/7"]
    assert reason in found[0].reason
    assert found[0].deviations > 3


def test_slow_actions_in_the_wrong_direction_are_found() -> None:
    """Their distance to the next state is small: 0.4 mm per step."""
    pool = [slowed(reach(i), 40) for i in range(20)]
    pool[7] = mirrored(pool[7])
    assert [one.episode_id for one in found_in(pool)] == ["reach/7"]


def test_delta_actions_are_compared_with_changes_of_the_state() -> None:
    robot = replace(ROBOT, action_mode="delta")
    pool = [reach(i, delta=True) for i in range(12)]
    assert found_in(pool, robot) == []
    pool[3] = replace(pool[3], actions=-pool[3].actions)
    assert [one.episode_id for one in found_in(pool, robot)] == ["reach/3"]


def test_unreached_gripper_targets_make_no_outlier() -> None:
    pool = [reach(i) for i in range(12)]
    pool[3] = replace(pool[3], actions=pool[3].actions * np.float32([1, 1, 1, 0]))
    assert found_in(pool) == []


def test_only_demonstrations_of_one_task_are_compared() -> None:
    pool = [reach(i) for i in range(10)] + [shifted(reach(i, "shifted")) for i in range(10)]
    assert found_in(pool) == [], "all demonstrations of the task are shifted equally"
    assert found_in(pool[:10] + pool[10:14], task_of=lambda episode: episode.task) == [], "too few"
    mixed = pool[:10] + pool[10:12]
    assert {one.episode_id for one in found_in(mixed, task_of=lambda _: "any")} == {"shifted/0", "shifted/1"}


def test_demonstrations_not_in_ids_are_not_checked() -> None:
    pool = [reach(i) for i in range(12)]
    pool[3] = shifted(pool[3])
    assert found_in(pool, ids=[episode.id for episode in pool if episode is not pool[3]]) == []
