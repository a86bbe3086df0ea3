"""Synthetic two-arm demonstrations: smooth paths and coloured images."""

from __future__ import annotations

import numpy as np

from recap.geometry3 import encode_arms
from recap.types import F64, U8, Episode

RED, BLUE = (200, 30, 40), (20, 40, 210)  # as RGB


def picture(share: float, size: tuple[int, int] = (24, 32)) -> U8:
    """A red image with a blue bar; `share` is the bar's part of the width."""
    image = np.full((*size, 3), RED, np.uint8)
    image[:, : round(share * size[1])] = BLUE
    return image


def path(n: int, start: F64, end: F64, turn: float) -> F64:
    """Poses (n, 7) from `start` to `end` that rotate by `turn` about an oblique axis; quaternions wxyz."""
    t = (1 - np.cos(np.pi * np.linspace(0, 1, n)))[:, None] / 2
    angle = turn * t
    axis = np.array([1.0, 2.0, 2.0]) / 3
    place = start + t * (end - start) + 0.05 * np.sin(np.pi * t) * np.array([0, 0, 1.0])
    return np.concatenate([place, np.cos(angle / 2), np.sin(angle / 2) * axis], axis=1)


def arms_episode(
    name: str,
    seed: int = 0,
    n: int = 40,
    *,
    task: str = "lift the pot",
    cameras: tuple[str, ...] = ("head",),
    turn: float = 1.5,
) -> Episode:
    """Each arm moves to its own target and closes its gripper; the action is the next state."""
    rng = np.random.default_rng(seed)
    begin = np.array([[-0.3, -0.2, 0.2], [0.3, -0.2, 0.2]])
    ends = begin + rng.uniform([-0.1, 0.1, -0.15], [0.1, 0.3, 0.0], (2, 3))
    gripper = np.clip(1.5 - 2 * np.linspace(0, 1, n), 0, 1)
    left, right = (path(n, a, b, s * turn) for a, b, s in zip(begin, ends, (1, -1), strict=True))
    arms = encode_arms(left, gripper, right, 1 - 0.5 * gripper).astype(np.float32)
    film = [picture(i / n) for i in range(n)]
    return Episode(
        id=name,
        scene_id=f"scene of {name}",
        task=task,
        embodiment="ur5e",
        fps=20.0,
        timestamps=np.arange(n) / 20,
        proprio=arms,
        actions=np.concatenate([arms[1:], arms[-1:]]),
        objects={"pot": left.astype(np.float32), "lid": right.astype(np.float32)},
        images=dict.fromkeys(cameras, film),
        action_space="absolute 20-D tool poses",
        attributes={"seed": 100_000 + seed, "task_key": "lift_pot", "split": "clean"},
    )
