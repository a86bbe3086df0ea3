"""Memory, packed and live views of a pool: the same episodes and the same descriptors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_pool import ToyDescriber, same_episode, toy_episode

from recap.errors import InputError
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed
from recap.pool.store import Pool
from recap.pool.view import PoolView

EPISODES = [toy_episode(name, t=t) for name, t in (("a", 5), ("b", 9), ("c", 3))]


@pytest.fixture(params=["memory", "packed", "live"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> PoolView:
    memory = MemoryView(EPISODES)
    if request.param == "memory":
        return memory
    if request.param == "packed":
        write_packed(memory, tmp_path / "packed.safetensors")
        return PackedPool.open(tmp_path / "packed.safetensors")
    pool = Pool.create(tmp_path / "pool")
    pool.add(EPISODES)
    return pool.view()


def test_a_view_keeps_episode_order_and_refuses_unknown_ids(view: PoolView) -> None:
    assert view.episode_ids == ("a", "b", "c")
    assert all(same_episode(view.episode(each.id), each) for each in EPISODES)
    with pytest.raises(InputError):
        view.episode("d")


@pytest.mark.parametrize("whole_first", [True, False])
def test_descriptors_of_a_subset_equal_those_of_the_whole(view: PoolView, whole_first: bool) -> None:
    describer = ToyDescriber()
    if whole_first:
        view.descriptors(describer)
    some = view.descriptors(describer, ["c", "a"])
    whole = view.descriptors(describer)
    assert some.episode_ids == ("c", "a")
    assert np.diff(some.starts).tolist() == [3, 5]
    for term, values in whole.terms.items():
        assert np.array_equal(some.terms[term], np.concatenate([values[14:], values[:5]]))
