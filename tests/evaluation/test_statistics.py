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


def successes(draw: st.DrawFn, n_models: int, n_starts: int, n_goals: int) -> F64:
    chance = draw(st.sampled_from([0.0, 0.02, 0.3, 0.5, 0.97, 1.0]))
    dice = np.random.default_rng(draw(st.integers(0, 1000)))
    return (dice.random((n_models, n_starts, n_goals)) < chance).astype(float)


@given(st.data(), st.integers(1, 3), st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=60)
def test_an_interval_holds_what_it_is_about(
    data: st.DataObject, n_models: int, n_starts: int, n_goals: int
) -> None:
    ours, theirs = (successes(data.draw, n, n_starts, n_goals) for n in (n_models, 1))
    low, high = rate_interval(ours)
    assert 0 <= low <= ours.mean() <= high <= 1
    assert low < high, "no number of episodes makes certain"
    gain = gain_interval(ours, theirs)
    difference = ours.mean() - theirs.mean()
    assert -1 <= gain.low <= difference <= gain.high <= 1
    assert gain.low < gain.high
    back = gain_interval(theirs, ours)
    assert (back.low, back.high) == pytest.approx((-gain.high, -gain.low))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_as_text_an_interval_is_rounded_outwards(a: float, b: float, c: float) -> None:
    low, mean, high = sorted((a, b, c))
    told = [int(bound) for bound in Interval(low, high).in_per_cent().strip("[]").split(", ")]
    assert told[0] <= 100 * mean + 1e-6
    assert 100 * mean - 1e-6 <= told[1]


def test_text_of_intervals() -> None:
    assert Interval(0.9961, 0.9999).in_per_cent() == "[99, 100]"
    assert Interval(0.29, 0.57).in_per_cent() == "[29, 57]", "100 * 0.29 is no more than 29"
    assert Interval(-0.002, 0.061).in_points() == "[-1, +7]"
    assert Interval(math.nan, math.nan).in_per_cent() == "[nan, nan]"


def test_a_rate_over_one_goal_is_wilsons_and_over_many_counts_shared_starts_once() -> None:
    one = np.array([1.0] * 7 + [0.0] * 3).reshape(1, 10, 1)
    assert rate_interval(one) == pytest.approx(wilson(7, 10))
    agreeing = np.repeat(one, 9, axis=2)  # every start is the same at every goal
    assert rate_interval(agreeing) == pytest.approx(wilson(7, 10), abs=0.02)
    assert rate_interval(np.ones((3, 10, 9))) == wilson(10, 10), "nothing is known of how goals differ"
    chequered = np.indices((50, 8)).sum(axis=0)[None] % 2 * 1.0  # every start half and half
    assert rate_interval(chequered) == pytest.approx(wilson(200, 400)), "never surer than independent ones"
    chequered[0, 0, 0] = 1 - chequered[0, 0, 0]
    assert rate_interval(chequered) == pytest.approx(wilson(201, 400)), "nor where starts hardly differ"
    gaps = np.where(np.arange(20).reshape(1, 10, 2) % 5 == 0, np.nan, 1.0)
    assert rate_interval(gaps) == wilson(10, 10)
    assert all(map(math.isnan, rate_interval(np.full((1, 3, 2), np.nan))))


@pytest.mark.parametrize("rate", [0.02, 0.57, 0.97])
def test_intervals_of_rates_hold_the_truth_about_as_often_as_they_say(rate: float) -> None:
    dice = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        difficulty = dice.beta(8 * rate, 8 * (1 - rate), size=(50, 1))  # starts differ
        low, high = rate_interval((dice.random((50, 7)) < difficulty)[None].astype(float))
        hits += low <= rate <= high
    assert 0.9 <= hits / 400 <= 0.99


@pytest.mark.parametrize(("base", "better"), [(0.5, 0.6), (0.97, 0.98), (0.02, 0.04)])
def test_intervals_of_differences_do_too(base: float, better: float) -> None:
    dice = np.random.default_rng(8)
    hits = 0
    for _ in range(400):
        shift = dice.normal(0, 0.2 * base * (1 - base), size=(1, 50, 1))  # hard starts are hard for both
        theirs, ours = (dice.random((1, 50, 7)) < p + shift for p in (base, better))
        low, high = gain_interval(ours.astype(float), theirs.astype(float))
        hits += low <= better - base <= high
    assert 0.9 <= hits / 400 <= 0.99


def test_few_trainings_that_differ_leave_a_gain_in_doubt() -> None:
    dice = np.random.default_rng(1)
    hard = dice.random((1, 50, 1)) < 0.5  # starts at which nobody succeeds
    chance = dice.random((8, 50, 7))
    base, better = (((chance < p) & ~hard).astype(float) for p in (0.4, 0.7))
    low, high = gain_interval(better, base)
    assert 0 < low < better.mean() - base.mean() < high
    alone = rate_interval(better)
    assert high - low < alone.high - alone.low, "hard starts are hard for both"
    apart = np.repeat(np.array([0.0, 1.0]), 4)[:, None, None] * np.ones((8, 50, 7))
    low, high = gain_interval(apart, base)
    assert high - low > 0.5, "one training of each that happened to be good says nothing about the next"
    three, eight = (rate_interval(better[:n]) for n in (3, 8))
    assert three.high - three.low > eight.high - eight.low
    none = np.zeros((1, 10, 3))
    assert gain_interval(none, none) == pytest.approx((-0.226, 0.226), abs=1e-3), "ten starts that agree"
    assert gain_interval(none[:, :1], none[:, :1]) == (-1.0, 1.0), "one start says nothing"


def test_students_points() -> None:
    known = {2: 4.303, 3: 3.182, 10: 2.228, 49: 2.010}
    for freedom, point in known.items():
        assert t_95(freedom) == pytest.approx(point, rel=0.01)
