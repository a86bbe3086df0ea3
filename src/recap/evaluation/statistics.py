"""Confidence intervals of success rates and differences for episodes that share their starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recap.types import F64

Z_95 = 1.959963984540054
ROUNDING = 1e-9  # 100 · 0.29 is a little less than 29
MODELS, STARTS = 0, 1  # axes of successes (n_models, n_starts, n_goals)


class Interval(NamedTuple):
    """A 95 % interval; its text is rounded outwards, so that it covers the interval."""

    low: float
    high: float

    def in_per_cent(self) -> str:
        """Such as [92, 99]."""
        return f"[{_down(self.low):.0f}, {_up(self.high):.0f}]"

    def in_points(self) -> str:
        """With signs: [-3, +12]."""
        return f"[{_down(self.low):+.0f}, {_up(self.high):+.0f}]"


def _down(bound: float) -> float:
    return bound if math.isnan(bound) else math.floor(100 * bound + ROUNDING)


def _up(bound: float) -> float:
    return bound if math.isnan(bound) else math.ceil(100 * bound - ROUNDING)


def wilson(k: float, n: float) -> Interval:
    """Wilson's score interval for k successes in n independent trials; all of [0, 1] when n is 0."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} trials")
    if n == 0:
        return Interval(0.0, 1.0)
    p, z2 = k / n, Z_95**2
    center = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # Rounding errors must not move the bounds past the rate at 0 and n successes.
    return Interval(max(0.0, min(p, center - half)), min(1.0, max(p, center + half)))


def rate_interval(values: F64) -> Interval:
    """Interval of a success rate, from successes (n_models, n_starts, n_goals) that are nan if not run.

    Wilson's interval for an effective number of independent episodes. Goals and models share their starts, so
    a start that is hard for all counts little more than once. Differences between models lower the number
    further. If all episodes have the same outcome, the number of starts is used.
    """
    known = ~np.isnan(values)
    n, n_starts = int(known.sum()), int(known.any(axis=(0, 2)).sum())
    if not n:
        return Interval(math.nan, math.nan)
    p = float(np.where(known, values, 0.0).sum() / n)
    if p in (0.0, 1.0) or n_starts < 2:
        return wilson(p * n_starts, n_starts)
    spread = _sum([_spread(values, axis) for axis in (MODELS, STARTS) if values.shape[axis] > 1])
    n_worth = min(float(n), p * (1 - p) / spread.variance * n / (n - 1)) if spread.variance else float(n)
    if len(values) > 1:  # with few trainings, the variance between them is uncertain
        n_worth *= (Z_95 / t_95(spread.freedom)) ** 2
    return wilson(p * n_worth, n_worth)


def gain_interval(values: F64, reference: F64) -> Interval:
    """Interval of the rate of `values` minus that of `reference`, each (n_models, n_starts, n_goals).

    Student's interval, over the starts, which both share, and over the models of each side. The variance
    includes one more differing episode; if no episode differs, one more start, as its goals may agree.
    """
    n_starts = values.shape[1]
    difference = float(np.nanmean(values) - np.nanmean(reference))
    if n_starts < 2:
        return Interval(-1.0, 1.0)
    change = values.mean(axis=0) - reference.mean(axis=0)  # (n_starts, n_goals)
    n_more = int((~np.isnan(change)).sum()) if np.nan_to_num(change).any() else n_starts
    parts = [_spread(change[None], STARTS), _Spread(1 / n_more**2, n_starts - 1)]
    spread = _sum([*parts, *(_spread(side, MODELS) for side in (values, reference) if len(side) > 1)])
    half = t_95(spread.freedom) * math.sqrt(spread.variance)
    return Interval(max(-1.0, difference - half), min(1.0, difference + half))


@dataclass(frozen=True)
class _Spread:
    """The variance of a mean, and its degrees of freedom."""

    variance: float
    freedom: float


def _spread(values: F64, axis: int) -> _Spread:
    """For the mean of values (n_models, n_starts, n_goals) if slices along the axis are independent draws."""
    others = tuple(other for other in range(3) if other != axis)
    known = ~np.isnan(values)
    off = np.where(known, values - float(values[known].mean()), 0.0).sum(axis=others)  # (n_slices,)
    n_slices = int(known.any(axis=others).sum())
    variance = n_slices / (n_slices - 1) * float((off**2).sum()) / int(known.sum()) ** 2
    return _Spread(variance, n_slices - 1)


def _sum(parts: Sequence[_Spread]) -> _Spread:
    """The sum of independent variances, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in parts)
    known = sum(part.variance**2 / part.freedom for part in parts)
    return _Spread(variance, variance**2 / known if known else min(part.freedom for part in parts))


def t_95(freedom: float) -> float:
    """The 97.5 % point of Student's distribution (Cornish-Fisher series; 1 % too low at 2 degrees)."""
    z, v = Z_95, max(freedom, 1.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / v + second / v**2 + third / v**3 + fourth / v**4


def seed_table(values: Mapping[tuple[str, int], float]) -> F64:
    """Values by (task, seed) as (n_seeds, n_tasks), rows in order of seed; nan: no value."""
    tasks = {task: j for j, task in enumerate(dict.fromkeys(task for task, _ in values))}
    seeds = {seed: i for i, seed in enumerate(sorted({seed for _, seed in values}))}
    table = np.full((len(seeds), len(tasks)), np.nan)
    for (task, seed), value in values.items():
        table[seeds[seed], tasks[task]] = value
    return table


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two agents on the same trials: the counts, and rate B minus rate A with its interval."""

    both: int
    only_a: int
    only_b: int
    neither: int
    interval: Interval

    @property
    def n(self) -> int:
        """Number of paired trials."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def difference(self) -> float:
        """Rate of B minus rate of A; nan without pairs."""
        return (self.only_b - self.only_a) / self.n if self.n else math.nan


def paired_difference(
    a: Mapping[tuple[str, int], bool], b: Mapping[tuple[str, int], bool]
) -> PairedDifference:
    """Pair successes by (task, seed) over the shared trials; the interval is over seeds."""
    keys = [key for key in a if key in b]
    outcomes = [(a[key], b[key]) for key in keys]
    of_a, of_b = (seed_table({key: float(side[key]) for key in keys})[None] for side in (a, b))
    return PairedDifference(
        both=outcomes.count((True, True)),
        only_a=outcomes.count((True, False)),
        only_b=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
        interval=gain_interval(of_b, of_a) if keys else Interval(math.nan, math.nan),
    )
