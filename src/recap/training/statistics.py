"""What the numbers of a policy are divided by, from its training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from recap.body import KINDS
from recap.policies.config import PolicyConfig
from recap.policies.policy import Statistics
from recap.policies.vectors import numbers_of, width_of
from recap.training.samples import ROWS, Samples
from recap.types import F32, F64

ACTION_SHARE = 0.1  # of the least deviation, for what is predicted: it may be small and matter


def action_units(config: PolicyConfig) -> F64 | None:
    """By what the numbers of an action are divided to be compared; None where they are of one kind."""
    if not config.robot.is_metric:
        return None
    return np.concatenate([np.full(f.size, KINDS[f.kind].scale) for f in config.robot.action])


def units_of(config: PolicyConfig) -> F32:
    """By what the numbers of a whole chunk are divided: (H * a,)."""
    units = action_units(config)
    one = np.ones(config.action_dim) if units is None else units
    return np.tile(one, config.chunk_size).astype(np.float32)


def statistics_of(samples: Samples, config: PolicyConfig) -> Statistics:
    """Of every number; one that never varies keeps its scale, or is divided by the least its kind may be."""

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
        # Where positions are in pixels, numbers are divided as they vary.
        share = (ACTION_SHARE if name == "action" else 1.0) * config.robot.is_metric
        floors = np.concatenate([np.full(part.size, share * part.least) for part in numbers[name]])
        mean[name] = middle.astype(np.float32)
        # A number without a floor that never varies keeps its scale.
        std[name] = np.where(
            floors > 0, np.maximum(deviation, floors), np.where(deviation > 1e-3, deviation, 1.0)
        ).astype(np.float32)
    return Statistics(mean, std)


def _moments(rows: Callable[[slice], F32], n: int) -> tuple[F64, F64]:
    """Mean and deviation of each number (…, d), with a part of the n rows in memory at a time."""

    def parts() -> Iterator[F32]:
        for begin in range(0, n, ROWS):
            part = rows(slice(begin, begin + ROWS))
            yield part.reshape(-1, part.shape[-1])

    sums = [(part.sum(axis=0, dtype=np.float64), len(part)) for part in parts()]
    count = sum(size for _, size in sums)
    mean = np.asarray(sum(total for total, _ in sums) / count)
    apart = [np.square(part - mean).sum(axis=0) for part in parts()]
    return mean, np.sqrt(np.asarray(sum(apart) / count))
