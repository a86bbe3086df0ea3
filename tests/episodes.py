"""Small Push-T-like episodes for tests."""

from dataclasses import replace

import numpy as np

from recap.geometry import transform_points
from recap.types import Episode, Observation


def random_episode(name: str, seed: int, n: int = 30, goal_angle: float = 0.5, symmetry: int = 1) -> Episode:
    """A randomly moving pusher and block, with a goal."""
    rng = np.random.default_rng(seed)
    path = np.cumsum(rng.normal(0, 4, (n, 7)), axis=0)
    start = np.array([*rng.uniform(60, 450, 2), *rng.uniform(100, 400, 2), rng.uniform(-3, 3)])
    block = np.column_stack([start[2:4] + path[:, 2:4], start[4] + 0.01 * path[:, 4]])
    return Episode(
        id=name,
        scene_id=f"scene-{seed}",
        task="push the block",
        embodiment="disc",
        fps=10.0,
        timestamps=np.arange(n) / 10,
        proprio=(start[:2] + path[:, :2]).astype(np.float32),
        actions=(start[:2] + path[:, :2] + path[:, 5:7]).astype(np.float32),
        objects={"block": block.astype(np.float32)},
        goal=np.array([256, 256, goal_angle], np.float32),
        attributes={"symmetry": symmetry, "block": "tee"},
    )


def beside_its_block(episode: Episode) -> Episode:
    """The same block with a pusher that stays next to it."""
    poses = episode.objects["block"].astype(np.float64)
    places = np.array([transform_points(pose, np.array([[5.0, -17.0]]))[0] for pose in poses], np.float32)
    return replace(episode, proprio=places, actions=places.copy())


def observation_of(episode: Episode, t: int) -> Observation:
    """The observation of step t."""
    return Observation(
        proprio=episode.proprio[t],
        task=episode.task,
        time_s=float(episode.timestamps[t]),
        objects={name: poses[t].astype(np.float64) for name, poses in episode.objects.items()},
        goal=None if episode.goal is None else episode.goal.astype(np.float64),
    )
