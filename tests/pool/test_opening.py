"""Opening pools and datasets by name or path."""

from pathlib import Path

import numpy as np
import pytest
from toy_pool import same_episode, toy_episode

from recap.errors import DatasetError, InputError, RecapError
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.memory import MemoryView
from recap.pool.opening import open_demonstrations, open_pool, pool_names
from recap.pool.packed import PackedPool, write_packed
from recap.pool.store import Pool
from recap.suites import suites

NAMES = ("a", "b")


def test_pool_names_lists_the_pools_of_every_suite() -> None:
    assert set(pool_names()) == {name for suite in suites().values() for name in suite.pools()}
    assert all(pool_names().values()), "each has a description"
    for suite in suites().values():
        assert suite.default_pool is None or suite.default_pool in pool_names()


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    write_packed(MemoryView([toy_episode(name) for name in NAMES]), tmp_path / "pool.safetensors")
    return tmp_path / "pool.safetensors"


@pytest.fixture
def live(tmp_path: Path) -> Path:
    Pool.create(str(tmp_path / "live")).add([toy_episode(name) for name in NAMES])
    return tmp_path / "live"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for index, name in enumerate(NAMES):
        stage_episode(tmp_path / "staging", index, toy_episode(name, images=True))
    assemble(tmp_path / "staging", len(NAMES), tmp_path / "dataset")
    return tmp_path / "dataset"


def test_packed_and_live_pools_are_opened_by_path(snapshot: Path, live: Path) -> None:
    assert isinstance(open_pool(str(snapshot)), PackedPool)
    assert isinstance(open_pool(str(live)), Pool)
    for place in (snapshot, live):
        for view in (open_pool(str(place)).view(), open_demonstrations(str(place))):
            assert view.episode_ids == NAMES
            assert same_episode(view.episode("b"), toy_episode("b"))


def test_a_live_pool_is_opened_by_a_relative_path_without_a_slash(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(live.parent)
    assert open_pool("live").view().episode_ids == NAMES


def test_a_lerobot_dataset_is_opened_as_demonstrations_and_as_a_pool(dataset: Path) -> None:
    for view in (open_demonstrations(str(dataset)), open_pool(str(dataset)).view()):
        assert view.episode_ids == NAMES
        assert np.array_equal(view.episode("a").actions, toy_episode("a").actions)


def test_a_missing_pool_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'pusht-9x100'"):
        open_pool("pusht-9x10")
    with pytest.raises(InputError, match="there is no pool 'nothing-like-it'"):
        open_demonstrations("nothing-like-it")
    with pytest.raises(DatasetError, match="no packed pool"):
        open_pool(str(tmp_path / "none.safetensors"))
    with pytest.raises(RecapError, match="nowhere"):
        open_pool(str(tmp_path / "nowhere"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecapError, match="folder"):
        open_demonstrations(str(tmp_path / "folder"))


def test_a_mapping_for_a_pool_is_an_error(live: Path) -> None:
    with pytest.raises(DatasetError):
        open_demonstrations(str(live), {"actions": "a"})
