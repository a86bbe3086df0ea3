"""Pruning old versions, and deleting a demonstration for good, checked by searching the files' bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from lance import LanceDataset
from toy_pool import ToyDescriber, same_episode, toy_episode

from recap.cli.pool import pool as commands
from recap.errors import InputError
from recap.pool.blobs import blob_name, encode
from recap.pool.files import sha256
from recap.pool.pruning import needed_files
from recap.pool.store import Pool
from recap.types import Episode

NO_AGE = timedelta(0)


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Twelve versions: ten adds, one removal."""
    made = Pool.create(tmp_path / "pool")
    for i in range(10):
        made.add([toy_episode(f"e{i}", images=True)])
    made.remove(["e0"])
    return made


def size(pool: Pool) -> int:
    return sum(file.stat().st_size for file in Path(pool.uri).rglob("*") if file.is_file())


def with_name(pool: Pool, *needles: bytes) -> list[str]:
    """Files of a pool with one of these byte strings in their name or content."""
    found = []
    for file in Path(pool.uri).rglob("*"):
        text = file.name.encode() + (file.read_bytes() if file.is_file() else b"")
        if any(needle in text for needle in needles):
            found.append(str(file.relative_to(pool.uri)))
    return found


def test_prune_keeps_the_newest_and_the_tagged_versions(pool: Pool) -> None:
    pool.tag("first", 4)
    before, was = list(pool.view()), size(pool)
    done = pool.prune(keep=2, older_than=NO_AGE)
    assert [v.version for v in pool.versions()] == [4, 11, 12]
    assert done == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert size(pool) < was
    for handle in (pool, Pool.open(pool.uri)):
        assert handle.version == 12
        assert all(same_episode(a, b) for a, b in zip(handle.view(), before, strict=True))
        assert handle.ids("first") == ("e0", "e1", "e2")
        assert len(list(handle.view_at("first"))) == 3
        assert np.array(handle.view_at("first").episode("e0").images["top"]).shape[0] == 8
        assert handle.verify().ok, handle.verify().findings
    with pytest.raises(InputError, match="has no version 7"):
        pool.rollback(7)
    assert pool.rollback("first") == 13
    assert pool.add([toy_episode("later", images=True)]) == 14
    assert pool.verify().ok


def test_a_prune_that_is_killed_on_the_way_is_no_damage(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Path] = []

    def killed(dataset: object, **_: object) -> None:
        """Lance's clean-up up to its manifests, which come last."""
        needed = needed_files(pool.table, (11, 12))
        for version in (2, 3):
            record = pool.table.transaction_name(pool.table.at(version)) or ""
            for file in (
                Path(pool.uri) / name for name in needed_files(pool.table, [version]) - needed | {record}
            ):
                removed.extend([file] if file.exists() else [])
                file.unlink(missing_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LanceDataset, "cleanup_old_versions", killed)
        with pytest.raises(KeyboardInterrupt):
            pool.prune(keep=2, older_than=NO_AGE)
    assert removed
    again = Pool.open(pool.uri)
    assert again.verify().ok, again.verify().findings
    again.prune(keep=2, older_than=NO_AGE)
    assert [v.version for v in again.versions()] == [11, 12]
    assert Pool.open(pool.uri).verify().ok


def test_prune_deletes_the_data_of_pruned_versions(pool: Pool) -> None:
    digest = dict(pool.index(3).by_id)["e0"].sha256.encode()
    film = sha256(encode(toy_episode("e0", images=True).images["top"], 10.0))
    other = {sha256(encode(e.images["top"], e.fps)) for e in pool.view()}
    pool.compact()
    pool.prune(keep=1, older_than=NO_AGE)
    assert [v.version for v in pool.versions()] == [13]
    data = Path(pool.uri) / "episodes.lance/data"
    assert len(list(data.iterdir())) == 1
    assert film in other or not (Path(pool.uri) / blob_name(film)).exists()
    assert not any(digest in file.read_bytes() for file in data.iterdir())
    assert pool.verify().ok


def test_prune_keeps_versions_younger_than_the_given_age(pool: Pool) -> None:
    assert pool.prune(keep=1, older_than=timedelta(hours=1)) == []
    assert len(pool.versions()) == 12


def test_a_dry_run_of_prune_removes_nothing(pool: Pool) -> None:
    assert len(pool.prune(keep=1, older_than=NO_AGE, dry_run=True)) == 11
    assert len(pool.versions()) == 12


def test_readers_of_pruned_versions_continue_at_the_newest(pool: Pool) -> None:
    behind = Pool.open(pool.uri)
    behind.view()
    pool.tag("mine")  # the reader's version stays, those after it are pruned
    for i in range(10, 14):
        pool.add([toy_episode(f"e{i}", images=True)])
    lagging = Pool.open(pool.uri)
    pool.add([toy_episode("e14", images=True)])
    pool.prune(keep=1, older_than=NO_AGE)
    for reader in (behind, lagging):
        assert reader.view().version == pool.version
        assert "e14" in reader.view().episode_ids
    pool.add([toy_episode("e15", images=True)])
    for reader in (behind, lagging):
        assert "e15" in reader.view().episode_ids


def test_pruning_during_writes_and_reads_loses_nothing(pool: Pool) -> None:
    stop, failed, added = threading.Event(), [], []

    def write(name: str) -> None:
        handle = Pool.open(pool.uri)
        for i in range(8):
            handle.add([toy_episode(f"{name}{i}", images=True)])
            added.append(f"{name}{i}")

    def read() -> None:
        handle = Pool.open(pool.uri)
        while not stop.is_set():
            view = handle.view()
            for name in view.episode_ids[-2:]:
                np.array(view.episode(name).images["top"])

    def guarded(work: object, *args: object) -> None:
        try:
            work(*args)  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=guarded, args=(write, name)) for name in "ab"]
    reader = threading.Thread(target=guarded, args=(read,))
    for thread in (*writers, reader):
        thread.start()
    while any(thread.is_alive() for thread in writers):
        pool.prune(keep=2, older_than=NO_AGE)
    stop.set()
    reader.join()
    assert not failed
    assert set(added) <= set(Pool.open(pool.uri).ids())
    assert pool.verify().ok
    assert all(len(np.array(episode.images["top"])) == 8 for episode in pool.view())


def test_a_tag_during_a_prune_marks_a_version_that_still_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, other = Pool.create(tmp_path / "pool"), Pool.open(tmp_path / "pool")
    turn = pool.files.turn

    @contextmanager
    def late() -> Iterator[None]:
        other.add([toy_episode("late")])
        other.prune(keep=1, older_than=NO_AGE)
        with turn():
            yield

    monkeypatch.setattr(pool.files, "turn", late)
    pool.tag("now")
    assert pool.tags() == {"now": other.version}
    assert pool.verify().ok


def person() -> Episode:
    """A demonstration with a person's name, video and movements."""
    rng = np.random.default_rng(7)
    noise = [rng.integers(0, 255, (32, 32, 3), dtype=np.uint8) for _ in range(8)]
    return replace(
        toy_episode("person/anna", images=True),
        scene_id="annas-kitchen",
        images={"top": noise},
        proprio=rng.normal(size=(8, 2)).astype(np.float32),
    )


@pytest.mark.parametrize("still_there", [True, False])
def test_a_demonstration_deleted_for_good_leaves_no_bytes(pool: Pool, still_there: bool) -> None:
    anna = person()
    pool.add([toy_episode("x", images=True), anna, toy_episode("y", images=True)])
    pool.compact()
    pool.add([toy_episode("z", images=True)])
    pool.view().descriptors(ToyDescriber())
    film = encode(anna.images["top"], anna.fps)
    pool.view().episode("person/anna").images["top"][0]
    needles = (
        b"person/anna",
        b"annas-kitchen",
        anna.proprio[2:4].tobytes(),
        film[len(film) // 2 :][:60],
        sha256(film).encode(),
    )
    assert all(with_name(pool, needle) for needle in needles), "before the deletion each of them is found"
    if not still_there:
        pool.remove(["person/anna"])
        pool.add([toy_episode("after", images=True)])
    others = [episode for episode in pool.view() if episode.id != "person/anna"]
    described = pool.view().descriptors(ToyDescriber())

    pool.forget(["person/anna"])

    assert with_name(pool, *needles) == []
    for handle in (pool, Pool.open(pool.uri)):
        assert all(same_episode(a, b) for a, b in zip(handle.view(), others, strict=True))
        again = handle.view().descriptors(ToyDescriber())
        rows = [i for i, name in enumerate(described.episode_ids) if name != "person/anna"]
        assert again.episode_ids == tuple(described.episode_ids[i] for i in rows)
        assert handle.verify().ok, handle.verify().findings
    assert pool.add([toy_episode("more", images=True)]) > 0


def test_a_reader_continues_without_the_deleted_demonstration(pool: Pool) -> None:
    pool.add([person()])
    reader = Pool.open(pool.uri)
    assert "person/anna" in reader.view().episode_ids
    pool.forget(["person/anna"])
    assert "person/anna" not in reader.view().episode_ids
    assert len(reader.view()) == 9


def test_deleting_for_good_from_a_tagged_version_needs_with_tags(pool: Pool) -> None:
    pool.add([person()])
    pool.tag("with-anna")
    with pytest.raises(InputError, match="with-anna"):
        pool.forget(["person/anna"])
    assert with_name(pool, b"person/anna")
    pool.forget(["person/anna"], with_tags=True)
    assert pool.tags() == {}
    assert not with_name(pool, b"person/anna")
    with pytest.raises(InputError, match="no episode"):
        pool.forget(["person/anna"])


def test_the_prune_and_rm_commands(pool: Pool) -> None:
    def said(*words: str) -> str:
        result = CliRunner().invoke(commands, list(words), standalone_mode=False)
        assert result.exception is None, result.exception
        return result.output

    pool.add([person()])
    assert "It would remove 12 of 13 versions" in said(
        "prune", pool.uri, "--keep", "1", "--older-than", "0s", "--dry-run"
    )
    assert "0 of 13 versions" in said("prune", pool.uri)
    assert "Deleted for good: 1" in said("rm", pool.uri, "person/anna", "--for-good")
    assert not with_name(pool, b"person/anna")
    assert "versions" in said("prune", pool.uri, "--keep", "1", "--older-than", "0s")
    assert len(pool.versions()) == 1
