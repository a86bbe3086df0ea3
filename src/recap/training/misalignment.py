"""Mis-aligned pairs: added on purpose to measure their cost, or left out for an outlying residual."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recap.pool.view import PoolView
from recap.retrieval.pairs import Pairs, find_outliers
from recap.robot import RobotSpec
from recap.training.samples import ROWS, Samples, take_rows
from recap.types import F32, F64, Episode


def misalign(pairs: Pairs, pool: PoolView, share: float) -> Pairs:
    """Match this share of the demonstrations with random frames of the pool.

    The choice depends only on the names of the demonstrations, not on the number of workers.
    """
    match = pairs.match.copy()
    lengths = np.array([len(pool.episode(name)) for name in pairs.pool_ids])
    for number, name in enumerate(pairs.target_ids):
        rng = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:16], 16))
        if rng.random() >= share:
            continue
        rows = pairs.target[:, 0] == number
        chosen = rng.integers(len(lengths), size=match[rows].shape[:2])
        frames = (rng.random(chosen.shape) * lengths[chosen]).astype(np.int32)
        drawn = np.stack([chosen.astype(np.int32), frames], axis=-1)
        match[rows] = np.where(match[rows][..., :1] >= 0, drawn, match[rows])
    return replace(pairs, match=match)


def leave_out(
    samples: Samples,
    episodes: Sequence[Episode],
    robot: RobotSpec,
    units: F64 | None = None,
    folder: Path | None = None,
) -> tuple[Samples, tuple[str, ...]]:
    """Leave out demonstrations with an outlying residual; return the rest and their names, worst first.

    Args:
        samples: every frame of the episodes, in order.
        units: (a,) divisor of each number of an action, if they are of several kinds.
        folder: for the files of the remaining samples.
    """
    owner = np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])
    ratios = residual_ratios(samples, owner, robot, units)
    outlying = find_outliers(ratios)
    worst = [int(number) for number in np.argsort(-ratios) if outlying[number]]
    if not worst:
        return samples, ()
    return take_rows(samples, ~outlying[owner], folder), tuple(episodes[number].id for number in worst)


def residual_ratios(
    samples: Samples, owner: NDArray[np.int64], robot: RobotSpec, units: F64 | None = None
) -> F64:
    """RMS difference of actions and first match per demonstration, divided by that of holding still."""
    horizon = samples.actions.shape[1] // robot.act.size
    scale = 1.0 if units is None else np.square(np.tile(units, horizon))
    residual, count, still = np.zeros(len(samples)), np.zeros(len(samples)), 0.0
    for begin in range(0, len(samples), ROWS):
        part = slice(begin, begin + ROWS)
        proprio, actions = samples.fixed["proprio"][part, : robot.body.size], samples.actions[part]
        now = np.tile(robot.hold(proprio).astype(np.float32), horizon)
        weight: F32 | F64 = samples.valid[part] if units is None else samples.valid[part] / scale
        residual[part] = (np.square(actions - samples.base[part, 0]) * weight).sum(axis=1)
        still += float((np.square(actions - now) * weight).sum())
        count[part] = samples.valid[part].sum(axis=1)
    rest = max(np.sqrt(still / float(count.sum())), 1e-9)
    return np.asarray(np.sqrt(np.bincount(owner, residual) / np.bincount(owner, count)) / rest)
