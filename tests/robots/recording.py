"""Demonstrations of the test robots as episodes and as LeRobot datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import gymnasium
import numpy as np

from recap.pool.lerobot import assemble, stage_episode
from recap.types import F32, Episode
from robots.common import CONTROL_HZ, Observation

Robot: TypeAlias = gymnasium.Env[Observation, F32]
Expert: TypeAlias = Callable[[Robot], F32]


def record(env: Robot, expert: Expert, task: str, seed: int, embodiment_name: str, scene_id: str) -> Episode:
    """One demonstration of the seed's scene; each frame is the observation before its action."""
    observation, info = env.reset(seed=seed, options={"task": task})
    words = str(info["task"])
    seen: list[Observation] = []
    actions: list[F32] = []
    success = over = False
    while not over:
        action = expert(env)
        seen.append(observation)
        actions.append(action)
        observation, _, terminated, truncated, info = env.step(action)
        success, over = bool(info["is_success"]), terminated or truncated
    return Episode(
        id=f"{scene_id}/{embodiment_name}",
        scene_id=scene_id,
        task=words,
        embodiment=embodiment_name,
        fps=float(CONTROL_HZ),
        timestamps=np.arange(len(actions)) / CONTROL_HZ,
        proprio=np.stack([each["state"] for each in seen]),
        actions=np.stack(actions),
        images={camera: [each["images"][camera] for each in seen] for camera in seen[0]["images"]},
        action_space=str(env.get_wrapper_attr("action_meaning")),
        success=success,
        source="scripted expert",
        attributes={"task_key": task, "seed": seed},
    )


def record_many(
    env: Robot, expert: Expert, tasks: Sequence[str], seeds: Iterable[int], embodiment_name: str
) -> list[Episode]:
    """One demonstration for every task and seed; equal tasks and seeds are the same scene for every arm."""
    robot = str(env.get_wrapper_attr("name"))
    return [
        record(env, expert, task, seed, embodiment_name, f"{robot}/{task}/{seed}")
        for seed in seeds
        for task in tasks
    ]


def to_lerobot(episodes: Sequence[Episode], path: Path) -> None:
    """Writes episodes of one robot as a LeRobotDataset v3 to a new path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as staging:
        for index, episode in enumerate(episodes):
            stage_episode(Path(staging), index, episode)
        assemble(Path(staging), len(episodes), path)
