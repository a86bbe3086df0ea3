"""Instructions as hidden states read from a file."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from recap.errors import DatasetError, InputError
from recap.policies.text_states import TextStates, read_states, write_states
from recap.policies.wam import WorldActionModel
from toy_policy import toy_config


def test_states_are_added_to_a_file_and_looked_up(tmp_path: Path) -> None:
    file = tmp_path / "states.safetensors"
    write_states(file, {"press": torch.ones(3, 8)}, "reason1")
    write_states(file, {"slide": torch.full((3, 8), 2.0)}, "reason1")
    states, model = read_states(file)
    assert (list(states), model) == (["press", "slide"], "reason1")
    found = TextStates(file, 8)(["slide", "press", "slide"])
    assert found.shape == (3, 3, 8)
    assert found[:, 0, 0].tolist() == [2.0, 1.0, 2.0]
    with pytest.raises(InputError, match=r"'open' is not in .*encode_instructions.py adds it"):
        TextStates(file, 8)(["open"])
    with pytest.raises(InputError, match=r"states \(3, 8\) of 'press', not 64 wide"):
        TextStates(file, 64)
    with pytest.raises(InputError, match="holds states of 'reason1', not of 't5'"):
        write_states(file, {"open": torch.ones(3, 8)}, "t5")


def test_a_file_without_usable_states_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_states(tmp_path / "none.safetensors")
    save_file({"0": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(DatasetError, match="holds no instructions"):
        read_states(tmp_path / "other.safetensors")
    write_states(tmp_path / "two.safetensors", {"a": torch.ones(2, 8), "b": torch.ones(3, 8)}, "m")
    with pytest.raises(DatasetError, match="several lengths"):
        TextStates(tmp_path / "two.safetensors", 8)


def test_a_world_action_model_reads_all_tokens_of_an_instruction(tmp_path: Path) -> None:
    file = tmp_path / "states.safetensors"
    torch.manual_seed(0)
    write_states(file, {"a": torch.randn(5, 64), "b": torch.randn(5, 64)}, "m")
    config = replace(toy_config(), text=f"states:{file}")
    text = WorldActionModel.task_encoder(config)(["a", "b"])
    assert text.shape == (2, 5, 64)
