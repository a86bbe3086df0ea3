"""The cache of training data: written once, then memory-mapped."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from recap.errors import InputError
from recap.pool.opening import open_demonstrations
from recap.training import data as made
from recap.training import tables
from recap.training.config import TrainConfig
from recap.training.data import build_data, load_data
from recap.training.data_cache import TrainingData, data_key, read_data
from recap.training.samples import tables_of
from recap.training.stages import Stages
from recap.training.tables import new_table, read_tables, whole_folder
from recap.types import Episode

Configure = Callable[..., TrainConfig]


def episodes(file: str) -> list[Episode]:
    view = open_demonstrations(file)
    return [view.episode(name) for name in view.episode_ids]


def assert_equal(one: TrainingData, other: TrainingData) -> None:
    assert (one.stamp, one.n_episodes, one.left_out) == (other.stamp, other.n_episodes, other.left_out)
    assert np.array_equal(one.pictures, other.pictures)
    for name, mean in one.statistics.mean.items():
        assert np.array_equal(mean, other.statistics.mean[name])
        assert np.array_equal(one.statistics.std[name], other.statistics.std[name])
    for side in ("train", "held_out"):
        a, b = getattr(one, side), getattr(other, side)
        assert a.tasks == b.tasks
        assert tables_of(a).keys() == tables_of(b).keys()
        for name, values in tables_of(a).items():
            assert np.array_equal(values, tables_of(b)[name]), name


def test_mapped_data_equal_data_built_in_memory(
    data: TrainingData, configure: Configure, files: tuple[str, str]
) -> None:
    built = build_data(episodes(files[0]), episodes(files[1]), configure())
    assert built.folder is None
    assert data.folder is not None
    assert isinstance(data.pictures, np.memmap)
    assert all(isinstance(values, np.memmap) for values in tables_of(data.train).values())
    assert_equal(built, data)


def test_training_data_are_built_once_and_then_reused(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, stages = configure(), Stages()
    first = load_data(config, stages)
    assert set(stages.seconds) == {"reading", "retrieval pairs", "moments", "pictures"}
    assert stages.reused == []
    again = Stages()
    with monkeypatch.context() as patch:
        patch.setattr(made, "build_data", lambda *_: pytest.fail("made again"))
        assert_equal(load_data(config, again), first)
        load_data(replace(config, batch_size=4, learning_rate=1e-4, seed=3))
    assert again.reused == ["retrieval pairs", "moments", "pictures"]
    assert "pictures reused" in str(again)


@pytest.mark.parametrize(
    "change", ["policy.chunk_size=9", "pairs.k=2", "held_out=0.5", "policy.inputs=S", "policy.image.size=24"]
)
def test_settings_that_change_the_data_change_the_key(
    change: str, configure: Configure, files: tuple[str, str]
) -> None:
    target, pool = episodes(files[0]), episodes(files[1])
    key = data_key(configure(), target, pool)
    assert key == data_key(configure("ema=0.5", "policy.sampling.n_steps=4"), target, pool)
    assert key != data_key(configure(change), target, pool)


def test_changes_of_a_demonstration_change_the_key(configure: Configure, files: tuple[str, str]) -> None:
    config = configure()
    target, pool = episodes(files[0]), episodes(files[1])
    key = data_key(config, target, pool)
    pictures = np.array([np.array(frame) for frame in pool[0].images["top"]])
    seen = {key}
    for changed in (
        replace(pool[0], task="another"),
        replace(pool[0], proprio=pool[0].proprio + 1),
        replace(pool[0], images={"top": pictures}),
        replace(pool[0], images={"top": 255 - pictures}),
    ):
        seen.add(data_key(config, target, [changed, *pool[1:]]))
    assert len(seen) == 5
    assert data_key(config, target, pool[1:]) not in seen
    assert data_key(config, pool, target) not in seen


def test_a_damaged_cache_folder_is_rebuilt(configure: Configure) -> None:
    config = configure("policy.inputs=S")
    first = load_data(config)
    assert first.folder is not None
    (first.folder / "train/actions.npy").write_bytes(b"torn")
    assert read_data(first.folder) is None
    load_data(config)
    assert read_data(first.folder) is not None


def test_failed_builds_leave_no_folder_and_leftovers_of_killed_ones_are_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "cache/data") as partial:
        new_table(partial, "fixed/proprio", (3, 2), np.float32)[:] = 1 / 0
    assert list((tmp_path / "cache").iterdir()) == []
    dead = tmp_path / f"cache/.old.99999999@{os.uname().nodename}.partial"
    dead.mkdir()
    with whole_folder(tmp_path / "cache/data") as partial:
        new_table(partial, "fixed/proprio", (3, 2), np.float32)[1] = 7
        new_table(partial, "none", (0, 4), np.int64)
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["data"]
    found = read_tables(tmp_path / "cache/data")
    assert found["fixed/proprio"].tolist() == [[0, 0], [7, 7], [0, 0]]
    assert found["none"].shape == (0, 4)


def test_a_disk_without_enough_space_is_an_error_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(
        InputError, match=r"pictures of these data need 2\.0 GiB, and the disk of .* has 1\.0"
    ):
        new_table(tmp_path, "pictures", (1 << 20, 1 << 11), np.uint8)
    assert list(tmp_path.iterdir()) == []
