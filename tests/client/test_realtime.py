"""Real-time chunking: late chunks start at the right index, blend smoothly and are requested in time."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.types import F64
from recap_client.realtime import Asker, Latency, Timeline, ask_after

plans = st.lists(st.tuples(st.floats(0, 512), st.floats(0, 512)), min_size=8, max_size=8).map(np.array)


def chunk_at(place: int, size: int = 8) -> F64:
    """A chunk whose actions are the timeline indices that they are meant for."""
    return np.arange(place, place + size, dtype=float)[:, None]


def periods(delay: int, n: int, horizon: int = 8, n_action_steps: int = 4) -> tuple[Timeline, int]:
    """Runs `n` periods with replies after `delay` periods; returns the timeline and the misses."""
    timeline = Timeline(n_blend=0)
    timeline.join(chunk_at(0, horizon), 0)
    every = ask_after(horizon, n_action_steps, delay)
    asked_at, due, misses = 0, None, 0
    for period in range(n):
        if due == period:
            timeline.join(chunk_at(asked_at, horizon), asked_at)
            due = None
        if due is None and (not len(timeline) or timeline.n_taken - asked_at >= every):
            asked_at, due = timeline.n_taken, period + max(delay, 1)
        misses += timeline.take() is None
    return timeline, misses


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20))
def test_every_action_is_taken_at_the_index_it_is_meant_for(rounds: list[tuple[int, int]]) -> None:
    timeline = Timeline(n_blend=0)
    for wait, rest in rounds:
        asked_at = timeline.n_taken
        for _ in range(wait):
            place, action = timeline.n_taken, timeline.take()
            assert action is None or action[0] == place
        late = timeline.n_taken - asked_at
        assert timeline.join(chunk_at(asked_at), asked_at) == max(0, 8 - late)
        for _ in range(rest):
            place, action = timeline.n_taken, timeline.take()
            assert action is None or action[0] == place


def test_a_robot_that_held_while_waiting_starts_at_the_first_action() -> None:
    timeline = Timeline(n_blend=0)
    assert [timeline.take() for _ in range(5)] == [None] * 5
    assert timeline.join(chunk_at(0), asked_at=0) == 8
    first = timeline.take()
    assert first is not None
    assert first[0] == 0


def test_a_chunk_that_is_entirely_late_changes_nothing() -> None:
    timeline = Timeline()
    timeline.join(chunk_at(0), 0)
    taken = [timeline.take() for _ in range(3)]
    assert len(taken) == 3
    assert timeline.join(chunk_at(90, size=3), asked_at=0) == 0
    assert len(timeline) == 5


def test_a_chunk_with_a_future_index_is_refused() -> None:
    with pytest.raises(ValueError, match="from the future"):
        Timeline().join(chunk_at(3), asked_at=3)


@given(plans, plans, st.integers(0, 10), st.integers(1, 6))
def test_blending_limits_the_jump_between_two_chunks(old: F64, new: F64, late: int, n_blend: int) -> None:
    timeline = Timeline(n_blend)
    timeline.join(old, 0)
    taken = [timeline.take() for _ in range(late)]
    held = [action for action in taken if action is not None]
    late = len(held)
    timeline.join(new, 0)
    while (action := timeline.take()) is not None:
        held.append(action)
    # The old plan, extended by its last action, against the new plan.
    was = np.concatenate([old, np.repeat(old[-1:], 8, axis=0)])[:8]
    gap = np.linalg.norm(was - new, axis=1)[late:].max(initial=0.0)
    own = max(np.linalg.norm(np.diff(plan, axis=0), axis=1).max() for plan in (was, new))
    jumps = np.linalg.norm(np.diff(np.array(held), axis=0), axis=1)
    assert jumps.max() <= own + gap / (n_blend + 1) + 1e-9


def test_the_first_chunk_is_not_blended() -> None:
    timeline = Timeline(n_blend=4)
    timeline.join(chunk_at(0), 0)
    actions = [timeline.take() for _ in range(8)]
    assert np.array_equal(np.array(actions), chunk_at(0))


def test_stay_replaces_the_remaining_actions() -> None:
    timeline = Timeline()
    timeline.join(chunk_at(0), 0)
    last = timeline.take()
    assert last is not None
    timeline.stay(3, last)
    assert [timeline.take() for _ in range(4)] == [last, last, last, None]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 60))
def test_the_next_chunk_is_requested_early_enough_to_miss_no_period(
    horizon: int, steps: int, delay: int
) -> None:
    every = ask_after(horizon, min(steps, horizon), delay)
    assert 1 <= every <= horizon
    if 2 * max(delay, 1) + 1 <= horizon:
        timeline, misses = periods(delay, 100, horizon, min(steps, horizon))
        assert misses == 0
        assert timeline.n_taken == 100


@pytest.mark.parametrize(
    ("n_action_steps", "delay", "every"),
    [(4, 0, 4), (4, 1, 3), (4, 3, 1), (4, 7, 1), (4, 8, 8), (8, 0, 7), (8, 1, 6), (8, 3, 4), (8, 9, 8)],
)
def test_the_next_chunk_is_requested_by_action_steps_and_delay(
    n_action_steps: int, delay: int, every: int
) -> None:
    assert ask_after(8, n_action_steps, delay) == every


@pytest.mark.parametrize("delay", [5, 8, 12, 30])
def test_a_delay_longer_than_a_chunk_misses_periods_but_the_robot_continues(delay: int) -> None:
    timeline, misses = periods(delay, 200)
    assert misses > 0
    assert timeline.n_taken + misses == 200
    waiting = 200 * 8 / (8 + delay)  # the number when asking only at the end of each chunk
    assert timeline.n_taken >= waiting - 8


def test_the_expected_latency_follows_the_latest_replies() -> None:
    latency = Latency()
    assert latency.periods(0.1) == 0
    latency.observe(0.05)
    assert latency.periods(0.1) == 1
    for _ in range(32):
        latency.observe(0.31)
    assert latency.periods(0.1) == 4
    for _ in range(32):
        latency.observe(0.02)
    assert latency.periods(0.1) == 1, "old replies are forgotten"


class Echo:
    """A policy that returns its input once `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.replied = False

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        assert self.go.wait(60)
        self.replied = True
        if "fail" in observation:
            raise ConnectionError("gone")
        return dict(observation)


def test_ask_does_not_block() -> None:
    policy = Echo()
    asker = Asker(policy)
    asker.ask({"x": 1}, 7)
    assert asker.poll() is None
    assert asker.is_waiting
    policy.go.set()
    answer = asker.poll(60)
    assert answer is not None
    assert (answer.reply, answer.asked_at, answer.error) == ({"x": 1}, 7, None)
    assert not asker.is_waiting
    asker.ask({"fail": True}, 8)
    failed = asker.poll(60)
    assert failed is not None
    assert isinstance(failed.error, ConnectionError), "an error is returned as the answer"
    asker.close()


def test_an_added_delay_is_part_of_the_latency() -> None:
    policy = Echo()
    policy.go.set()
    asker = Asker(policy, delay_s=0.2)
    asker.ask({}, 0)
    answer = asker.poll(60)
    assert answer is not None
    assert answer.latency_s >= 0.2
    asker.close()


def test_closing_does_not_wait_for_a_reply_that_never_comes() -> None:
    policy = Echo()
    asker = Asker(policy)
    asker.ask({}, 0)
    asker.close()
    assert not policy.replied
    policy.go.set()
