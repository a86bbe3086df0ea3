"""All objects of a scene in space, concatenated: 7 numbers each, xyz and quaternion (w first)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.types import F64, Episode, Frames

SPACE_DIM = 7


def is_round(name: str, round_objects: tuple[str, ...]) -> bool:
    """True if the name, or one of its words, is listed: can_1 and left_can both match can."""
    return any(word in round_objects for word in (name, *name.split("_")))


def names_of(episode: Frames) -> list[str]:
    """The objects in space: the main object first, the others by name, independent of storage order."""
    names = [name for name, value in episode.objects.items() if value.shape[1] == SPACE_DIM]
    main = episode.attributes.get("main_object", names[0] if names else "")
    return sorted(names, key=lambda name: (name != main, name))


def objects_of(episode: Frames, t: int | slice) -> F64:
    """Poses of all objects in the order of `names_of`: (7 n,) for one frame, (t, 7 n) for several."""
    poses = [episode.objects[name][t] for name in names_of(episode)]
    if not poses:
        return np.zeros(0) if isinstance(t, int) else np.zeros((len(episode.timestamps[t]), 0))
    return np.concatenate(poses, axis=-1).astype(np.float64)


def carried_objects(demonstration: Episode, frames: NDArray[np.int64], query: Frames, t: int) -> F64:
    """(h, 7 n) the query's objects if they moved from now on as in the demonstration.

    Objects that the demonstration lacks stay where they are. Scenes differ by a rotation about z only.
    """
    now = objects_of(query, t)
    rows = np.tile(now, (len(frames), 1))
    for number, name in enumerate(names_of(query)):
        poses = demonstration.objects.get(name)
        if poses is None or poses.shape[1] != SPACE_DIM or not (np.diff(poses[frames], axis=0) != 0).any():
            continue
        columns = slice(SPACE_DIM * number, SPACE_DIM * (number + 1))
        rows[:, columns] = _moved_alike(np.asarray(poses[frames], np.float64), now[columns])
    return rows


def _moved_alike(poses: F64, here: F64) -> F64:
    """(h, 7) poses of an object at `here` that moves as `poses` (h, 7) does."""
    turns, turned = quaternion_to_matrix(poses[:, 3:]), quaternion_to_matrix(here[3:])
    between = turned @ turns[0].T
    angle = np.arctan2(between[1, 0] - between[0, 1], between[0, 0] + between[1, 1])
    c, s = np.cos(angle), np.sin(angle)
    heading = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    places = here[:3] + (poses[:, :3] - poses[0, :3]) @ heading.T
    since = heading @ turns @ turns[0].T @ heading.T
    return np.concatenate([places, matrix_to_quaternion(since @ turned)], axis=1)
