"""How sure one may be of a success rate: Wilson, bootstrap over starts, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recap.types import F64

Z_95 = 1.959963984540054
N_RESAMPLES = 10_000


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def wilson(k: float, n: int) -> Interval:
    """Wilson's score interval for k successes in n independent trials; all of [0, 1] when n is 0."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} trials")
    if n == 0:
        return Interval(0.0, 1.0)
    p, z2 = k / n, Z_95**2
    center = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # Rounding must not push the bounds past the rate itself at 0 and n successes.
    return Interval(max(0.0, min(p, center - half)), min(1.0, max(p, center + half)))


def bootstrap_mean(values: F64, n_resamples: int = N_RESAMPLES) -> Interval:
    """Percentile interval of the mean of values (n_seeds, n_angles), nan where there is none.

    Angles share their starts, so whole rows are drawn: a hard start is hard at every angle. The draws are
    the same at every call. Nothing is known (nan, nan) when every value is nan.
    """
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=1)  # (n_seeds,)
    counts = known.sum(axis=1)  # (n_seeds,)
    if not counts.any():
        return Interval(math.nan, math.nan)
    rows = np.random.default_rng(0).integers(len(values), size=(n_resamples, len(values)))
    n_drawn = counts[rows].sum(axis=1)
    means = sums[rows].sum(axis=1)[n_drawn > 0] / n_drawn[n_drawn > 0]
    low, high = np.percentile(means, (2.5, 97.5))
    return Interval(float(low), float(high))


def bootstrap_models(values: F64, n_resamples: int = N_RESAMPLES) -> Interval:
    """Percentile interval of the mean of values (n_models, n_seeds, n_angles), none of them missing.

    Models trained with other seeds are drawn, and starts, which all models share: what one more training and
    one more start might have given. With few models it is too narrow rather than too wide.
    """
    n_models, n_seeds = values.shape[:2]
    means = values.mean(axis=2)  # (n_models, n_seeds)
    dice = np.random.default_rng(0)
    models = dice.integers(n_models, size=(n_resamples, n_models))
    starts = dice.integers(n_seeds, size=(n_resamples, n_seeds))
    drawn = means[models[:, :, None], starts[:, None, :]].mean(axis=(1, 2))
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Interval(float(low), float(high))


def bootstrap_gain(values: F64, reference: F64, n_resamples: int = N_RESAMPLES) -> Interval:
    """Percentile interval of the mean of values less that of the reference, each as in `bootstrap_models`.

    The models of each side are drawn apart, since no training of one belongs to one of the other; the starts
    are shared by both.
    """
    dice = np.random.default_rng(0)
    n_seeds = values.shape[1]
    starts = dice.integers(n_seeds, size=(n_resamples, n_seeds))
    drawn = []
    for side in (values, reference):
        means = side.mean(axis=2)  # (n_models, n_seeds)
        models = dice.integers(len(side), size=(n_resamples, len(side)))
        drawn.append(means[models[:, :, None], starts[:, None, :]].mean(axis=(1, 2)))
    low, high = (float(bound) for bound in np.percentile(drawn[0] - drawn[1], (2.5, 97.5)))
    return _widened(low, high, n_seeds)


def _widened(low: float, high: float, n_starts: int) -> Interval:
    """Where all starts agree, those not drawn need not, and could be so many."""
    if low != high:
        return Interval(low, high)
    unseen = 1 - 0.025 ** (1 / n_starts)
    return Interval(max(-1.0, low - unseen), min(1.0, high + unseen))


def seed_table(values: Mapping[tuple[str, int], float]) -> F64:
    """Values by (task, seed) as (n_seeds, n_tasks), nan where there is none; rows in order of seed."""
    tasks = {task: j for j, task in enumerate(dict.fromkeys(task for task, _ in values))}
    seeds = {seed: i for i, seed in enumerate(sorted({seed for _, seed in values}))}
    table = np.full((len(seeds), len(tasks)), np.nan)
    for (task, seed), value in values.items():
        table[seeds[seed], tasks[task]] = value
    return table


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two agents on the same trials: the counts, and rate B - rate A with its interval."""

    both: int
    only_a: int
    only_b: int
    neither: int
    interval: Interval

    @property
    def n(self) -> int:
        """How many trials are paired."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def difference(self) -> float:
        """Rate of B less rate of A; nan without pairs."""
        return (self.only_b - self.only_a) / self.n if self.n else math.nan


def paired_difference(
    a: Mapping[tuple[str, int], bool], b: Mapping[tuple[str, int], bool]
) -> PairedDifference:
    """Pair successes by (task, seed), over the trials that both have, and bootstrap over seeds."""
    pairs = {key: (a[key], b[key]) for key in a if key in b}
    outcomes = list(pairs.values())
    table = seed_table({key: float(in_b) - float(in_a) for key, (in_a, in_b) in pairs.items()})
    low, high = bootstrap_mean(table)
    return PairedDifference(
        both=outcomes.count((True, True)),
        only_a=outcomes.count((True, False)),
        only_b=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
        interval=_widened(low, high, len(table)),
    )
