"""Small training data, and a temporary cache."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recap.training.config import TrainConfig
from recap.training.data import TrainingData, load_data
from recap.training.presets import preset
from toy_policy import write_demonstrations

Configure = Callable[..., TrainConfig]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Files of target and pool, with six demonstrations each."""
    return write_demonstrations(tmp_path_factory.mktemp("demonstrations"))


@pytest.fixture(scope="session")
def configure(files: tuple[str, str]) -> Configure:
    """The debug preset on the small data, with changes such as `batch_size=4`."""

    def make(*changes: str) -> TrainConfig:
        return replace(preset("debug", changes), target=files[0], pool=files[1])

    return make


@pytest.fixture(scope="session")
def data(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Training data with images and state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_data(configure())


@pytest.fixture(scope="session")
def state_data(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Training data with state only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_data(configure("policy.inputs=S"))
