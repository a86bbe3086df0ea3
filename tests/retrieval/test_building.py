"""Building descriptors ahead of time: identical on every machine, each episode described once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from episodes import random_episode
from ray_nodes import RAY, kill_the_second, two_nodes
from recap.cli.pool import pool as commands
from recap.errors import InputError
from recap.pool.derived import read_shard
from recap.pool.store import Pool
from recap.retrieval import building
from recap.retrieval.building import Description, build_descriptors
from recap.retrieval.presets import find_retrieval, full_name
from recap.robot import RobotSpec, infer_robot
from recap.types import Episode

N = 48


def filmed(i: int) -> Episode:
    pixels = np.random.default_rng(i).integers(0, 255, (6, 32, 32, 3), np.uint8)
    return replace(random_episode(f"e{i}", i, n=6), images={"top": pixels})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("filled") / "pool"
    Pool.create(place).add([filmed(i) for i in range(N)])
    return place


@pytest.fixture
def pool(filled: Path, tmp_path: Path) -> Pool:
    return Pool.open(shutil.copytree(filled, tmp_path / "pool"))


def robot_of(pool: Pool) -> RobotSpec:
    return infer_robot(next(iter(pool)))


def rows(pool: Pool, retrieval: str) -> dict[str, bytes]:
    """Every term's descriptors, read from files only."""
    fresh = Pool.open(pool.uri)
    describer, _ = find_retrieval(retrieval, robot_of(pool))
    assert fresh.view().undescribed(describer) == []
    return {name: values.tobytes() for name, values in fresh.view().descriptors(describer).terms.items()}


def times_described(pool: Pool) -> Counter[str]:
    files = [name for name in pool.files.names("derived") if name.endswith(".safetensors")]
    return Counter(entry[0] for name in files for entry in read_shard(pool.files.read(name))[0]["episodes"])


def test_building_resumes_after_an_interruption(pool: Pool) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_descriptors(pool, "world", robot_of(pool), progress=stop)
    assert set(times_described(pool).values()) == {1}
    left = N - len(times_described(pool))
    assert 0 < left < N
    assert build_descriptors(pool, "world", robot_of(pool)) == left
    assert build_descriptors(pool, "world", robot_of(pool)) == 0
    assert times_described(pool) == Counter({f"e{i}": 1 for i in range(N)})


def test_prebuilt_descriptors_equal_those_built_on_demand(pool: Pool, filled: Path, tmp_path: Path) -> None:
    later = Pool.open(shutil.copytree(filled, tmp_path / "later"))
    describer, _ = find_retrieval("world", robot_of(pool))
    later.view().descriptors(describer)
    build_descriptors(pool, "world", robot_of(pool))
    assert rows(pool, "world") == rows(later, "world")
    pool.add([filmed(N)])
    assert build_descriptors(pool, "world", robot_of(pool)) == 1


def test_episodes_removed_or_replaced_meanwhile_are_skipped(pool: Pool) -> None:
    describer, _ = find_retrieval("world", robot_of(pool))
    wanted = Description(pool.uri, "world", robot_of(pool), describer.fingerprint)
    missing = pool.view().undescribed(describer)
    pool.remove(["e0", "e1"])
    pool.add([replace(filmed(7), id="e1")])
    assert building._describe_part(wanted, missing[:4]) == 2
    assert set(times_described(pool)) == {"e2", "e3"}


def test_a_node_with_another_version_or_without_the_pool_is_an_error(pool: Pool, tmp_path: Path) -> None:
    describer, _ = find_retrieval("world", robot_of(pool))
    wanted = Description(pool.uri, "world", robot_of(pool), describer.fingerprint)
    part = partial(building._describe_part, keys=[("e0", "0" * 64)])
    with pytest.raises(InputError, match="not other: install the same version"):
        part(replace(wanted, fingerprint="other"))
    with pytest.raises(InputError, match="put the pool where every node sees it"):
        part(replace(wanted, uri=str(tmp_path / "nowhere")))


def test_pool_index_prints_the_number_of_described_episodes(pool: Pool) -> None:
    told = CliRunner().invoke(commands, ["index", pool.uri, "--policy", "world"])
    assert f"Described {N} episodes (0 were)" in told.output
    assert f"Next: recap serve replay --retrieval world --pool {pool.uri}\n" in told.output
    again = CliRunner().invoke(commands, ["index", pool.uri, "--policy", "world"])
    assert f"Described 0 episodes ({N} were)" in again.output


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A retrieval whose image encoder comes from another package, installed on every node."""
    info = tmp_path / "site/slow_encoder-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-encoder\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[recap.encoders]\nslow = slow_encoder:SlowPatches\n")
    shutil.copy(Path(__file__).with_name("slow_encoder.py"), tmp_path / "site")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "slow.yaml").write_text("images: slow:0.1\n")
    return str(tmp_path / "slow.yaml")


@pytest.mark.long
def test_two_ray_nodes_build_the_same_descriptors_after_one_is_killed(
    pool: Pool, filled: Path, slow: str, object_store: str, tmp_path: Path
) -> None:
    here = Pool.open(shutil.copytree(filled, tmp_path / "here"))
    build_descriptors(here, full_name(slow), robot_of(here))
    log = tmp_path / "log"
    remote = Pool.create(f"{object_store}/pool")
    remote.add([filmed(i) for i in range(N)])
    with two_nodes(tmp_path, TOY_LOG=str(log)) as (nodes, address):

        def index(place: str) -> subprocess.Popen[str]:
            words = ["pool", "index", place, "--policy", slow, "--ray", address]
            return subprocess.Popen(
                [sys.executable, "-c", "from recap.cli import main; main()", *words],
                env={**os.environ, **RAY},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

        with index(remote.uri) as process:
            out, err = process.communicate(timeout=600)
        assert f"Described {N} episodes" in out, err
        log.unlink()
        with index(pool.uri) as process:
            end = time.monotonic() + 300
            while not log.exists() or len(set(log.read_text().split())) < 2:  # one on each node
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end
                time.sleep(0.02)
            kill_the_second(nodes)
            out, err = process.communicate(timeout=600)
        assert f"Described {N} episodes" in out, err
    assert len(log.read_text().split()) >= N, "more than N if the node was killed during a part"
    once = Counter({f"e{i}": 1 for i in range(N)})
    for built in (pool, remote):
        assert times_described(built) == once
        assert rows(built, full_name(slow)) == rows(here, full_name(slow))
