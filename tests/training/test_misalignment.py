"""Misaligned pairs: inserted at the configured share and found by their residual."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from recap.pool.memory import MemoryView
from recap.training.config import TrainConfig
from recap.training.data import build_data, pairs_for, split, training_retrieval
from recap.training.misalignment import misalign
from recap.types import Episode
from toy_policy import demonstrations

Configure = Callable[..., TrainConfig]
N = 24


@pytest.fixture
def twins() -> tuple[list[Episode], list[Episode]]:
    """Target demonstrations, and for each one in the pool with nearly the same actions."""
    target = demonstrations("triangle", range(N))
    dice = np.random.default_rng(0)
    pool = []
    for episode in target:
        near = episode.actions + dice.normal(scale=0.5, size=episode.actions.shape).astype(np.float32)
        pool.append(replace(episode, id=f"{episode.id}-twin", embodiment="disc", actions=near))
    return target, pool


def test_a_share_of_demonstrations_is_matched_at_random(
    twins: tuple[list[Episode], list[Episode]], configure: Configure
) -> None:
    target, pool = (MemoryView(side) for side in twins)
    config = configure("policy.inputs=S")
    retrieval = training_retrieval(config, twins[1])
    pairs = pairs_for(target, pool, config, True, retrieval)
    wrong = misalign(pairs, pool, 0.25)
    moved = np.unique(pairs.target[(wrong.match != pairs.match).any(axis=(1, 2)), 0])
    assert 2 <= len(moved) <= 12, "about a quarter of 24"
    half = misalign(pairs, pool, 0.5)
    assert set(moved) < set(np.unique(pairs.target[(half.match != pairs.match).any(axis=(1, 2)), 0]))
    assert np.array_equal(misalign(pairs, pool, 0.25).match, wrong.match), "the choice is deterministic"
    assert np.array_equal(misalign(pairs, pool, 0.0).match, pairs.match)
    for row in range(len(wrong.target)):
        assert all(0 <= ref.t < len(pool.episode(ref.episode_id)) for ref in wrong.refs(row))
    # A worker's part of the data gives the same result.
    part = MemoryView(twins[0][12:])
    own = misalign(pairs_for(part, pool, config, True, retrieval), pool, 0.25)
    assert np.array_equal(own.match, wrong.match[pairs.target[:, 0] >= 12])


def test_inserted_misaligned_demonstrations_are_left_out(
    twins: tuple[list[Episode], list[Episode]], configure: Configure
) -> None:
    config = configure("policy.inputs=S", "pairs.leave_out=true", "pairs.k=1")
    clean = build_data(*twins, config)
    assert clean.left_out == ()
    wrong = replace(config, pairs=replace(config.pairs, misaligned=0.25))
    spoilt = build_data(*twins, replace(wrong, pairs=replace(wrong.pairs, leave_out=False)))
    n = len(twins[0][0])
    train, _ = split(twins[0], config.held_out)
    changed = (spoilt.train.base != clean.train.base).any(axis=(1, 2)).reshape(-1, n).any(axis=1)
    put_in = {episode.id for episode, one in zip(train, changed, strict=True) if one}
    assert len(put_in) >= 2
    found = build_data(*twins, wrong)
    assert set(found.left_out) == put_in
    assert len(found.train) == len(clean.train) - n * len(put_in)
    assert len(found.held_out) == len(clean.held_out), "the held-out part is unchanged"
    assert all(len(values) == len(found.train) for values in found.train.matched.values())
