"""Demonstrations of tasks by scripted experts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from recap.types import Episode
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.expert import CONTROL_HZ, Expert
from recap_worlds.dualarm.persons import Person, habits_of
from recap_worlds.dualarm.robots import HAND
from recap_worlds.dualarm.scenes import CAMERAS

ACTION_SPACE = "absolute 20-D tool poses"
Wanted = tuple[str, str, int]  # task, embodiment, seed
SPEEDS = (1.0, 0.8, 0.6)  # a failed demonstration is tried again more slowly


def demonstrate(
    task: str,
    embodiment: str,
    seed: int,
    image_size: int = 128,
    split: str = "clean",
    *,
    env: DualArmEnv | None = None,
    speed: float = 1.0,
    cameras: tuple[str, ...] = CAMERAS,
) -> Episode:
    """The expert's episode in a scene, successful or not; `env` is reused if given."""
    env = env or DualArmEnv(task, embodiment, split=split, image_size=0)
    habits = habits_of(seed) if embodiment == HAND.name else None
    expert: Expert = Expert(task, speed) if habits is None else Person(task, habits, speed)
    env.reset(seed=seed)
    observations, actions = [], []
    success = truncated = False
    while not (success or truncated):
        observations.append(env.observe(image_size, cameras))
        actions.append(expert.act(observations[-1]))
        _, _, success, truncated, _ = env.step(actions[-1])
    scene = f"dualarm/{task}/{split}/{seed}"
    names = env.task.objects
    return Episode(
        id=f"{scene}/{embodiment}",
        scene_id=scene,
        task=observations[0].task,
        embodiment=embodiment,
        fps=CONTROL_HZ,
        timestamps=np.arange(len(actions)) / CONTROL_HZ,
        proprio=np.array([o.proprio for o in observations], np.float32),
        actions=np.array(actions, np.float32),
        objects={name: np.array([o.objects[name] for o in observations], np.float32) for name in names},
        images={c: [o.images[c] for o in observations] for c in cameras} if image_size else {},
        action_space=ACTION_SPACE,
        success=success,
        source="scripted expert",
        attributes={
            "env": "dualarm",
            "task_key": task,
            "split": split,
            "seed": seed,
            "main_object": names[0],  # datasets on disk do not keep the order of objects
            **({} if habits is None else {"speed": speed * habits.speed}),
        },
    )


def demonstrate_patiently(
    task: str,
    embodiment: str,
    seed: int,
    image_size: int,
    split: str = "clean",
    *,
    env: DualArmEnv,
    cameras: tuple[str, ...] = CAMERAS,
) -> Episode:
    """The expert's episode in a scene; failed episodes are repeated more slowly, up to the slowest speed."""
    for speed in SPEEDS:
        episode = demonstrate(
            task, embodiment, seed, image_size, split, env=env, speed=speed, cameras=cameras
        )
        if episode.success:
            break
    return episode


def demonstrate_all(image_size: int, cameras: tuple[str, ...], items: Iterator[Wanted]) -> Iterator[Episode]:
    """Demonstrations by one worker, successful or not."""
    for (task, embodiment), same in groupby(items, lambda item: item[:2]):
        env = DualArmEnv(task, embodiment, image_size=0)
        for _, _, seed in same:
            yield demonstrate_patiently(task, embodiment, seed, image_size, env=env, cameras=cameras)
        env.close()
