"""The state of a run, from which it resumes bit by bit; safetensors, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import DatasetError
from recap.run_directory import whole_file
from recap.training.sharding import gather, shard_like

STATE = "state.safetensors"


def save_state(
    out: Path, model: nn.Module, ema: nn.Module, optimizer: Any, facts: dict[str, Any], write: bool = True
) -> None:
    """Write weights, smoothed weights, optimizer moments and some facts, atomically.

    Args:
        write: whether this process writes; with sharded weights every process must call.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = _weights(model, ema)
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{k}": torch.as_tensor(v) for k, v in values.items()}
    tensors = gather(tensors, torch.device("cpu"), keep=write)
    if not write:
        return
    try:
        with whole_file(out / STATE) as partial:
            save_file(
                {k: v.contiguous() for k, v in tensors.items()},
                partial,
                metadata={"recap": json.dumps(facts)},
            )
    except (OSError, SafetensorError) as error:  # safetensors raises no OSError on a full disk
        why = getattr(error, "strerror", None) or error
        raise DatasetError(f"cannot write the run's state to {out} ({why}): the last one is kept") from error


def load_state(out: Path, model: nn.Module, ema: nn.Module, optimizer: Any) -> dict[str, Any] | None:
    """Restore the state and return its facts; None if there is no state yet."""
    from safetensors import SafetensorError, safe_open

    file = out / STATE
    if not file.exists():
        return None
    wanted = _weights(model, ema)
    learned = [p for group in optimizer.param_groups for p in group["params"]]
    tensors: dict[str, Tensor] = {}
    moments: dict[int, dict[str, Tensor]] = {}
    try:
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})["recap"])
            for key in opened.keys():  # noqa: SIM118 - not a dict
                value = opened.get_tensor(key)
                if key.startswith("optimizer."):
                    _, number, name = key.split(".")
                    moments.setdefault(int(number), {})[name] = shard_like(value, learned[int(number)])
                else:
                    tensors[key] = shard_like(value, wanted.get(key))
    except (SafetensorError, OSError, KeyError, ValueError, IndexError) as error:
        raise DatasetError(f"{file} is damaged ({error}): remove it to start over") from error
    model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
    ema.load_state_dict({k[7:]: v for k, v in tensors.items() if k.startswith("smooth.")})
    state = optimizer.state_dict()
    optimizer.load_state_dict({"state": moments, "param_groups": state["param_groups"]})
    return dict(facts)


def _weights(model: nn.Module, ema: nn.Module) -> dict[str, Tensor]:
    """All weights by their names in the file."""
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in model.state_dict().items()}
    return tensors | {f"smooth.{k}": v for k, v in ema.state_dict().items()}
