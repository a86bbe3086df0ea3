"""Checks whether a demonstration has the same features, cameras and objects as the pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recap.body import Body
from recap.errors import InputError
from recap.pool.view import PoolView, robot_of
from recap.robot import RobotSpec
from recap.types import Episode

N_COMPARED = 16


def refuse_other_layout(view: PoolView, episodes: Sequence[Episode]) -> None:
    """Raise an InputError that names the difference, before anything is written.

    Actions and proprioception must have the widths of the pool's description or of its first demonstration.
    Each camera that all others have is required, and each object that all others of the same task have.
    Embodiments may differ, and additional data are allowed.
    """
    ids = view.episode_ids
    # The first and the newest episodes stand for all, so that a large pool is not read for a small addition.
    there = [view.episode(name) for name in dict.fromkeys((*ids[:N_COMPARED], *ids[-N_COMPARED:]))]
    robot = robot_of(view)
    if robot is None:
        return
    known = set(ids)
    for episode in episodes:
        why = None if episode.id in known else _difference(robot, there, episode)
        if why is not None:
            text = f"episode {episode.id!a} is not laid out as the pool is: {why}"
            raise InputError(text, code="pool.layout")


def _difference(robot: RobotSpec, there: Sequence[Episode], episode: Episode) -> str | None:
    """The difference in words, or None."""
    vectors: tuple[tuple[str, NDArray[np.float32], Body], ...] = (
        ("actions", episode.actions, robot.act),
        ("proprioception", episode.proprio, robot.body),
    )
    for what, values, body in vectors:
        shape = np.shape(values)[1:]
        if shape != (body.size,):
            features = ", ".join(f"{feature.name} {feature.size}" for feature in body.features)
            return f"{what} of {_numbers(shape)} a step, not {body.size} ({features})"
    for camera in robot.cameras:
        if camera not in episode.images and all(camera in other.images for other in there):
            known = ", ".join(episode.images) or "none"
            return f"camera '{camera}' is missing, it has {known}; --map image:{camera}=KEY names one so"
    alike = [other for other in there if other.task == episode.task]
    for name in alike[0].objects if alike else ():
        if name not in episode.objects and all(name in other.objects for other in alike):
            return f"object '{name}' is missing"
    return None


def _numbers(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} numbers" if len(shape) == 1 else f"shape {shape}"
