"""The differences of π0.5 from π0: the time step modulates the expert's norms, and the state is text.

transformers contains only π0. Its vision tower, its prefix and the expert's attention are used unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recap.features.pretrained import find_model
from recap.policies.network import load_strictly, read_weights
from recap_pi0.config import Pi0NetworkConfig
from recap_pi0.pi0 import build_pi0, published_names

N_BINS = 256  # bins of each number of the state
SPAN = 7 / 3  # the bins reach so many deviations on each side
NAMES = ((r"^paligemma_with_expert\.gemma_expert\.lm_head\..*", ""),)  # the expert has no word embeddings


@dataclass(frozen=True)
class Velocity:
    """The predicted velocity, in the form that transformers returns."""

    logits: Tensor


class AdaptiveNorm(nn.Module):
    """RMSNorm with scale, shift and gate from the time step."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.dense = nn.Linear(width, 3 * width)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised tokens (B, S, C), and the gate for the output of the next block."""
        scale, shift, gate = self.dense(condition)[:, None].chunk(3, dim=-1)
        normed = functional.rms_norm(x.float(), x.shape[-1:], eps=self.eps)
        return (normed * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class AdaptiveLayer(nn.Module):
    """A layer of the action expert, with the stock attention and MLP."""

    def __init__(self, stock: Any, eps: float) -> None:
        super().__init__()
        self.self_attn, self.mlp = stock.self_attn, stock.mlp
        self.input_layernorm = AdaptiveNorm(stock.hidden_size, eps)
        self.post_attention_layernorm = AdaptiveNorm(stock.hidden_size, eps)

    def forward(self, x: Tensor, condition: Tensor, **attention: Any) -> Tensor:
        """Tokens (B, S, C); `attention` holds the other arguments of the stock attention."""
        normed, gate = self.input_layernorm(x, condition)
        x = x + gate * self.self_attn(hidden_states=normed, **attention)[0]
        normed, gate = self.post_attention_layernorm(x, condition)
        found: Tensor = x + gate * self.mlp(normed)
        return found


class Pi05(nn.Module):
    """π0's prefix, with an action expert that the time step modulates."""

    def __init__(self, config: Pi0NetworkConfig, image_size: int, chunk_size: int) -> None:
        super().__init__()
        stock: Any = build_pi0(config, image_size, chunk_size)
        expert, width = stock.model.dit, config.expert_dim
        eps = expert.config.rms_norm_eps
        expert.layers = nn.ModuleList([AdaptiveLayer(layer, eps) for layer in expert.layers])
        expert.norm = AdaptiveNorm(width, eps)
        expert.embed_tokens = None
        self.model = stock.model
        self.sinusoid_embeds = stock.embed_action_time.sinusoid_embeds
        self.action_in_proj = nn.Linear(config.max_action_dim, width)
        self.time_mlp_in, self.time_mlp_out = nn.Linear(width, width), nn.Linear(width, width)
        self.action_out_proj = nn.Linear(width, config.max_action_dim)

    def forward(
        self, noise: Tensor, timestep: Tensor, attention_mask: Tensor, past_key_values: Any
    ) -> Velocity:
        """The velocity of noisy actions (B, H, a); the mask (B, P) marks the tokens of the prefix."""
        expert, horizon = self.model.dit, noise.shape[1]
        x = self.action_in_proj(noise)
        time = self.sinusoid_embeds(timestep).to(x.dtype)
        condition = functional.silu(self.time_mlp_out(functional.silu(self.time_mlp_in(time))))
        there = functional.pad(attention_mask, (0, horizon), value=1)  # every action attends to all others
        places = (there.cumsum(1) - 1)[:, -horizon:]
        given = {
            "attention_mask": there.bool()[:, None, None].expand(-1, 1, horizon, -1),
            "position_ids": places,
            "past_key_values": past_key_values,
            "position_embeddings": expert.rotary_emb(x, position_ids=places),
        }
        for layer in expert.layers:
            x = layer(x, condition, **given)
        return Velocity(self.action_out_proj(expert.norm(x, condition)[0]))


def load_pretrained_pi05(network: nn.Module, source: str) -> None:
    """Load published weights of π0.5, strictly, from a directory or a hub name."""
    found = read_weights(find_model(source, "π0.5 network"))
    load_strictly(network, published_names(found, NAMES), source)


def state_words(encode: Callable[[str], list[int]]) -> tuple[Tensor, Tensor]:
    """Ids (256, L) of each bin's number, padded with -1, and ids (K,) of the text after the state."""
    rows = [encode(f" {i}") for i in range(N_BINS)]
    longest = max(map(len, rows))
    table = torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
    return table, torch.tensor(encode(";\nAction: "))


def state_bins(state: Tensor) -> Tensor:
    """The bin of each number of a normalised state."""
    return ((state / SPAN + 1) * (N_BINS / 2)).floor().clamp(0, N_BINS - 1).long()
