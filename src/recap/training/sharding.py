"""Weights that no process holds whole: split over all of them, and gathered where they are needed (FSDP2).

torch's own `fully_shard`, not accelerate's plugin: that one leaves processes without a GPU unsharded and
says nothing, and returns losses and sums gradients in 16 bits, where one process does not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

Model = TypeVar("Model", bound=nn.Module)


def shard(model: nn.Module, blocks: tuple[str, ...], n_processes: int, device: torch.device) -> None:
    """Split the weights over all processes; while it computes, a process holds one block's more."""
    mesh = init_device_mesh(device.type, (n_processes,))
    for part in list(model.modules()):
        # Of a block that is partly frozen, π0's last but for its keys and values, no output is used: nothing
        # would tell when to gather it for the backward pass. It goes with the rest.
        if type(part).__name__ in blocks and all(p.requires_grad for p in part.parameters()):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)


def shell(model: Model) -> Model:
    """A copy that has no weights yet, but all else."""
    none = {id(p): nn.Parameter(torch.empty(p.shape, device="meta"), False) for p in model.parameters()}
    return copy.deepcopy(model, none)


def local(tensor: Tensor) -> Tensor:
    """This process's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def part_like(whole: Tensor, like: Tensor | None) -> Tensor:
    """This process's part of a whole tensor, split as another is; every process has the whole at hand."""
    if not isinstance(like, DTensor) or like.shape != whole.shape:
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).clone()


def gather(tensors: Mapping[str, Tensor], device: torch.device, keep: bool) -> dict[str, Tensor]:
    """Each tensor whole, one after the other, by all processes together; some do not keep them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.detach()
        if isinstance(whole, DTensor):
            whole = whole.full_tensor()
        if keep:
            found[name] = whole.to(device)
    return found
