"""Mean and deviation of a policy's numbers, from its training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from recap.body import KINDS
from recap.policies.config import PolicyConfig
from recap.policies.policy import Statistics
from recap.policies.vectors import numbers_of, width_of
from recap.training.samples import ROWS, Samples
from recap.types import F32, F64

ACTION_SHARE = 0.1  # of the least deviation, for predicted actions: they may be small and matter


def action_units(config: PolicyConfig) -> F64 | None:
    """(a,) divisors that make the numbers of an action comparable; None if the robot is not metric."""
    if not config.robot.is_metric:
        return None
    return np.concatenate([np.full(f.size, KINDS[f.kind].scale) for f in config.robot.action])


def units_of(config: PolicyConfig) -> F32:
    """Divisors of the numbers of a whole chunk: (H * a,)."""
    units = action_units(config)
    one = np.ones(config.action_dim) if units is None else units
    return np.tile(one, config.chunk_size).astype(np.float32)


def statistics_of(samples: Samples, config: PolicyConfig) -> Statistics:
    """Mean and deviation of every number; a constant number gets the least deviation of its kind, or 1."""

    def action(part: slice) -> F32:
        base = samples.base[part]
        if not config.residual:
            here = config.robot.hold(samples.fixed["proprio"][part, : config.proprio_dim]).astype(np.float32)
            base = np.tile(config.origin(config.robot.act, here), config.chunk_size)[:, None]
        return samples.actions[part][:, None] - base

    tables: dict[str, Callable[[slice], F32]] = {"action": action}
    for name, values in (*samples.fixed.items(), *samples.matched.items()):
        tables[name] = values.__getitem__
    mean: dict[str, F32] = {}
    std: dict[str, F32] = {}
    numbers = numbers_of(config)
    for name, rows in tables.items():
        middle, deviation = _moments(rows, len(samples))
        assert len(deviation) == width_of(numbers[name]), name
        # Positions in pixels have no least deviation.
        share = (ACTION_SHARE if name == "action" else 1.0) * config.robot.is_metric
        floors = np.concatenate([np.full(part.size, share * part.least) for part in numbers[name]])
        mean[name] = middle.astype(np.float32)
        # A constant number without a least deviation keeps its scale.
        std[name] = np.where(
            floors > 0, np.maximum(deviation, floors), np.where(deviation > 1e-3, deviation, 1.0)
        ).astype(np.float32)
    return Statistics(mean, std)


def _moments(rows: Callable[[slice], F32], n: int) -> tuple[F64, F64]:
    """Mean and deviation of each number (…, d), computed in parts to limit memory."""

    def parts() -> Iterator[F32]:
        for begin in range(0, n, ROWS):
            part = rows(slice(begin, begin + ROWS))
            yield part.reshape(-1, part.shape[-1])

    sums = [(part.sum(axis=0, dtype=np.float64), len(part)) for part in parts()]
    count = sum(size for _, size in sums)
    mean = np.asarray(sum(total for total, _ in sums) / count)
    apart = [np.square(part - mean).sum(axis=0) for part in parts()]
    return mean, np.sqrt(np.asarray(sum(apart) / count))
