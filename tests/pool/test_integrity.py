"""Damage to a pool: every changed byte is found, episodes are named, the rest stays usable, repair works."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from toy_pool import ToyDescriber, same_episode, toy_episode

from recap.errors import DatasetError
from recap.pool.seals import seal_name
from recap.pool.store import Pool
from recap.pool.table import manifest_name
from recap.pool.verify import HINT


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """A pool with videos, deletions, a compaction, a tag and descriptors."""
    pool = Pool.create(tmp_path_factory.mktemp("pools") / "sound")
    pool.add([toy_episode("a", images=True), toy_episode("b"), toy_episode("c")])
    pool.add([toy_episode("d"), toy_episode("e")])
    pool.remove(["b"])
    pool.compact()
    pool.add([toy_episode("f", images=True), toy_episode("g")])
    pool.add([toy_episode("h"), toy_episode("i"), toy_episode("j")])
    pool.remove(["i"])
    pool.tag("x")
    pool.view().descriptors(ToyDescriber())
    assert pool.verify().ok
    return pool


@pytest.fixture
def pool(sound: Pool, tmp_path: Path) -> Pool:
    shutil.copytree(sound.uri, tmp_path / "pool")
    return Pool.open(tmp_path / "pool")


ALL = {"a", "c", "d", "e", "f", "g", "h", "j"}


def flip(pool: Pool, name: str, position: int | None = None, bit: int = 0) -> None:
    path = Path(pool.uri) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1 << bit
    path.write_bytes(data)


def newest_data(pool: Pool) -> str:
    fragment = pool.table.head().get_fragments()[-1]
    return f"episodes.lance/data/{fragment.metadata.files[0].path}"


def test_a_changed_byte_in_any_file_is_found_and_repaired(sound: Pool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [name for name in sound.files.names("") if name != HINT]  # only a hint, rewritten in place
    lost_ever = 0
    for round_, name in enumerate(rng.permutation(names)[:28]):
        place = tmp_path / str(round_)
        shutil.copytree(sound.uri, place)
        pool = Pool.open(place)
        size = (place / name).stat().st_size
        flip(pool, name, int(rng.integers(size)), int(rng.integers(8)))
        pool = Pool.open(place)
        report = pool.verify()
        assert not report.ok, f"{name} of {size} bytes"
        assert {episode.id for episode in pool} >= ALL - set(report.episodes), name
        repair = pool.repair()
        assert repair.report.ok, (name, repair.report.findings)
        assert set(repair.lost) <= set(report.episodes)
        assert set(pool.ids()) == ALL - set(repair.lost)
        lost_ever += len(repair.lost)
        fresh = Pool.open(place)
        fresh.add([toy_episode("after")])
        assert fresh.verify().ok, name
        shutil.rmtree(place)
    assert lost_ever < 28


def test_a_damaged_fragment_loses_only_its_own_episodes(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    name = newest_data(pool)
    data = (Path(pool.uri) / name).read_bytes()
    (Path(pool.uri) / name).write_bytes(
        data[:10] + bytes(len(data) - 10)
    )  # without its trailer nothing in the file can be read
    pool = Pool.open(pool.uri)
    report = pool.verify()
    assert [finding.file for finding in report.findings] == [name]
    assert set(report.episodes) == {"h", "j"}, "'i' was removed before"
    assert {episode.id for episode in pool} == ALL - {"h", "j"}
    assert "'h', 'j'" in caplog.text
    assert same_episode(pool.get("g"), toy_episode("g"))
    with pytest.raises(DatasetError, match="--repair"):
        pool.get("h")
    with pytest.raises(DatasetError, match="--repair"):
        pool.add([toy_episode("new")])
    repair = pool.repair()
    assert set(repair.lost) == {"h", "j"}
    assert repair.listing is not None
    assert b'"h"' in pool.files.read(repair.listing)
    assert pool.verify().ok
    pool.add([toy_episode("h"), toy_episode("new")])
    assert same_episode(Pool.open(pool.uri).get("h"), toy_episode("h"))


def test_repair_recovers_compacted_rows_from_older_files(pool: Pool) -> None:
    first = pool.table.head().get_fragments()[0]
    flip(pool, f"episodes.lance/data/{first.metadata.files[0].path}")
    pool = Pool.open(pool.uri)
    assert not pool.verify().ok
    assert set(pool.ids()) == ALL
    assert pool.repair().lost == ()
    assert set(pool.ids()) == ALL
    assert same_episode(pool.get("d"), toy_episode("d"))


def test_a_changed_row_in_a_fragment_without_a_seal_is_left_out(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    seal = seal_name(int(pool.table.head().get_fragments()[-1].fragment_id))
    name = newest_data(pool)
    place = Path(pool.uri) / name
    numbers = toy_episode("h").actions.tobytes()
    assert place.read_bytes().count(numbers) == 1
    flip(pool, name, place.read_bytes().index(numbers))
    (Path(pool.uri) / seal).unlink()  # as if the writer had died before it wrote the seal
    pool = Pool.open(pool.uri)
    assert {episode.id for episode in pool} == ALL - {"h"}
    assert same_episode(pool.view().episode("j"), toy_episode("j"))
    assert "left out 'h'" in caplog.text


@pytest.mark.parametrize("how", ["flipped", "emptied", "cut"])
def test_a_pool_with_a_damaged_newest_manifest_opens_at_the_last_intact_version(
    pool: Pool, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool.add([toy_episode("k"), toy_episode("l")])
    newest = pool.version
    path = Path(pool.uri) / manifest_name(newest)
    data = path.read_bytes()
    if how == "flipped":
        flip(pool, manifest_name(newest))
    else:
        path.write_bytes(data[: len(data) // 2 if how == "cut" else 0])
    with caplog.at_level(logging.WARNING):
        pool = Pool.open(pool.uri)
    assert "last version that is whole" in caplog.text
    assert pool.version == newest - 1
    assert set(pool.ids()) == ALL
    with pytest.raises(DatasetError, match="only read"):
        pool.add([toy_episode("m")])
    assert not pool.verify().ok
    repair = pool.repair()
    assert repair.redone == (newest,)
    assert repair.lost == ()
    assert set(pool.ids()) == ALL | {"k", "l"}, "acknowledged additions are redone"
    pool.add([toy_episode("m")])
    assert Pool.open(pool.uri).verify().ok


def test_repair_redoes_a_removal_that_was_lost(pool: Pool) -> None:
    pool.remove(["a"])
    flip(pool, manifest_name(pool.version))
    pool = Pool.open(pool.uri)
    assert "a" in pool.ids()
    pool.repair()
    assert set(pool.ids()) == ALL - {"a"}
    assert pool.verify().ok


def test_a_damaged_video_is_an_error_when_read(pool: Pool) -> None:
    digest = pool.index().by_id["a"]
    frames = pool.get("a").images["top"]
    name = next(n for n in pool.files.names("blobs") if frames.digest in n)  # type: ignore[attr-defined]
    flip(pool, name)
    with pytest.raises(DatasetError, match="damaged"):
        pool.get("a").images["top"][0]
    assert pool.verify().episodes == ("a",)
    assert pool.repair().lost == ("a",)
    pool.add([toy_episode("a", images=True)])
    assert pool.index().by_id["a"].sha256 == digest.sha256
    assert len(np.array(pool.get("a").images["top"])) == 8, "adding it again restores the video"
    assert pool.verify().ok


def test_a_missing_file_counts_as_damage(pool: Pool) -> None:
    (Path(pool.uri) / newest_data(pool)).unlink()
    pool = Pool.open(pool.uri)
    assert set(pool.verify().episodes) == {"h", "j"}
    assert set(pool.repair().lost) == {"h", "j"}
    assert pool.verify().ok


def test_a_damaged_repair_listing_is_found_and_set_aside(pool: Pool) -> None:
    flip(pool, next(iter(pool.files.names("blobs"))))
    listing = pool.repair().listing
    assert listing is not None
    flip(pool, listing)
    pool = Pool.open(pool.uri)
    assert listing in [finding.file for finding in pool.verify().findings]
    repair = pool.repair()
    assert repair.report.ok
    assert repair.lost == ()
    assert listing in repair.set_aside


def test_repair_of_an_intact_pool_changes_nothing(pool: Pool) -> None:
    before = {name: pool.files.read(name) for name in pool.files.names("")}
    repair = pool.repair()
    assert repair.report.ok
    assert not repair.set_aside
    assert {name: pool.files.read(name) for name in pool.files.names("")} == before
