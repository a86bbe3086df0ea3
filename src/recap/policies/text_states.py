"""Instructions as hidden states of a large text encoder, computed once and stored in a file.

Cosmos-Predict2.5 reads the states of every layer of Reason1, a network of 7 B parameters, which is too large
to run with a policy. `research/scripts/encode_instructions.py` fills the file; a policy only reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from recap.errors import DatasetError, InputError, cause
from recap.run_directory import whole_file

PREFIX = "states:"  # of `policy.text`, followed by the file
FILL = "research/scripts/encode_instructions.py adds it"


def write_states(file: Path, states: Mapping[str, Tensor], model: str) -> None:
    """Store the states (L, d) of instructions in 16 bits, in addition to those already in the file."""
    from safetensors.torch import save_file

    known, by = read_states(file) if file.exists() else ({}, model)
    if by != model:
        raise InputError(f"{file} holds states of '{by}', not of '{model}': give another file")
    known |= {text: value.to("cpu", torch.bfloat16).contiguous() for text, value in states.items()}
    with whole_file(file) as partial:
        facts = {"recap": json.dumps({"model": model, "texts": list(known)})}
        save_file({str(i): value for i, value in enumerate(known.values())}, partial, metadata=facts)


def read_states(file: Path) -> tuple[dict[str, Tensor], str]:
    """The states of each instruction, and the model that computed them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            facts = json.loads(opened.metadata()["recap"])
            found = {text: opened.get_tensor(str(i)) for i, text in enumerate(facts["texts"])}
        return found, str(facts["model"])
    except FileNotFoundError as error:
        raise InputError(f"there is no file {file} with states of instructions: {FILL}") from error
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise DatasetError(f"{file} holds no instructions ({cause(error)}): make it again") from error


class TextStates:
    """Looks up the states of instructions: (n, L, d).

    Args:
        width: of a token, as the network expects it.
    """

    def __init__(self, file: Path, width: int) -> None:
        self.file = file
        self.known, _ = read_states(file)
        for text, value in self.known.items():
            if value.ndim != 2 or value.shape[1] != width:
                raise InputError(f"{file} has states {tuple(value.shape)} of '{text}', not {width} wide")
        if len({value.shape for value in self.known.values()}) > 1:
            raise DatasetError(f"{file} has instructions of several lengths: make it again")

    def __call__(self, tasks: Sequence[str]) -> Tensor:
        """The states of each instruction; an unknown instruction is an error."""
        for task in tasks:
            if task not in self.known:
                raise InputError(f"instruction '{task}' is not in {self.file}: {FILL}")
        return torch.stack([self.known[task] for task in tasks])
