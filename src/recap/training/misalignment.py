"""Pairs gone wrong: put in on purpose, to see what they cost, and left out by what they look like."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recap.pool.view import PoolView
from recap.retrieval.pairs import Pairs, stand_out
from recap.robot import RobotSpec
from recap.training.samples import Samples, take_rows
from recap.types import F32, F64, Episode


def misalign(pairs: Pairs, pool: PoolView, share: float) -> Pairs:
    """That share of the demonstrations matched with moments of the pool at random.

    Which ones and with what depends on their names alone, not on who shares the work.
    """
    match = pairs.match.copy()
    lengths = np.array([len(pool.episode(name)) for name in pairs.pool_ids])
    for number, name in enumerate(pairs.target_ids):
        dice = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:16], 16))
        if dice.random() >= share:
            continue
        mine = pairs.target[:, 0] == number
        chosen = dice.integers(len(lengths), size=match[mine].shape[:2])
        frames = (dice.random(chosen.shape) * lengths[chosen]).astype(np.int32)
        drawn = np.stack([chosen.astype(np.int32), frames], axis=-1)
        match[mine] = np.where(match[mine][..., :1] >= 0, drawn, match[mine])
    return replace(pairs, match=match)


def leave_out(
    samples: Samples, episodes: Sequence[Episode], robot: RobotSpec, units: F64 | None = None
) -> tuple[Samples, tuple[str, ...]]:
    """Without the demonstrations whose residual stands out, and their names, worst first.

    Args:
        samples: every moment of the episodes, in order.
        units: (a,) by what the numbers of an action are divided, where they are of several kinds.
    """
    owner = np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])
    ratios = residual_ratios(samples, owner, robot, units)
    far = stand_out(ratios)
    worst = [int(number) for number in np.argsort(-ratios) if far[number]]
    return take_rows(samples, ~far[owner]), tuple(episodes[number].id for number in worst)


def residual_ratios(
    samples: Samples, owner: NDArray[np.int64], robot: RobotSpec, units: F64 | None = None
) -> F64:
    """Of each demonstration: the RMS of actions less those of the first match, over that of holding still."""
    horizon = samples.actions.shape[1] // robot.act.size
    now = np.tile(robot.hold(samples.fixed["proprio"][:, : robot.body.size]).astype(np.float32), horizon)
    weight: F32 | F64 = samples.valid
    if units is not None:
        weight = weight / np.square(np.tile(units, horizon))
    residual = (np.square(samples.actions - samples.base[:, 0]) * weight).sum(axis=1)
    still = float((np.square(samples.actions - now) * weight).sum())
    count = samples.valid.sum(axis=1)
    rest = max(np.sqrt(still / float(count.sum())), 1e-9)
    return np.asarray(np.sqrt(np.bincount(owner, residual) / np.bincount(owner, count)) / rest)
