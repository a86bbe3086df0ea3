"""The bootstrap interval of a mean over episodes that share their starts."""

from __future__ import annotations

import math

import numpy as np

from recap.evaluation.statistics import Interval
from recap.types import F64

N_RESAMPLES = 10_000


def bootstrap_mean(values: F64, n_resamples: int = N_RESAMPLES) -> Interval:
    """Percentile interval of the mean of values (n_seeds, n_angles); nan marks missing values.

    Angles share their starts, so whole rows are resampled: a hard start is hard at every angle. The resamples
    are the same at every call. The interval is (nan, nan) if every value is nan.
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
