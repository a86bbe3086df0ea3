"""What no version can beat: operations over the matrix rate, bytes over the copy rate."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from recap.policies.config import PolicyConfig
from recap.policies.model import Batch
from recap.policies.wam import WorldActionModel

NOMINAL = 989e12  # FLOP/s in bf16, by the H200's datasheet
N_STEPS = 5
# What is applied to the instruction or to a slot's noise level, not to every token.
NOT_PER_TOKEN = ("crossattn_proj", "time_embed", "attn2.to_k", "attn2.to_v")
# What need not be either: a slot has one modulation, and to one token of text all attend alike.
NOT_NEEDED = ("norm1.", "norm2.", "norm3.", "norm_out.", "attn2.")


def token_parameters(network: nn.Module, lean: bool = False) -> int:
    """Weights that every token is multiplied with."""
    left_out = NOT_PER_TOKEN + (NOT_NEEDED if lean else ())
    weights = [(k, p) for k, p in network.named_parameters() if p.ndim == 2]
    return sum(p.numel() for k, p in weights if not any(part in k for part in left_out))


def forward_flops(network: nn.Module, tokens: int, keys: int | None = None, lean: bool = False) -> float:
    """Of one sample: two operations a weight and token, and the attention's two products."""
    config: Any = network.config
    width = config.num_attention_heads * config.attention_head_dim
    attention = 4 * config.num_layers * width * tokens * (tokens if keys is None else keys)
    return 2 * token_parameters(network, lean) * tokens + attention


@dataclass(frozen=True)
class Ceilings:
    """What the machine was measured to do."""

    flops: float  # a second, of a large matrix product
    bytes: float  # a second, read and written, of a large copy

    def floor_ms(self, flops: float, n_bytes: float) -> float:
        """No version takes less."""
        return 1000 * max(flops / self.flops, n_bytes / self.bytes)


def text_width_of(config: PolicyConfig) -> int:
    """Of a token of the instruction."""
    network = config.network
    return network.crossattn_proj_in_channels if network.use_crossattn_projection else network.text_embed_dim


def synthetic(model: WorldActionModel, n: int, device: torch.device) -> Batch:
    """Random slots, all present, and one token of text."""
    values = {s.name: torch.randn(n, *model.shape(s), device=device) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool, device=device)
    text = torch.randn(n, 1, text_width_of(model.config), device=device)
    weight = torch.ones(n, model.layout["action"].width, device=device)
    return Batch(values, present, text, weight)


def packages(*names: str) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
