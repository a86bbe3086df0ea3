"""Cached descriptors of a pool: stored by fingerprint, computed only where missing, checked when read."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_pool import ToyDescriber, toy_episode

from recap.errors import DatasetError
from recap.pool import derived
from recap.pool.derived import folder_of
from recap.pool.memory import MemoryView
from recap.pool.store import Pool
from recap.types import F32, Episode

IDS = ("a", "b", "c")


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    pool = Pool.create(tmp_path / "pool")
    pool.add([toy_episode(name, t=5 + i) for i, name in enumerate(IDS)])
    return pool


def shards(pool: Pool, fingerprint: str = "toy-1") -> list[Path]:
    return sorted((Path(pool.uri) / folder_of(fingerprint)).glob("*.safetensors"))


def test_every_frame_has_a_descriptor_in_episode_order(pool: Pool) -> None:
    found = pool.view().descriptors(ToyDescriber(scale=2.0))
    assert found.episode_ids == pool.view().episode_ids == IDS
    assert found.starts.tolist() == [0, 5, 11, 18]
    for i, name in enumerate(IDS):
        rows = found.terms["proprio"][found.starts[i] : found.starts[i + 1]]
        assert np.array_equal(rows, pool.get(name).proprio * 2)
    assert {term: values.shape for term, values in found.terms.items()} == {
        "proprio": (18, 2),
        "object": (18, 3),
    }


def test_large_descriptors_in_memory_are_mapped_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = [toy_episode(name, t=5 + i) for i, name in enumerate(IDS)]
    usual = MemoryView(episodes).descriptors(ToyDescriber())
    monkeypatch.setattr(derived, "MAPPED_BYTES", 1)
    mapped = MemoryView(episodes).descriptors(ToyDescriber())

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", full)
        unmapped = MemoryView(episodes).descriptors(ToyDescriber())
    for name, values in usual.terms.items():
        assert isinstance(mapped.terms[name].base.base, np.memmap)
        assert not isinstance(unmapped.terms[name].base, np.memmap), "a full disk is no error"
        for found in (mapped, unmapped):
            assert np.array_equal(found.terms[name], values)
            assert found.starts.tolist() == usual.starts.tolist()


def test_descriptors_are_computed_only_for_new_episodes(pool: Pool) -> None:
    describer = ToyDescriber()
    first = pool.view().descriptors(describer)
    assert pool.view().descriptors(describer) is first
    fresh = Pool.open(pool.uri)
    fresh.view().descriptors(describer)
    assert describer.asked == list(IDS)
    pool.add([toy_episode("d")])
    pool.remove(["b"])
    pool.add([toy_episode("b", t=3)])
    assert pool.view().descriptors(describer).episode_ids == ("a", "c", "d", "b")
    assert describer.asked == [*IDS, "d", "b"], "the new b has different content"
    pool.compact()
    pool.rollback(2)
    again = pool.view().descriptors(describer)
    assert describer.asked == [*IDS, "d", "b"]
    assert all(np.array_equal(again.terms[term], first.terms[term]) for term in first.terms)


def test_returned_descriptors_never_change(pool: Pool) -> None:
    describer = ToyDescriber()
    given = []
    for i in range(6):
        found = pool.view().descriptors(describer)
        given.append((found, {term: values.copy() for term, values in found.terms.items()}))
        if i == 3:
            pool.rollback(3)
        pool.add([toy_episode(f"new{i}", t=40)])
    for found, copies in given:
        for term, values in found.terms.items():
            assert np.array_equal(values, copies[term])
            assert not values.flags.writeable
            rows = [describer.describe(_again(name))[term] for name in found.episode_ids]
            assert np.array_equal(values, np.concatenate(rows))
            assert found.starts.tolist() == np.cumsum([0, *map(len, rows)]).tolist()


def _again(name: str) -> Episode:
    return toy_episode(name, t=40 if name.startswith("new") else 5 + IDS.index(name))


def test_descriptors_of_several_fingerprints_coexist_whatever_their_names(pool: Pool) -> None:
    names = ["toy-1", "../../x", "a/b", "ü", "x" * 300]
    for scale, name in enumerate(names, 1):
        pool.view().descriptors(ToyDescriber(fingerprint=name, scale=scale))
    fresh = Pool.open(pool.uri).view()
    for scale, name in enumerate(names, 1):
        describer = ToyDescriber(fingerprint=name, scale=scale)
        found = fresh.descriptors(describer)
        assert not describer.asked
        assert np.array_equal(found.terms["proprio"][:5], pool.get("a").proprio * np.float32(scale))
    assert len(pool.stats()["derived"]) == len(names)
    assert pool.verify().ok


def test_cached_descriptors_of_another_describer_are_refused(pool: Pool) -> None:
    pool.view().descriptors(ToyDescriber())
    wider = ToyDescriber(dims={"proprio": 2, "object": 4})
    with pytest.raises(DatasetError, match="computed again"):
        Pool.open(pool.uri).view().descriptors(wider)
    folder = Path(pool.uri) / "derived"
    shutil.copytree(folder / "toy-1", folder / "toy-2")
    with pytest.raises(DatasetError, match="belongs to toy-1"):
        Pool.open(pool.uri).view().descriptors(ToyDescriber(fingerprint="toy-2"))
    (folder / "toy-2" / "table.json").unlink()
    with pytest.raises(DatasetError, match="made by toy-1"):
        Pool.open(pool.uri).view().descriptors(ToyDescriber(fingerprint="toy-2"))


def test_deleted_descriptors_are_computed_again(pool: Pool) -> None:
    first = pool.view().descriptors(ToyDescriber())
    shutil.rmtree(Path(pool.uri) / "derived")
    describer = ToyDescriber()
    again = Pool.open(pool.uri).view().descriptors(describer)
    assert describer.asked == list(IDS)
    assert all(np.array_equal(again.terms[term], first.terms[term]) for term in first.terms)


def test_damaged_descriptors_are_found_and_computed_again(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    first = pool.view().descriptors(ToyDescriber())
    (shard,) = shards(pool)
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    (finding,) = pool.verify().findings
    assert finding.file.endswith(shard.name)
    again = Pool.open(pool.uri).view().descriptors(ToyDescriber())
    assert "damaged" in caplog.text
    assert all(np.array_equal(again.terms[term], first.terms[term]) for term in first.terms)
    assert pool.repair().lost == ()
    assert pool.verify().ok


class _Wrong(ToyDescriber):
    def describe(self, episode: Episode) -> dict[str, F32]:
        good = super().describe(episode)
        return {**good, "object": good["object"][:-1]} if self.scale else {"proprio": good["proprio"]}


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_describer_that_returns_wrong_terms_or_lengths_is_an_error(pool: Pool, scale: float) -> None:
    with pytest.raises(DatasetError, match="toy-1"):
        pool.view().descriptors(_Wrong(scale=scale))
    assert not shards(pool)


def test_descriptors_that_are_not_finite_are_left_out(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    found = pool.view().descriptors(replace(ToyDescriber(), scale=float("inf")))
    assert found.starts.tolist() == [0, 0, 0, 0]
    assert "not finite" in caplog.text


def test_descriptors_of_a_read_only_pool_are_computed_but_not_cached(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pool.files, "write", read_only)
    assert pool.view().descriptors(ToyDescriber()).starts.tolist() == [0, 5, 11, 18]
    assert "not kept" in caplog.text


def test_an_empty_pool_has_empty_descriptors(tmp_path: Path) -> None:
    found = Pool.create(tmp_path / "empty").view().descriptors(ToyDescriber())
    assert found.starts.tolist() == [0]
    assert found.terms["object"].shape == (0, 3)
