"""Penalties of the matches that an episode has already used."""

from dataclasses import replace

import pytest

from recap.retrieval.presets import find_retrieval
from recap.retrieval.used import UsedMatches
from recap.types import FrameRef

CONFIG = replace(find_retrieval("pusht-object")[1], stall_penalty=10.0, stall_decay=0.5)
A, B = FrameRef("a", 3), FrameRef("b", 5)


def test_repeated_use_raises_a_matchs_penalty_and_others_decay() -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.charge(A)
    assert used.penalties == {A: 15.0}
    used.charge(B)
    assert used.penalties == {A: 7.5, B: 10.0}
    for _ in range(5):
        used.charge(B)
    assert set(used.penalties) == {B}, "decayed penalties are dropped"


@pytest.mark.parametrize(("share", "left"), [(0.0, 10.0), (0.25, 7.5), (1.0, None)])
def test_the_share_that_was_not_executed_is_refunded(share: float, left: float | None) -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.charge(B)
    used.take_back(share)
    assert used.penalties.get(B) == left
    assert used.penalties[A] == pytest.approx(5.0 * 2**share), "others decay by the executed share only"


def test_a_penalty_is_refunded_only_once() -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.take_back(0.5)
    used.take_back(0.5)
    assert used.penalties == {A: 5.0}


def test_no_penalties_are_kept_if_stall_penalty_is_zero() -> None:
    used = UsedMatches(replace(CONFIG, stall_penalty=0.0))
    used.charge(A)
    used.take_back(1.0)
    assert not used.penalties
