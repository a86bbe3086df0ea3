"""Pools too large for memory: rows are read on demand, after a check that their file is unchanged."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from toy_pool import ToyDescriber, same_episode, toy_episode

from recap.errors import DatasetError
from recap.lazy import Made
from recap.pool.store import Pool
from recap.pool.table import N_NEAR

NAMES = [f"e{i}" for i in range(N_NEAR + 3)]


@pytest.fixture(autouse=True)
def nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recap.pool.live.MAX_HELD", 0)


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """A pool with two data files, opened as by another process."""
    made = Pool.create(tmp_path / "pool")
    made.add([toy_episode(name) for name in NAMES[:-1]])
    made.add([toy_episode(NAMES[-1])])
    made.remove([NAMES[1]])
    return Pool.open(made.uri)


def data_file(pool: Pool) -> Path:
    """The data file with the first rows."""
    return max(Path(pool.uri).glob("episodes.lance/data/*"), key=lambda path: path.stat().st_size)


def rewrite(path: Path, position: int) -> None:
    """Change one byte in place."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))  # the time changes even on a file system with coarse timestamps


def test_rows_read_on_demand_equal_the_added_episodes(pool: Pool) -> None:
    view = pool.view()
    assert {type(rows) for rows in pool._loader._parts.values()} == {Made}
    assert view.episode_ids == (NAMES[0], *NAMES[2:])
    for name in [*view.episode_ids, *reversed(view.episode_ids)]:
        assert same_episode(view.episode(name), toy_episode(name))
    assert view.digests["e5"] == pool.index().by_id["e5"].sha256 == dict(view.digests)["e5"]
    assert view.descriptors(ToyDescriber()).episode_ids == view.episode_ids


def test_a_pool_that_fits_is_held_in_memory(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recap.pool.live.MAX_HELD", 2**20)
    view = Pool.open(pool.uri).view()
    for path in Path(pool.uri).glob("episodes.lance/data/*"):
        path.unlink()
    assert [episode.id for episode in view] == [NAMES[0], *NAMES[2:]]


def test_a_data_file_that_changes_while_it_is_open_is_detected(pool: Pool) -> None:
    view, path = pool.view(), data_file(pool)
    rewrite(path, path.stat().st_size // 2)
    assert same_episode(view.episode(NAMES[-1]), toy_episode(NAMES[-1])), "from the other file"
    assert same_episode(view.episode("e3"), toy_episode("e3")), "found by salvage"
    path.unlink()
    with pytest.raises(DatasetError, match="verify --repair"):
        view.episode("e7")


def test_a_reader_finds_rows_that_another_process_compacted(pool: Pool) -> None:
    view, other = pool.view(), Pool.open(pool.uri)
    other.compact()
    other.prune(1, timedelta(0))
    assert not set(pool._loader._parts) & set(other.files.names("episodes.lance/data"))
    assert all(same_episode(view.episode(name), toy_episode(name)) for name in view.episode_ids[:3])
    assert same_episode(pool.view().episode("e9"), toy_episode("e9"))
