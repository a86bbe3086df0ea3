from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.evaluation.statistics import (
    Interval,
    gain_interval,
    paired_difference,
    rate_interval,
    seed_table,
    t_95,
    wilson,
)
from recap.types import F64


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_the_rate_and_stays_within_0_and_1(k_of_n: tuple[int, int]) -> None:
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


def test_seed_table_has_nan_for_missing_episodes() -> None:
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


def successes(draw: st.DrawFn, n_models: int, n_starts: int, n_goals: int) -> F64:
    chance = draw(st.sampled_from([0.0, 0.02, 0.3, 0.5, 0.97, 1.0]))
    dice = np.random.default_rng(draw(st.integers(0, 1000)))
    return (dice.random((n_models, n_starts, n_goals)) < chance).astype(float)


@given(st.data(), st.integers(1, 3), st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=60)
def test_intervals_contain_the_observed_rate_and_difference(
    data: st.DataObject, n_models: int, n_starts: int, n_goals: int
) -> None:
    ours, theirs = (successes(data.draw, n, n_starts, n_goals) for n in (n_models, 1))
    low, high = rate_interval(ours)
    assert 0 <= low <= ours.mean() <= high <= 1
    assert low < high, "an interval always has a width"
    gain = gain_interval(ours, theirs)
    difference = ours.mean() - theirs.mean()
    assert -1 <= gain.low <= difference <= gain.high <= 1
    assert gain.low < gain.high
    back = gain_interval(theirs, ours)
    assert (back.low, back.high) == pytest.approx((-gain.high, -gain.low))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_interval_texts_are_rounded_outwards(a: float, b: float, c: float) -> None:
    low, mean, high = sorted((a, b, c))
    told = [int(bound) for bound in Interval(low, high).in_per_cent().strip("[]").split(", ")]
    assert told[0] <= 100 * mean + 1e-6
    assert 100 * mean - 1e-6 <= told[1]


def test_interval_texts_in_per_cent_and_points() -> None:
    assert Interval(0.9961, 0.9999).in_per_cent() == "[99, 100]"
    assert Interval(0.29, 0.57).in_per_cent() == "[29, 57]", "100 * 0.29 is no more than 29"
    assert Interval(-0.002, 0.061).in_points() == "[-1, +7]"
    assert Interval(math.nan, math.nan).in_per_cent() == "[nan, nan]"


def test_rate_interval_is_wilson_for_one_goal_and_clusters_by_start_for_many() -> None:
    one = np.array([1.0] * 7 + [0.0] * 3).reshape(1, 10, 1)
    assert rate_interval(one) == pytest.approx(wilson(7, 10))
    agreeing = np.repeat(one, 9, axis=2)  # every start has the same result at every goal
    assert rate_interval(agreeing) == pytest.approx(wilson(7, 10), abs=0.02)
    assert rate_interval(np.ones((3, 10, 9))) == wilson(10, 10), (
        "without variation the starts bound the interval"
    )
    chequered = np.indices((50, 8)).sum(axis=0)[None] % 2 * 1.0  # every start succeeds at half of the goals
    assert rate_interval(chequered) == pytest.approx(wilson(200, 400)), (
        "never narrower than for independent episodes"
    )
    chequered[0, 0, 0] = 1 - chequered[0, 0, 0]
    assert rate_interval(chequered) == pytest.approx(wilson(201, 400)), "nor if the starts hardly differ"
    gaps = np.where(np.arange(20).reshape(1, 10, 2) % 5 == 0, np.nan, 1.0)
    assert rate_interval(gaps) == wilson(10, 10)
    assert all(map(math.isnan, rate_interval(np.full((1, 3, 2), np.nan))))


@pytest.mark.parametrize("rate", [0.02, 0.57, 0.97])
def test_rate_intervals_have_about_95_per_cent_coverage(rate: float) -> None:
    dice = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        difficulty = dice.beta(8 * rate, 8 * (1 - rate), size=(50, 1))  # starts differ
        low, high = rate_interval((dice.random((50, 7)) < difficulty)[None].astype(float))
        hits += low <= rate <= high
    assert 0.9 <= hits / 400 <= 0.99


@pytest.mark.parametrize(("base", "better"), [(0.5, 0.6), (0.97, 0.98), (0.02, 0.04)])
def test_gain_intervals_have_about_95_per_cent_coverage(base: float, better: float) -> None:
    dice = np.random.default_rng(8)
    hits = 0
    for _ in range(400):
        shift = dice.normal(0, 0.2 * base * (1 - base), size=(1, 50, 1))  # hard starts are hard for both
        theirs, ours = (dice.random((1, 50, 7)) < p + shift for p in (base, better))
        low, high = gain_interval(ours.astype(float), theirs.astype(float))
        hits += low <= better - base <= high
    assert 0.9 <= hits / 400 <= 0.99


def test_gain_intervals_account_for_starts_and_training_seeds() -> None:
    dice = np.random.default_rng(1)
    hard = dice.random((1, 50, 1)) < 0.5  # starts at which no model succeeds
    chance = dice.random((8, 50, 7))
    base, better = (((chance < p) & ~hard).astype(float) for p in (0.4, 0.7))
    low, high = gain_interval(better, base)
    assert 0 < low < better.mean() - base.mean() < high
    alone = rate_interval(better)
    assert high - low < alone.high - alone.low, "hard starts are hard for both"
    apart = np.repeat(np.array([0.0, 1.0]), 4)[:, None, None] * np.ones((8, 50, 7))
    low, high = gain_interval(apart, base)
    assert high - low > 0.5, "trainings that differ widen the interval"
    three, eight = (rate_interval(better[:n]) for n in (3, 8))
    assert three.high - three.low > eight.high - eight.low
    none = np.zeros((1, 10, 3))
    assert gain_interval(none, none) == pytest.approx((-0.226, 0.226), abs=1e-3), (
        "ten starts without variation"
    )
    assert gain_interval(none[:, :1], none[:, :1]) == (-1.0, 1.0), "one start says nothing"


def test_t_95_equals_students_table() -> None:
    known = {2: 4.303, 3: 3.182, 10: 2.228, 49: 2.010}
    for freedom, point in known.items():
        assert t_95(freedom) == pytest.approx(point, rel=0.01)
