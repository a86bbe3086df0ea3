"""Weights split over all processes and gathered when they are needed (FSDP2).

This uses torch's `fully_shard`, not accelerate's plugin. The plugin silently leaves processes without a GPU
unsharded. It also returns losses and sums gradients in 16 bits, which a single process does not.
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
    """Split the weights over all processes; blocks are gathered one at a time."""
    mesh = init_device_mesh(device.type, (n_processes,))
    for part in list(model.modules()):
        # The last block of π0 is frozen but for its keys and values, and its output is not used: nothing
        # would trigger gathering it in the backward pass. Such a block is sharded with the rest of the model.
        if type(part).__name__ in blocks and all(p.requires_grad for p in part.parameters()):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)


def empty_copy(model: Model) -> Model:
    """A copy of the model without its weights."""
    none = {id(p): nn.Parameter(torch.empty(p.shape, device="meta"), False) for p in model.parameters()}
    return copy.deepcopy(model, none)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def shard_like(whole: Tensor, like: Tensor | None) -> Tensor:
    """This process's part of a whole tensor, split like another; every process must have the whole tensor."""
    if not isinstance(like, DTensor) or like.shape != whole.shape:
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).clone()


def gather(tensors: Mapping[str, Tensor], device: torch.device, keep: bool) -> dict[str, Tensor]:
    """Gather whole tensors one by one; every process must call, those with `keep` get the result."""
    gathered: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.detach()
        if isinstance(whole, DTensor):
            whole = whole.full_tensor()
        if keep:
            gathered[name] = whole.to(device)
    return gathered
