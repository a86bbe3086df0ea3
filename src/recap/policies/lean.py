"""The Cosmos network without redundant computation: same weights, same names, equal up to rounding.

A slot has one noise level, so the modulation of all its tokens is the same. With an instruction of one
token, cross-attention gives every query the same result. diffusers computes both for every token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class SlotNorm(nn.Module):
    """Replaces a block's adaptive norm: computes the modulation once per slot, for all its tokens."""

    per_slot: int
    norm: nn.Module
    activation: nn.Module
    linear_1: nn.Module
    linear_2: nn.Module

    def forward(
        self, hidden_states: Tensor, embedded_timestep: Tensor, temb: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The modulated tokens (B, S, C), and the gate of the sublayer's output."""
        few = self.linear_2(self.linear_1(self.activation(embedded_timestep[:, :: self.per_slot])))
        if temb is not None:
            few = few + temb[:, :: self.per_slot]
        b, s, _ = hidden_states.shape
        wide = few[:, :, None].expand(-1, -1, self.per_slot, -1).reshape(b, s, -1)
        shift, scale, gate = wide.chunk(3, dim=-1)
        return self.norm(hidden_states) * (1 + scale) + shift, gate


class OneToken:
    """Cross-attention to one token is its value, for any query; more tokens use the stock processor."""

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Tensor:
        if encoder_hidden_states.shape[1] != 1 or attention_mask is not None:
            found: Tensor = self.stock(
                attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb
            )
            return found
        value: Tensor = attn.to_out[0](attn.to_v(encoder_hidden_states))
        return value  # (B, 1, C), for every token


def make_lean(network: nn.Module, per_slot: int) -> None:
    """Replace redundant computation in the network, for slots of `per_slot` tokens."""
    blocks: Any = network.transformer_blocks
    for block in blocks:
        for norm in (block.norm1, block.norm2, block.norm3):
            norm.__class__ = SlotNorm
            norm.per_slot = per_slot
        block.attn2.set_processor(OneToken(block.attn2.processor))


@contextmanager
def fast_attention() -> Iterator[None]:
    """Prefer attention kernels in the order of their speed on current GPUs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    with sdpa_kernel([getattr(SDPBackend, name) for name in order], set_priority=True):
        yield
