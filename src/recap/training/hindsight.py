"""More goals from the same demonstrations: wherever an object came to rest could have been the goal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recap.geometry import wrap_angle
from recap.types import Episode

STILL = 0.25  # px a step, an arm of 60 px turning with it: less is rest
ARM = 60.0
MIN_MOVED = 15.0  # px between two goals, likewise
MIN_FRAMES = 10


def hindsight(episode: Episode, name: str = "block") -> list[Episode]:
    """The demonstration up to each of its rests, each with the rest as its goal."""
    poses = np.asarray(episode.objects[name], np.float64)
    steps = np.diff(poses, axis=0)
    steps[:, 2] = [ARM * wrap_angle(float(turn)) for turn in steps[:, 2]]
    moving = np.linalg.norm(steps, axis=1) > STILL
    found: list[Episode] = []
    last = poses[0]
    for t in range(1, len(moving) - 1):
        rests = moving[t - 1] and not moving[t : t + 3].any()
        gap = poses[t] - last
        gap[2] = ARM * wrap_angle(float(gap[2]))
        if rests and np.linalg.norm(gap) > MIN_MOVED and t + 1 >= MIN_FRAMES:
            last = poses[t]
            found.append(_until(episode, t + 1, poses[t]))
    return found


def _until(episode: Episode, end: int, goal: np.ndarray) -> Episode:  # type: ignore[type-arg]
    pose = goal.copy()
    pose[2] = wrap_angle(float(goal[2]))
    return replace(
        episode,
        id=f"{episode.id}@{end}",
        scene_id=f"{episode.scene_id}@{end}",
        timestamps=episode.timestamps[:end],
        proprio=episode.proprio[:end],
        actions=episode.actions[:end],
        objects={key: value[:end] for key, value in episode.objects.items()},
        images={},
        goal=pose.astype(np.float32),
        attributes={k: v for k, v in episode.attributes.items() if k != "goal_angle"},
    )
