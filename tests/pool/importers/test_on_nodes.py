"""Videos encoded on a Ray cluster: the pool equals the one that a single machine makes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from click.testing import CliRunner

from ray_nodes import RAY, kill_the_second, two_nodes
from recap.cli.pool import pool as commands
from recap.errors import DatasetError, InputError
from recap.pool.blobs import blob_name
from recap.pool.importers import on_nodes, open_source
from recap.pool.importers.on_nodes import Reading, films_by_nodes
from recap.pool.schema import Films
from recap.pool.store import Pool
from recap.types import Episode

N = 40
SIZE = 32
OPTIONS = ("--fps", "10", "--image-size", str(SIZE), "--map", "task=lift it", "--map", "image:top=obs/image")


def write(path: Path, n: int, n_frames: int, pixels: int) -> Path:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, n_frames)[:, None]
    with h5py.File(path, "w") as file:
        for i in range(n):
            state = 0.3 + 0.1 * np.sin(t * [3 + i, 4] + [0, 1])
            file[f"data/demo_{i}/obs/agent_pos"] = state
            blobs = rng.integers(0, 255, (n_frames, 4, 4, 3), np.uint8)
            film = [cv2.resize(blob, (pixels, pixels), interpolation=cv2.INTER_CUBIC) for blob in blobs]
            file[f"data/demo_{i}/obs/image"] = np.array(film)
            file[f"data/demo_{i}/actions"] = np.concatenate([state[1:], state[-1:]])
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("source") / "lift.hdf5", N, 12, 48)


def add(pool: str | Path, source: Path, *more: str) -> str:
    result = CliRunner().invoke(commands, ["add", str(pool), str(source), *OPTIONS, *more])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture(scope="module")
def here(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """The pool that a single machine makes."""
    pool = Pool.create(tmp_path_factory.mktemp("here") / "pool")
    assert f"Added {N} episodes" in add(pool.uri, source)
    return pool


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool.create(tmp_path / "pool")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, str]]]:
    """The parts given to a fake cluster, which returns the last part first and one part twice."""
    asked: list[list[tuple[int, str]]] = []

    def cluster(work: partial[Films], items: Sequence[tuple[int, str]], most: int, _: str) -> Iterator[Films]:
        pieces = [list(items[i : i + most]) for i in range(0, len(items), most)]
        for piece in [*reversed(pieces), pieces[0]]:
            asked.append(piece)
            yield work(piece)

    monkeypatch.setattr(on_nodes, "run_on_ray", cluster)
    monkeypatch.setattr("recap.on_ray.check_cluster", lambda address: None)
    return asked


def contents(pool: Pool) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Every row in order, by its hash, which includes its videos' hashes; and the video files."""
    fresh = Pool.open(pool.uri)
    assert fresh.verify().ok
    return [(key.seq, key.id, key.sha256) for key in fresh.index().keys], fresh.files.names("blobs")


def test_a_cluster_makes_the_same_pool_as_one_machine(
    pool: Pool, here: Pool, source: Path, parts: list[list[tuple[int, str]]]
) -> None:
    assert f"Added {N} episodes" in add(pool.uri, source, "--ray", "somewhere:1")
    assert contents(pool) == contents(here)
    assert len(pool.versions()) == len(here.versions()), "it was made in the same number of versions"
    n_asked = len(parts)
    assert f"Added 0 episodes ({N} were there)" in add(pool.uri, source, "--ray", "somewhere:1")
    assert len(parts) == n_asked, "existing episodes are not encoded again"


def reading(pool: Pool, source: Path) -> Reading:
    return Reading(pool.uri, source, "robomimic", {"image:top": "obs/image"}, 10.0, None, SIZE)


def test_an_interrupted_import_continues_where_it_stopped(
    pool: Pool, here: Pool, source: Path, parts: list[list[tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, n_added = Pool.add, []

    def dies(self: Pool, episodes: Sequence[Episode], **given: object) -> int:
        if n_added:
            raise KeyboardInterrupt
        n_added.append(len(episodes))
        return complete(self, episodes, **given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "add", dies)
        with pytest.raises(KeyboardInterrupt):
            open_and_add(pool, source)
    assert 0 < len(pool) < N
    parts.clear()
    open_and_add(pool, source)
    assert [key[1] for key in contents(pool)[0]] == [key[1] for key in contents(here)[0]]
    assert contents(pool)[1] == contents(here)[1]
    assert {number for piece in parts for number, _ in piece} == set(range(n_added[0], N))


def open_and_add(pool: Pool, source: Path) -> None:
    from recap.pool.importers.resample import resize

    found = open_source(source, mapping={"image:top": "obs/image"}, fps=10.0)
    episodes = [resize(episode, SIZE) for episode in found]
    numbers = {episode.id: i for i, episode in enumerate(episodes)}
    pool.add_missing(
        episodes, encode=partial(films_by_nodes, pool.files, reading(pool, source), numbers, "somewhere:1")
    )


def test_a_video_that_is_missing_when_its_episode_is_added_is_encoded_locally(
    pool: Pool, here: Pool, source: Path, parts: list[list[tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Pool.add

    def pruned(self: Pool, episodes: Sequence[Episode], **given: object) -> int:
        for name in self.files.names("blobs"):
            self.files.remove(name)
        return complete(self, episodes, **given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "add", pruned)
        open_and_add(pool, write(source.parent / "few.hdf5", 4, 12, 48))
    assert all(len(list(episode.images["top"])) == 12 for episode in Pool.open(pool.uri))


def test_a_node_with_other_versions_paths_or_episodes_is_an_error(
    pool: Pool, source: Path, tmp_path: Path
) -> None:
    part = on_nodes._encode_part
    how = reading(pool, source)
    with pytest.raises(InputError, match=r"not recap 0\.0, av 0: install the same there"):
        part(replace(how, versions="recap 0.0, av 0"), [(0, "")])
    with pytest.raises(InputError, match="put the pool where every node sees it"):
        part(replace(how, uri=str(tmp_path / "nowhere")), [(0, "")])
    with pytest.raises(InputError, match="put the dataset where every node sees it"):
        part(replace(how, path=tmp_path / "nothing.hdf5"), [(0, "")])
    with pytest.raises(InputError, match="its episode 0 is another"):
        part(how, [(0, "of another dataset")])
    assert pool.files.names("blobs") == []


def test_videos_that_nodes_wrote_to_another_pool_are_an_error(
    pool: Pool, source: Path, tmp_path: Path, parts: list[list[tuple[int, str]]]
) -> None:
    other = Pool.create(tmp_path / "other")
    episodes = [replace(each) for each in open_source(source, mapping={"image:top": "obs/image"}, fps=10.0)]
    numbers = {episode.id: i for i, episode in enumerate(episodes)}
    how = replace(reading(other, source), image_size=None)
    with pytest.raises(DatasetError, match="are all nodes at work on the same one"):
        list(films_by_nodes(pool.files, how, numbers, "somewhere:1", episodes))


def test_an_unreachable_cluster_is_an_error_before_the_dataset_is_read(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"Ray cluster.*127\.0\.0\.1:1"):
        add(pool.uri, tmp_path / "not even there", "--ray", "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'recap-robot\[ray\]'"):
        add(pool.uri, tmp_path / "not even there", "--ray", "127.0.0.1:1")


@pytest.mark.long
def test_two_nodes_make_the_same_pool_as_one_machine_even_if_one_dies(
    pool: Pool, here: Pool, source: Path, object_store: str, tmp_path: Path
) -> None:
    long = write(tmp_path / "long.hdf5", N, 60, 48)
    size = ("--image-size", "256")  # large enough that the encoder can be killed while it works
    alone = Pool.create(tmp_path / "alone")
    add(alone.uri, long, *size)
    remote = Pool.create(f"{object_store}/pool")
    with two_nodes(tmp_path) as (nodes, address):

        def adding(place: str, dataset: Path, *more: str) -> subprocess.Popen[str]:
            words = ["pool", "add", place, str(dataset), *OPTIONS, *more, "--ray", address]
            return subprocess.Popen(
                [sys.executable, "-c", "from recap.cli import main; main()", *words],
                env={**os.environ, **RAY},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

        with adding(remote.uri, source) as process:
            out, err = process.communicate(timeout=600)
        assert f"Added {N} episodes" in out, err
        with adding(pool.uri, long, *size) as process:
            end = time.monotonic() + 300
            while len(pool.files.names("blobs")) < N // 4:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end
                time.sleep(0.02)
            kill_the_second(nodes)
            assert process.poll() is None, "there was work left"
            out, err = process.communicate(timeout=600)
        assert f"Added {N} episodes" in out, err
    assert contents(pool) == contents(alone)
    assert contents(remote) == contents(here)
    digests = {name.rpartition("/")[2].removesuffix(".mp4") for name in pool.files.names("blobs")}
    assert len(digests) == N, "each video is there once"
    assert all(pool.files.exists(blob_name(digest)) for digest in digests)
