"""Data of the next run is made while another one trains."""

import time
from pathlib import Path

import numpy as np
import pytest

from recap.errors import InputError
from recap.training.data import load_data
from recap.training.presets import preset
from recap_research.plans.preparing import Preparation

STATE = preset("debug", ["policy.inputs=S", "n_demonstrations=3"])


def test_what_was_begun_beside_is_what_would_have_been_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "data.safetensors"
    with Preparation(2) as preparation:
        preparation.begin({file: STATE})
        with monkeypatch.context() as here:
            here.setattr("recap.training.data.build_data", None)  # here nothing is made
            taken = preparation.take(file, STATE)
    made = load_data(STATE)
    assert np.array_equal(taken.train.actions, made.train.actions)
    assert np.array_equal(taken.train.base, made.train.base)


def test_an_error_beside_is_told_when_the_data_is_asked_for(tmp_path: Path) -> None:
    wrong = preset("debug", ["target=nowhere"])
    with Preparation(2) as preparation:
        preparation.begin({tmp_path / "data": wrong})
        with pytest.raises(InputError, match="nowhere"):
            preparation.take(tmp_path / "data", wrong)


def test_leaving_does_not_wait_for_what_is_half_made(tmp_path: Path) -> None:
    began = time.monotonic()
    with Preparation(2) as preparation:
        preparation.begin({tmp_path / "data": preset("pusht-nano")})
    assert time.monotonic() - began < 10
    assert not (tmp_path / "data").exists()
