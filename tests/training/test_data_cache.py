"""Training data that are written and read back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from recap.training.config import TrainConfig
from recap.training.data import TrainingData, statistics_of
from recap.training.data_cache import keep_data, read_data

Configure = Callable[..., TrainConfig]


def test_what_is_kept_is_read_back_whole(data: TrainingData, configure: Configure, tmp_path: Path) -> None:
    file = tmp_path / "data.safetensors"
    assert read_data(file, configure().policy) is None
    keep_data(data, file)
    found = read_data(file, configure().policy)
    assert found is not None
    assert (found.stamp, found.n_episodes) == (data.stamp, data.n_episodes)
    assert np.array_equal(found.pictures, data.pictures)
    for side in ("train", "held_out"):
        one, other = getattr(data, side), getattr(found, side)
        assert one.tasks == other.tasks
        for name in ("actions", "base", "valid", "weight", "task"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        for table in ("fixed", "matched", "images"):
            assert set(getattr(one, table)) == set(getattr(other, table))
            for name, values in getattr(one, table).items():
                assert np.array_equal(values, getattr(other, table)[name]), name


def test_its_statistics_are_those_of_the_policy_that_asks(
    data: TrainingData, configure: Configure, tmp_path: Path
) -> None:
    keep_data(data, tmp_path / "data.safetensors")
    absolute = replace(configure().policy, residual=False)
    found = read_data(tmp_path / "data.safetensors", absolute)
    assert found is not None
    wanted = statistics_of(data.train, absolute)
    assert np.array_equal(found.statistics.std["action"], wanted.std["action"])
    assert not np.array_equal(found.statistics.std["action"], data.statistics.std["action"])


def test_a_damaged_file_is_none(data: TrainingData, configure: Configure, tmp_path: Path) -> None:
    file = tmp_path / "data.safetensors"
    keep_data(data, file)
    file.write_bytes(file.read_bytes()[:1000])
    assert read_data(file, configure().policy) is None
