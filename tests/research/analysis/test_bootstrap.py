"""The bootstrap of the analyses: resamples whole starts, ignores gaps, has about nominal coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap_research.analysis.bootstrap import bootstrap_mean


@given(st.floats(-5, 5), st.integers(1, 30), st.integers(1, 9))
@settings(max_examples=25)
def test_bootstrap_of_constant_data_has_no_width(value: float, n_seeds: int, n_angles: int) -> None:
    low, high = bootstrap_mean(np.full((n_seeds, n_angles), value), n_resamples=200)
    assert (low, high) == pytest.approx((value, value))


def test_bootstrap_resamples_whole_starts() -> None:
    hard = np.repeat(np.arange(50) % 2, 9).reshape(50, 9).astype(float)  # starts agree at all angles
    low, high = bootstrap_mean(hard)
    mixed = np.tile(np.arange(450) % 2, 1).reshape(50, 9).astype(float)  # starts succeed at half
    assert high - low > 5 * (bootstrap_mean(mixed)[1] - bootstrap_mean(mixed)[0])
    assert (low, high) == bootstrap_mean(hard)


def test_bootstrap_ignores_gaps() -> None:
    values = np.array([[1.0, np.nan], [1.0, 1.0], [np.nan, np.nan]])
    assert bootstrap_mean(values) == (1.0, 1.0)
    assert all(map(math.isnan, bootstrap_mean(np.full((3, 2), np.nan))))
    assert all(map(math.isnan, bootstrap_mean(np.empty((0, 0)))))


def test_bootstrap_coverage_is_about_nominal() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(300):
        difficulty = rng.beta(4, 3, size=(50, 1))  # starts differ, the mean is 4/7
        low, high = bootstrap_mean((rng.random((50, 9)) < difficulty).astype(float), n_resamples=1000)
        hits += low <= 4 / 7 <= high
    assert 0.90 <= hits / 300 <= 0.98
