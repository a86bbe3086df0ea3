"""What an episode has acted on costs more, for a while."""

from dataclasses import replace

import pytest

from recap.retrieval.presets import find_retrieval
from recap.retrieval.used import UsedMatches
from recap.types import FrameRef

CONFIG = replace(find_retrieval("pusht-object")[1], stall_penalty=10.0, stall_decay=0.5)
A, B = FrameRef("a", 3), FrameRef("b", 5)


def test_a_match_that_is_used_again_costs_more_and_others_fade() -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.charge(A)
    assert used.penalties == {A: 15.0}
    used.charge(B)
    assert used.penalties == {A: 7.5, B: 10.0}
    for _ in range(5):
        used.charge(B)
    assert set(used.penalties) == {B}, "what has faded is forgotten"


@pytest.mark.parametrize(("share", "left"), [(0.0, 10.0), (0.25, 7.5), (1.0, None)])
def test_what_was_not_carried_out_is_taken_back(share: float, left: float | None) -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.charge(B)
    used.take_back(share)
    assert used.penalties.get(B) == left
    assert used.penalties[A] == pytest.approx(5.0 * 2**share), "nor has the time passed in which it fades"


def test_it_is_taken_back_once() -> None:
    used = UsedMatches(CONFIG)
    used.charge(A)
    used.take_back(0.5)
    used.take_back(0.5)
    assert used.penalties == {A: 5.0}


def test_without_a_penalty_nothing_is_remembered() -> None:
    used = UsedMatches(replace(CONFIG, stall_penalty=0.0))
    used.charge(A)
    used.take_back(1.0)
    assert not used.penalties
