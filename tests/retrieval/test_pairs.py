"""Training pairs: the matches of target frames in the pool, and their weights."""

from dataclasses import replace

import numpy as np
import pytest

from episodes import random_episode
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.pool.memory import MemoryPool, MemoryView
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.pairs import find_pairs, with_action_term
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap_worlds.pusht.robot import PUSHT

POOL = [random_episode(f"disc-{i}", i, n=25) for i in range(10)]
TARGET = [replace(random_episode(f"triangle-{i}", i, n=25), embodiment="triangle") for i in range(4)]


def for_training(
    n_candidates: int | None = None, action_weight: float = 0.1, chunk_size: int = 8
) -> tuple[TermDescriber, RetrievalConfig]:
    describer, config = find_retrieval("pusht-object", PUSHT, n_candidates)
    return with_action_term(describer, replace(config, chunk_size=chunk_size), PUSHT, action_weight)


def retriever(n_candidates: int | None = None, action_weight: float = 0.1) -> Retriever:
    return Retriever(MemoryPool(POOL), *for_training(n_candidates, action_weight))


def test_the_demonstration_of_the_same_scene_is_the_best_match_when_allowed() -> None:
    pairs = find_pairs(MemoryView(TARGET), retriever())
    assert pairs.target.shape == (100, 2)
    last = 25 - 3  # tails are trimmed
    for (episode, t), match in zip(pairs.target, pairs.match, strict=True):
        if t < last:
            assert tuple(match[0]) == (episode, t)


def test_without_twins_no_pair_shares_a_scene() -> None:
    pairs = find_pairs(MemoryView(TARGET), retriever(), allow_twin=False)
    assert (pairs.match[:, :, 0] != pairs.target[:, None, 0]).all()


def test_matches_are_of_different_episodes_and_weights_sum_to_one() -> None:
    pairs = find_pairs(MemoryView(TARGET), retriever(n_candidates=5), k=3)
    assert all(len(set(row)) == 3 for row in pairs.match[:, :, 0].tolist())
    assert pairs.weight.sum(axis=1) == pytest.approx(1)
    assert (np.diff(pairs.weight, axis=1) <= 1e-6).all(), "nearest first"
    assert len(pairs.refs(0)) == 3


def test_missing_matches_are_marked_with_minus_one() -> None:
    small = Retriever(MemoryPool(POOL[:2]), *for_training())
    pairs = find_pairs(MemoryView(TARGET[:1]), small, k=3)
    assert (pairs.match[:, 2, 0] == -1).all()
    assert (pairs.weight[:, 2] == 0).all()
    assert len(pairs.refs(5)) == 2


def test_pairs_at_given_times_equal_those_among_all_frames() -> None:
    times = [[3, 7] for _ in TARGET]
    some = find_pairs(MemoryView(TARGET), retriever(), k=2, times=times)
    every = find_pairs(MemoryView(TARGET), retriever(), k=2)
    rows = [i for i, (_, t) in enumerate(every.target.tolist()) if t in (3, 7)]
    assert np.array_equal(some.target, every.target[rows])
    assert np.array_equal(some.match, every.match[rows])


def test_the_action_term_prefers_demonstrations_with_similar_next_actions() -> None:
    """Of two demonstrations with equal states, the one with similar actions is matched."""
    asked = TARGET[0]
    alike = replace(POOL[0], id="alike", scene_id="a", actions=POOL[0].actions + 2)
    other = replace(POOL[0], id="other", scene_id="b", actions=POOL[0].actions[::-1].copy())
    pool = MemoryPool([other, alike])
    pairs = find_pairs(MemoryView([asked]), Retriever(pool, *for_training()), k=1)
    assert (pairs.match[:20, 0, 0] == 1).all()


def test_finding_pairs_in_an_empty_pool_is_an_error() -> None:
    with pytest.raises(InputError, match="pool is empty"):
        find_pairs(MemoryView(TARGET), Retriever(MemoryPool(), *for_training()))


def test_the_action_term_has_the_chunk_length_and_a_constant_total_weight() -> None:
    for chunk_size in (4, 16):
        describer, config = for_training(action_weight=0.5, chunk_size=chunk_size)
        assert config.chunk_size == chunk_size
        assert describer.dims["action"] == 2 * chunk_size
        assert config.weights["action"] * chunk_size == pytest.approx(0.5)


def test_the_action_term_can_weigh_steps_between_actions() -> None:
    """Of two demonstrations with equally distant actions, the one with similar steps is matched."""
    asked = TARGET[0]
    shifted = replace(POOL[0], id="shifted", scene_id="a", actions=POOL[0].actions + 8)
    sign = np.where(np.arange(25) % 2, 1, -1)[:, None].astype(np.float32)
    shaking = replace(POOL[0], id="shaking", scene_id="b", actions=POOL[0].actions + 7.9 * sign)
    describer, config = find_retrieval("pusht-object", PUSHT)
    for step_weight, best in ((0.0, 0), (10.0, 1)):
        spec = with_action_term(describer, config, PUSHT, 1.0, step_weight)
        pairs = find_pairs(MemoryView([asked]), Retriever(MemoryPool([shaking, shifted]), *spec), k=1)
        assert np.mean(pairs.match[:15, 0, 0] == best) > 0.8
