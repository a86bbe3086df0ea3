"""Where a run stands, so that it goes on bit by bit as if it had not stopped: safetensors, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import DatasetError
from recap.run_directory import whole_file

STATE = "state.safetensors"


def save_state(out: Path, model: nn.Module, smooth: nn.Module, optimizer: Any, facts: dict[str, Any]) -> None:
    """Write weights, smoothed weights, the optimizer's moments and some facts, whole or not at all."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"smooth.{k}": v for k, v in smooth.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{k}": torch.as_tensor(v) for k, v in values.items()}
    tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    try:
        with whole_file(out / STATE) as partial:
            save_file(tensors, partial, metadata={"recap": json.dumps(facts)})
    except OSError as error:
        raise DatasetError(
            f"the run's state could not be written to {out} ({error.strerror or error}): the last one is kept"
        ) from error


def load_state(out: Path, model: nn.Module, smooth: nn.Module, optimizer: Any) -> dict[str, Any] | None:
    """Put everything back where it was; None when the run has not begun."""
    from safetensors import SafetensorError, safe_open

    file = out / STATE
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})["recap"])
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DatasetError(f"{file} is damaged ({error}): remove it to start over") from error
    model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
    smooth.load_state_dict({k[7:]: v for k, v in tensors.items() if k.startswith("smooth.")})
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".")
            moments.setdefault(int(number), {})[name] = value
    state = optimizer.state_dict()
    optimizer.load_state_dict({"state": moments, "param_groups": state["param_groups"]})
    return dict(facts)
