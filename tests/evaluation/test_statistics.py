from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.evaluation.statistics import (
    bootstrap_gain,
    bootstrap_mean,
    bootstrap_models,
    paired_difference,
    seed_table,
    wilson,
)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_stays_a_probability(k_of_n: tuple[int, int]) -> None:
    k, n = k_of_n
    low, high = wilson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert low < high
    mirrored = wilson(n - k, n)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high))


def test_wilson_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson(5, 10) == pytest.approx((0.236593, 0.763407), abs=1e-6)
    assert wilson(50, 50) == pytest.approx((0.928652, 1.0), abs=1e-6)
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="3 successes in 2"):
        wilson(3, 2)


@given(st.floats(-5, 5), st.integers(1, 30), st.integers(1, 9))
@settings(max_examples=25)
def test_bootstrap_of_constant_data_has_no_width(value: float, n_seeds: int, n_angles: int) -> None:
    low, high = bootstrap_mean(np.full((n_seeds, n_angles), value), n_resamples=200)
    assert (low, high) == pytest.approx((value, value))


def test_bootstrap_draws_whole_starts() -> None:
    hard = np.repeat(np.arange(50) % 2, 9).reshape(50, 9).astype(float)  # each start the same at every angle
    low, high = bootstrap_mean(hard)
    mixed = np.tile(np.arange(450) % 2, 1).reshape(50, 9).astype(float)  # each start half and half
    assert high - low > 5 * (bootstrap_mean(mixed)[1] - bootstrap_mean(mixed)[0])
    assert (low, high) == bootstrap_mean(hard)


def test_bootstrap_leaves_gaps_out() -> None:
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


def test_seed_table() -> None:
    table = seed_table({("0", 5): 1.0, ("+45", 3): 0.0, ("0", 3): 2.0})
    assert table[0].tolist() == [2.0, 0.0]
    assert table[1, 0] == 1.0
    assert math.isnan(table[1, 1])


def test_paired_difference_by_hand() -> None:
    keys = [("0", 1), ("0", 2), ("0", 3), ("0", 4), ("+45", 1)]
    a = dict(zip(keys, [True, True, False, False, False], strict=True))
    b = dict(zip(keys, [True, False, True, False, True], strict=True)) | {("0", 9): True}
    pairs = paired_difference(a, b)
    assert (pairs.both, pairs.only_a, pairs.only_b, pairs.neither, pairs.n) == (1, 1, 2, 1, 5)
    assert pairs.difference == pytest.approx(0.2)
    assert -1 <= pairs.interval.low <= 0.2 <= pairs.interval.high <= 1
    mirrored = paired_difference(b, a)
    assert (mirrored.difference, mirrored.interval.low) == pytest.approx((-0.2, -pairs.interval.high))
    nothing = paired_difference({}, b)
    assert nothing.n == 0
    assert math.isnan(nothing.difference)


def test_a_gain_is_surer_where_trainings_agree_and_starts_are_shared() -> None:
    dice = np.random.default_rng(1)
    hard = dice.random((1, 50, 1)) < 0.5  # starts at which nobody succeeds
    chance = dice.random((8, 50, 7))
    base, better = ((chance < p) & ~hard for p in (0.4, 0.7))
    low, high = bootstrap_gain(better.astype(float), base.astype(float))
    gain = better.mean() - base.mean()
    assert 0 < low < gain < high
    alone = bootstrap_models(better.astype(float))
    assert high - low < alone.high - alone.low, "hard starts are hard for both"
    # One training of each that happened to be good says nothing about the next.
    spread = np.repeat(np.array([0.0, 1.0]), 4)[:, None, None] * np.ones((8, 50, 7))
    low, high = bootstrap_gain(spread, base.astype(float))
    assert high - low > 0.5
    same = bootstrap_gain(base.astype(float), base.astype(float))
    assert same.low < 0 < same.high
    none = np.zeros((2, 10, 3))
    assert bootstrap_gain(none, none) == pytest.approx((-0.308, 0.308), abs=1e-3), "ten starts that agree"


def test_models_that_disagree_widen_the_interval_and_equal_ones_do_not() -> None:
    starts = np.random.default_rng(1).random((40, 3)).round()
    alike = np.stack([starts] * 3)
    low, high = bootstrap_models(alike)
    one = bootstrap_mean(starts)
    assert abs(low - one.low) < 0.02
    assert abs(high - one.high) < 0.02
    assert low < starts.mean() < high
    apart = np.stack([np.zeros((40, 3)), np.ones((40, 3))])
    assert bootstrap_models(apart) == (0.0, 1.0), "either may be drawn twice"
    assert bootstrap_models(np.ones((3, 5, 2))) == (1.0, 1.0)
    assert bootstrap_models(alike) == bootstrap_models(alike), "the draws are the same at every call"
