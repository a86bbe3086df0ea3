"""Simulated people: how they move their hands, and what one or two cameras measure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from recap.geometry3 import ARM_DIM, GRIPPER, ROTATION, matrix_to_rotation6, rotation6_to_matrix
from recap.types import F64, Episode, Observation
from recap_hands.tool import LEAST_RANGE_M, grip_events, snapped
from recap_worlds.dualarm.expert import Expert
from recap_worlds.dualarm.robots import HAND

SPEEDS = (1.5, 3.0)  # times a robot's speed
LEAN_DEG = 12.0  # largest lean about the opening axis: people do not approach straight from above
TREMOR_M, TREMOR_RAD = 0.0007, math.radians(0.3)
CAMERA = np.array([0.0, -0.7, 0.68])  # position of a single camera, which misjudges distances


@dataclass(frozen=True)
class Habits:
    """Individual properties of one person in one episode."""

    seed: int
    speed: float
    lean: float  # rad


def habits_of(seed: int) -> Habits:
    """Drawn from the scene's seed."""
    rng = np.random.default_rng([seed, 21])
    return Habits(seed, float(rng.uniform(*SPEEDS)), math.radians(float(rng.uniform(-LEAN_DEG, LEAN_DEG))))


class Person(Expert):
    """The scripted expert with a person's habits: faster, leaning and with tremor."""

    def __init__(self, task: str, habits: Habits, share: float = 1.0) -> None:
        self.habits = habits
        super().__init__(task, share * habits.speed)

    def reset(self, seed: int) -> None:
        """Start an episode."""
        super().reset(seed)
        self._rng = np.random.default_rng([self.habits.seed, 22])
        self._tremor = np.zeros((2, 6))

    def act(self, observation: Observation) -> F64:
        """The next target of both hands: (20,)."""
        arms = super().act(observation).reshape(2, ARM_DIM).copy()
        fresh = self._rng.normal(0, 1, (2, 6)) * ([TREMOR_M] * 3 + [TREMOR_RAD] * 3)
        self._tremor = 0.5 * self._tremor + math.sqrt(0.75) * fresh
        turns = rotation6_to_matrix(arms[:, ROTATION]) @ _turns(np.array([[0.0, self.habits.lean, 0.0]]))
        arms[:, :3] += self._tremor[:, :3]
        arms[:, ROTATION] = matrix_to_rotation6(_turns(self._tremor[:, 3:]) @ turns)
        return np.asarray(arms.ravel())


@dataclass(frozen=True)
class Film:
    """Measurement errors of a hand: noise, errors of distance, and gaps.

    Args:
        bias: of the assumed hand size, the same in all films; a share of the distance from the camera.
        scale: standard deviation of the same error per film.
        gaps: share of frames without a pose, which are interpolated.
    """

    position: float = 0.0  # m
    turn: float = 0.0  # rad
    bias: float = 0.0
    scale: float = 0.0
    gaps: float = 0.0


# Two cameras as measured with 2 px of noise (tests/hands/test_metric.py): median 2.6 mm, 3.4 degrees. One
# camera: the jitter of a real film (2.0 mm, 1.0 degrees) and a hand size known to a few percent.
FILMS = {
    "truth": Film(),
    "two-cameras": Film(0.0017, math.radians(2.2), 0.0, 0.0, 0.02),
    "one-camera": Film(0.0012, math.radians(0.6), 0.03, 0.01, 0.02),
}


def as_filmed(episode: Episode, film: Film, seed: int) -> Episode:
    """A hand's demonstration as from `recap lift`: measured poses, and the next pose as the action.

    Demonstrations of robots and hands with true poses are not changed.
    """
    if film == FILMS["truth"]:
        return episode
    rng = np.random.default_rng([seed, 23])
    n = len(episode)
    arms = np.asarray(episode.proprio, np.float64).reshape(n, 2, ARM_DIM).copy()
    share = 1 + film.bias + film.scale * rng.normal()
    arms[..., :3] = CAMERA + share * (arms[..., :3] - CAMERA) + rng.normal(0, film.position, (n, 2, 3))
    for hand in range(2):
        turn = _turns(rng.normal(0, film.turn, (n, 3))) @ rotation6_to_matrix(arms[:, hand, ROTATION])
        arms[:, hand, ROTATION] = matrix_to_rotation6(turn)
        arms[:, hand, GRIPPER] = _gripper(arms[:, hand, GRIPPER])
    _bridge(arms, _lost(n, film.gaps, rng))
    values = arms.reshape(n, -1).astype(np.float32)
    actions = np.concatenate([values[1:], values[-1:]])
    return replace(episode, proprio=values, actions=actions, source="scripted person, filmed")


def _gripper(share: F64) -> F64:
    """Open or closed between grasps and releases, over the range seen in the film."""
    low, high = np.percentile(share, (5, 95))
    if (high - low) * 2 * HAND.travel < LEAST_RANGE_M:
        return share
    over = np.clip((share - low) / (high - low), 0.0, 1.0)
    return snapped(over, grip_events(over))


def _lost(n: int, share: float, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Frames without a hand: gaps of one to four frames, never the first or the last frame."""
    lost = np.zeros(n, bool)
    while lost.mean() < share:
        begin = int(rng.integers(1, max(2, n - 5)))
        lost[begin : min(begin + int(rng.integers(1, 5)), n - 1)] = True
    return lost


def _bridge(arms: F64, lost: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    known = np.flatnonzero(~lost)
    for number in np.flatnonzero(lost).tolist():
        after = int(np.searchsorted(known, number))
        a, b = int(known[after - 1]), int(known[after])
        s = (number - a) / (b - a)
        mixed = (1 - s) * arms[a] + s * arms[b]
        mixed[:, ROTATION] = matrix_to_rotation6(rotation6_to_matrix(mixed[:, ROTATION]))
        mixed[:, GRIPPER] = arms[a][:, GRIPPER]
        arms[number] = mixed


def _turns(vectors: F64) -> F64:
    """Rotations (n, 3, 3) of rotation vectors (n, 3)."""
    angle = np.linalg.norm(vectors, axis=1)[:, None, None]
    x, y, z = (vectors / np.maximum(angle[:, 0], 1e-12)).T
    zero = np.zeros_like(x)
    k = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k)
