"""Lower bounds of the run time: operations over the matrix rate, bytes over the copy rate."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from recap.policies.config import PolicyConfig
from recap.policies.model import Batch
from recap.policies.wam import WorldActionModel

NOMINAL = 989e12  # FLOP/s in bf16, from the H200's datasheet
N_STEPS = 5
# Applied to the instruction or to a slot's noise level, not to every token.
NOT_PER_TOKEN = ("crossattn_proj", "time_embed", "attn2.to_k", "attn2.to_v")
# Also avoidable: a slot has one modulation, and attention to a single text token is the same for all.
NOT_NEEDED = ("norm1.", "norm2.", "norm3.", "norm_out.", "attn2.")


def token_parameters(network: nn.Module, lean: bool = False) -> int:
    """The number of weights that every token is multiplied with."""
    left_out = NOT_PER_TOKEN + (NOT_NEEDED if lean else ())
    weights = [(k, p) for k, p in network.named_parameters() if p.ndim == 2]
    return sum(p.numel() for k, p in weights if not any(part in k for part in left_out))


def forward_flops(network: nn.Module, tokens: int, keys: int | None = None, lean: bool = False) -> float:
    """FLOPs of one sample: two per weight and token, and the two products of attention."""
    config: Any = network.config
    width = config.num_attention_heads * config.attention_head_dim
    attention = 4 * config.num_layers * width * tokens * (tokens if keys is None else keys)
    return 2 * token_parameters(network, lean) * tokens + attention


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of the machine."""

    flops: float  # per second, for a large matrix product
    bytes: float  # per second, read and written, for a large copy

    def floor_ms(self, flops: float, n_bytes: float) -> float:
        """The shortest possible time."""
        return 1000 * max(flops / self.flops, n_bytes / self.bytes)


def text_width_of(config: PolicyConfig) -> int:
    """The width of a token of the instruction."""
    network = config.network
    return network.crossattn_proj_in_channels if network.use_crossattn_projection else network.text_embed_dim


def synthetic(model: WorldActionModel, n: int, device: torch.device) -> Batch:
    """A batch of random slots, all present, with one text token."""
    values = {s.name: torch.randn(n, *model.shape(s), device=device) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool, device=device)
    text = torch.randn(n, 1, text_width_of(model.config), device=device)
    weight = torch.ones(n, model.layout["action"].width, device=device)
    return Batch(values, present, text, weight)


def packages(*names: str) -> dict[str, str]:
    """Versions of the installed packages among these."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
