"""The pool's store: exact, versioned, and safe with several writers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_pool import same_episode, toy_episode

from recap.errors import DatasetError, InputError
from recap.pool.schema import Row
from recap.pool.store import Pool
from recap.pool.table import Conflict, Table
from recap.types import Episode

WRITER = Path(__file__).with_name("toy_pool.py")
NASTY = ["it's", 'a "b"', "x'; DROP TABLE t; --", "ü/é/日本", "a/b\\c", "%s {} ", "\\n", "NULL", "\\x00"]


def writer(uri: str, prefix: str, n: int, action: str = "add", **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), uri, prefix, str(n), action]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)


def words(output: str, verb: str) -> list[str]:
    return [line.partition(" ")[2] for line in output.splitlines() if line.startswith(f"{verb} ")]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool.create(tmp_path / "pool")


texts = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=12)
notes = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(notes, st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))


def floats(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float32, shape, elements=st.floats(-1e9, 1e9, width=32))


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    t = draw(st.integers(1, 5))
    steps = draw(hnp.arrays(np.float64, t, elements=st.floats(1e-3, 1e3)))
    return Episode(
        id=draw(texts.filter(bool)),
        scene_id=draw(texts),
        task=draw(texts),
        embodiment=draw(texts),
        fps=draw(st.floats(0.1, 1000)),
        timestamps=np.cumsum(steps),
        proprio=draw(floats(t, draw(st.integers(0, 3)))),
        actions=draw(floats(t, draw(st.integers(1, 3)))),
        objects={name: draw(floats(t, 2)) for name in draw(st.lists(texts, unique=True, max_size=3))},
        goal=draw(st.none() | floats(2) | floats(0)),
        action_space=draw(texts),
        success=draw(st.booleans()),
        source=draw(texts),
        attributes=draw(st.dictionaries(texts, scalars, max_size=3)),
    )


@given(batch=st.lists(episodes(), min_size=1, max_size=4, unique_by=lambda episode: episode.id))
@settings(max_examples=15)
def test_episodes_are_read_back_bit_for_bit(
    batch: list[Episode], tmp_path_factory: pytest.TempPathFactory
) -> None:
    pool = Pool.create(tmp_path_factory.mktemp("pools") / "pool")
    pool.add(batch)
    again = Pool.open(pool.uri)
    assert again.ids() == tuple(episode.id for episode in batch)
    for episode, listed in zip(batch, again, strict=True):
        assert same_episode(again.get(episode.id), episode)
        assert same_episode(listed, episode)


def test_videos_are_decoded_on_access_and_copied_without_encoding_again(pool: Pool, tmp_path: Path) -> None:
    episode = toy_episode("film", images=True)
    still = replace(episode, images={"top": [np.full((32, 32, 3), 100 + i, np.uint8) for i in range(8)]})
    pool.add([still])
    frames = pool.get("film").images["top"]
    assert len(frames) == 8
    assert np.abs(np.array(frames).astype(int) - np.array(still.images["top"])).max() < 8
    other = Pool.create(tmp_path / "other")
    other.add([pool.get("film")])
    assert other.index().keys[0].sha256 == pool.index().keys[0].sha256, "a video is copied, not encoded again"


def test_ids_and_tags_may_be_any_text(pool: Pool) -> None:
    pool.add([toy_episode(name) for name in NASTY])
    for name in NASTY:
        assert same_episode(pool.get(name), toy_episode(name))
        assert pool.tag(name) == pool.version
    assert set(pool.tags()) == set(NASTY)
    pool.remove(NASTY[:-1])
    assert pool.ids() == (NASTY[-1],)


def test_an_add_is_all_or_nothing(pool: Pool) -> None:
    pool.add([toy_episode("a")])
    version = pool.version
    with pytest.raises(InputError, match="'a' is in pool"):
        pool.add([toy_episode("b"), toy_episode("a")])
    with pytest.raises(InputError, match="given twice"):
        pool.add([toy_episode("b"), toy_episode("b")])
    assert (pool.ids(), pool.version) == (("a",), version)
    assert pool.add([toy_episode("b"), toy_episode("a")], skip_existing=True) == version + 1
    assert pool.add([toy_episode("b"), toy_episode("a")], skip_existing=True) == version + 1
    assert pool.ids() == ("a", "b")
    with pytest.raises(InputError, match="differs"):
        pool.add([toy_episode("a", t=5)], skip_existing=True)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"id": ""}, "no id"),
        ({"task": "\ud800"}, "UTF-8"),
        ({"fps": 0.0}, "frame rate"),
        ({"timestamps": np.zeros(8)}, "increase"),
        ({"proprio": np.full((8, 2), np.nan, np.float32)}, "NaN"),
        ({"actions": np.zeros((7, 2), np.float32)}, "not \\(8, d\\)"),
        ({"goal": np.array([0.1])}, "float32"),
        ({"images": {"top": []}}, "0 frames"),
        ({"attributes": {"x": float("nan")}}, "attribute"),
    ],
)
def test_unusable_episodes_are_refused(pool: Pool, changes: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        pool.add([replace(toy_episode("a"), **changes)])  # type: ignore[arg-type]
    assert len(pool) == 0


def test_versions_tags_diff_and_rollback(pool: Pool) -> None:
    states = {pool.version: pool.ids()}
    pool.add([toy_episode("a"), toy_episode("b")])
    states[pool.version] = pool.ids()
    pool.tag("two")
    pool.add([toy_episode("c")])
    states[pool.version] = pool.ids()
    pool.remove(["a"])
    states[pool.version] = pool.ids()
    pool.add([toy_episode("a", t=5)])
    states[pool.version] = pool.ids()
    for a, old in states.items():
        assert pool.ids(a) == old
        for b, new in states.items():
            there, back = pool.diff(a, b), pool.diff(b, a)
            assert set(there.added) == set(back.removed) == set(new) - set(old)
            assert there.changed == back.changed
    assert pool.diff("two", pool.version).changed == ("a",)
    newest = pool.version
    rolled = pool.rollback("two")
    assert rolled == newest + 1
    assert pool.ids() == ("a", "b")
    assert pool.diff("two", rolled) == pool.diff("two", "two")
    assert pool.ids(newest) == ("b", "c", "a"), "nothing is lost"
    assert pool.rollback(newest) == rolled + 1
    assert pool.ids() == ("b", "c", "a")
    assert [v.op for v in pool.versions()] == [
        "create",
        "add",
        "add",
        "remove",
        "add",
        "rollback",
        "rollback",
    ]
    assert pool.versions()[1].tags == ("two",)
    assert all(v.time is not None for v in pool.versions())
    with pytest.raises(InputError, match="means version 2 already"):
        pool.tag("two")
    pool.tag("two", move=True)
    assert pool.tags() == {"two": pool.version}
    with pytest.raises(InputError, match="did you mean 'two'"):
        pool.resolve("tow")
    assert pool.verify().ok


def test_a_change_with_expect_is_refused_after_another_writers_change(pool: Pool) -> None:
    expected = pool.add([toy_episode("a"), toy_episode("b")])
    other = Pool.open(pool.uri)
    other.add([toy_episode("c")])
    for change in (
        lambda: pool.remove(["a"], expect=expected),
        lambda: pool.rollback(1, expect=expected),
    ):
        with pytest.raises(InputError) as caught:
            change()
        assert caught.value.code == "pool.moved"
    assert pool.ids() == ("a", "b", "c")
    pool.remove(["a"], expect=expected + 1)
    assert other.ids() == ("b", "c")


def test_compaction_keeps_the_episodes_and_their_order(pool: Pool) -> None:
    for i in range(6):
        pool.add([toy_episode(f"e{i}")])
    pool.remove(["e1", "e4"])
    view = pool.view()
    pool.compact()
    assert pool.stats()["n_fragments"] == 1
    assert pool.ids() == view.episode_ids
    assert pool.view() is not view
    assert all(same_episode(pool.view().episode(name), view.episode(name)) for name in view.episode_ids)
    assert pool.compact() == pool.version
    assert pool.verify().ok


def test_many_small_adds_are_compacted_automatically(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recap.pool.compaction.N_SMALL", 4)
    for i in range(10):
        pool.add([toy_episode(f"e{i}")])
    assert pool.stats()["n_fragments"] < 5
    assert pool.ids() == tuple(f"e{i}" for i in range(10))


def test_a_view_shows_changes_of_other_processes_and_reads_only_new_fragments(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add([toy_episode("mine"), toy_episode("more")])
    view = pool.view()
    assert pool.view() is view
    process = writer(pool.uri, "theirs", 2)
    output, _ = process.communicate(timeout=120)
    assert words(output, "added") == ["theirs0", "theirs1"]
    loaded: list[str] = []
    read = pool.table.stored_rows

    def reading(name: str, at_once: bool) -> Any:
        found = read(name, at_once)
        loaded.extend(row.id for row in found[0])
        return found

    monkeypatch.setattr(pool.table, "stored_rows", reading)
    now = pool.view()
    assert now.episode_ids == ("mine", "more", "theirs0", "theirs1")
    assert loaded == ["theirs0", "theirs1"]
    assert now.episode("mine") is view.episode("mine")
    assert view.episode_ids == ("mine", "more"), "an old view never changes"
    assert pool.view() is now
    pool.remove(["mine"])
    assert pool.view().episode_ids == ("more", "theirs0", "theirs1")
    assert same_episode(pool.view().episode("more"), toy_episode("more"))
    pool.rollback(now.version)
    assert same_episode(pool.view().episode("mine"), toy_episode("mine"))
    assert loaded == ["theirs0", "theirs1"], "no fragment is read twice"


def test_a_view_caches_a_few_episodes_and_rebuilds_the_others(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = Row.episode
    monkeypatch.setattr("recap.pool.live.N_MADE", 2)
    monkeypatch.setattr(Row, "episode", lambda row, files: made.append(row.id) or make(row, files))
    pool.add([toy_episode(name, t=3 + i) for i, name in enumerate("abcd")])
    pool = Pool.open(pool.uri)
    view = pool.view()
    assert view.episode_ids == tuple("abcd")
    assert made == [], "no episode is built before it is asked for"
    for name in "abacadda":
        assert same_episode(view.episode(name), toy_episode(name, t=3 + "abcd".index(name)))
    assert made == list("abcd"), "the most used one stays cached"
    view.episode("b")
    assert made == list("abcdb"), "two are cached"


def test_concurrent_writers_neither_lose_nor_duplicate_episodes(pool: Pool) -> None:
    racers = [
        writer(pool.uri, "same", 10, "mixed"),
        writer(pool.uri, "same", 10),
        writer(pool.uri, "own", 10),
    ]
    outputs = [process.communicate(timeout=300)[0] for process in racers]
    added = [name for output in outputs for name in words(output, "added")]
    removed = {name for output in outputs for name in words(output, "removed")}
    ids = Pool.open(pool.uri).ids()
    assert len(ids) == len(set(ids))
    assert set(added) - removed <= set(ids) <= set(added)
    once = [name for name in added if name not in removed]
    assert len(once) == len(set(once)), "two processes both reported the same addition"
    assert Pool.open(pool.uri).verify().ok


def test_a_killed_writer_loses_no_acknowledged_episode(pool: Pool) -> None:
    rng = np.random.default_rng(0)
    acknowledged: set[str] = set()
    gone: set[str] = set()
    for round_ in range(10):
        process = writer(pool.uri, f"r{round_}-", 100, "mixed")
        assert process.stdout is not None
        seen = process.stdout.readline()
        if round_ % 2:  # on a slow machine too: kill after the first acknowledged addition
            seen += process.stdout.readline()
        time.sleep(rng.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        output, _ = process.communicate()
        acknowledged |= set(words(seen + output, "added"))
        gone |= {f"r{round_}-{i - 1}" for i in range(2, 100, 3)}  # may have been removed just before
        again = Pool.open(pool.uri)
        assert again.verify().ok
        ids = again.ids()
        assert len(ids) == len(set(ids))
        assert acknowledged - gone <= set(ids)
    assert acknowledged
    again.add([toy_episode("after")])
    assert not again.verify().unsealed


def test_an_add_that_fails_on_a_full_disk_leaves_the_pool_unchanged(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add([toy_episode("a")])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for target in ("recap.pool.table.Table.append", "recap.pool.table.Table.write"):
        with monkeypatch.context() as patch:
            patch.setattr(target, full)
            with pytest.raises(OSError, match="No space"):
                pool.add([toy_episode("b", images=True)])
        again = Pool.open(pool.uri)
        assert again.ids() == ("a",)
        assert again.verify().ok
    with monkeypatch.context() as patch:
        patch.setattr("recap.pool.table.Table.seal", full)
        with pytest.raises(OSError, match="No space"):
            pool.add([toy_episode("b")])
    again = Pool.open(pool.uri)
    assert again.verify().ok
    again.add([toy_episode("c")])
    assert not again.verify().unsealed


def test_a_disk_that_fills_during_an_add_leaves_the_pool_unchanged(pool: Pool) -> None:
    pool.add([toy_episode("a")])
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2]); from toy_pool import toy_episode; "
        "from recap.pool.store import Pool; pool = Pool.open(sys.argv[1]); "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY)); "
        "pool.add([toy_episode(f'new{i}', t=200) for i in range(10)])"
    )
    for limit in (20_000, 3_000, 1):  # within the data file, within a record, and at once
        command = [sys.executable, "-c", code, pool.uri, str(WRITER.parent), str(limit)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert process.returncode != 0
        assert "Error" in process.stderr.splitlines()[-1]
        again = Pool.open(pool.uri)
        assert again.ids() == ("a",)
        assert again.verify().ok
    again.add([toy_episode("b")])
    assert again.verify().ok


def test_open_needs_a_pool_and_create_needs_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="recap pool create"):
        Pool.open(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        Pool.create(tmp_path / "full")
    Pool.create(tmp_path / "pool")
    with pytest.raises(InputError, match="there is a pool"):
        Pool.create(tmp_path / "pool")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The storage options of a local S3 server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys).create_bucket(Bucket="demos")  # type: ignore
    yield {
        "aws_endpoint": f"http://{host}:{port}",
        "allow_http": "true",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region": "us-east-1",
    }
    server.stop()


def test_a_pool_on_an_object_store_behaves_the_same(s3: dict[str, str]) -> None:
    uri = "s3://demos/pool ü"
    pool = Pool.create(uri, s3)
    pool.add([toy_episode("a", images=True), toy_episode("b")])
    environment = {key.upper().replace("ALLOW", "AWS_ALLOW"): value for key, value in s3.items()}
    racers = [writer(uri, "same", 4, **environment) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in racers]
    added = sorted(name for output in outputs for name in words(output, "added"))
    assert added == [f"same{i}" for i in range(4)], "each is added exactly once"
    assert set(pool.view().episode_ids) == {"a", "b", *added}
    assert same_episode(Pool.open(uri, s3).get("a"), replace(toy_episode("a"), images={"top": []}))
    assert len(np.array(pool.get("a").images["top"])) == 8
    pool.remove(["b"])
    pool.compact()
    pool.tag("x")
    report = pool.verify()
    assert report.ok, report.findings
    assert pool.rollback(2) == pool.version
    assert pool.ids() == ("a", "b")
    name = next(n for n in pool.files.names("blobs"))
    pool.files.write(name, json.dumps("damage").encode())
    assert Pool.open(uri, s3).verify().episodes == ("a",)
    assert pool.repair().lost == ("a",)
    assert Pool.open(uri, s3).ids() == ("b",)


@pytest.mark.parametrize("gone", [["a0", "b0"], ["a0", "a1"]])
def test_the_second_of_two_concurrent_removals_is_a_conflict(tmp_path: Path, gone: list[str]) -> None:
    """Without the lock, as on an object store; in different fragments and in the same one."""
    pool = Pool.create(tmp_path / "pool")
    for name in "ab":
        pool.add([toy_episode(f"{name}{i}") for i in range(3)])
    tables = [Table(pool.files) for _ in gone]
    heads = [table.head() for table in tables]
    keys = [[table.index(head).by_id[name]] for table, head, name in zip(tables, heads, gone, strict=True)]
    tables[0].delete(heads[0], keys[0])
    with pytest.raises(Conflict):
        tables[1].delete(heads[1], keys[1])
    fresh = Pool.open(tmp_path / "pool")
    assert fresh.verify().ok
    assert gone[0] not in fresh.ids()
    assert gone[1] in fresh.ids()
    fresh.remove([gone[1]])
    assert fresh.verify().ok
    assert len(fresh.ids()) == 4


def test_a_rollback_does_not_undo_a_concurrent_addition(tmp_path: Path) -> None:
    """Without the lock, as on an object store."""
    pool = Pool.create(tmp_path / "pool")
    first = pool.add([toy_episode("a")])
    pool.add([toy_episode("b")])
    adding, restoring = Table(pool.files), Table(pool.files)
    old = restoring.head()
    Pool(pool.files, adding).add([toy_episode("c")])
    restoring.restore(old, first)
    fresh = Pool.open(tmp_path / "pool")
    assert fresh.ids() == ("a", "c")
    assert fresh.verify().ok
