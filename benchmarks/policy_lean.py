"""The 2B network without what it repeats: one modulation a slot, one token of text as a constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recap.policies.model import Batch
from recap.policies.wam import WorldActionModel


class InHalf(nn.Module):
    """A network of 16-bit weights for a model whose slots are float32; text projected already if told so."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.text: Tensor | None = None

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        condition_mask: Tensor,
        return_dict: bool = False,
    ) -> tuple[Tensor, ...]:
        kind = torch.bfloat16
        text = encoder_hidden_states.to(kind) if self.text is None else self.text
        found: tuple[Tensor, ...] = self.network(
            hidden_states=hidden_states.to(kind),
            timestep=timestep,
            encoder_hidden_states=text,
            condition_mask=condition_mask.to(kind),
            return_dict=return_dict,
        )
        return found

    @contextmanager
    def projected(self, text: Tensor) -> Iterator[None]:
        """The instruction's projection done once, outside the steps."""
        inner: Any = self.network
        self.text = inner.crossattn_proj(text.to(torch.bfloat16))
        inner.register_to_config(use_crossattn_projection=False)
        try:
            yield
        finally:
            inner.register_to_config(use_crossattn_projection=True)
            self.text = None


def linear(x: Tensor, weight: Any) -> Tensor:
    """A product with a weight (out, in) in 16 bits, or with one in 8 bits and its scales a row."""
    if isinstance(weight, Tensor):
        return functional.linear(x, weight)
    eight, scale = weight
    flat = x.reshape(-1, x.shape[-1])
    own = (flat.abs().amax(dim=1, keepdim=True).float() / 448).clamp_min(1e-12)
    small = (flat.float() / own).clamp(-448, 448).to(torch.float8_e4m3fn)
    if x.device.type == "cpu":  # a rehearsal
        out = ((small.float() * own) @ (eight.float() * scale.t()).t()).to(x.dtype)
    else:
        out = torch._scaled_mm(
            small, eight.t(), scale_a=own, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    return out.reshape(*x.shape[:-1], out.shape[-1])


def in_eight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (out, in) in 8 bits, and its scales (1, out)."""
    scale = (weight.abs().amax(dim=1, keepdim=True).float() / 448).clamp_min(1e-12)
    return (weight.float() / scale).to(torch.float8_e4m3fn), scale.t().contiguous()


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """As diffusers has it."""
    scaled = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return scaled.to(weight.dtype) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, as diffusers has them."""
    a, b = x.chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-b, a], dim=-1).float() * sin).to(x.dtype)


def lean_block(
    x: Tensor,
    weights: tuple[Any, ...],
    modulation: tuple[Tensor, ...],
    cross: Tensor,
    cos: Tensor,
    sin: Tensor,
    past: tuple[Tensor, Tensor] | None,
    n_heads: int,
    n_kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """A block whose modulation comes a slot, and whose cross-attention to one token is a constant.

    Args:
        x: (B, S, C).
        modulation: three of (B, T, 3C), before self-attention, cross-attention and the MLP.
        cross: (B, 1, C) what cross-attention gives to every token.
        past: keys and values of tokens before these.
        n_kept: slots, the last ones, that are needed after the attention.
    """
    qkv, norm_q, norm_k, out, up, down = weights
    b, s, c = x.shape
    per_slot = s // modulation[0].shape[1]

    def shaped(m: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        shift, scale, gate = m[:, -n:].chunk(3, dim=-1)
        wide = [
            v[:, :, None].expand(-1, -1, per_slot, -1).reshape(b, n * per_slot, c)
            for v in (shift, scale, gate)
        ]
        return wide[0], wide[1], wide[2]

    n_slots = s // per_slot
    shift, scale, gate = shaped(modulation[0], n_slots)
    normed = functional.layer_norm(x, (c,), eps=1e-6) * (1 + scale) + shift
    q, k, v = (
        part.unflatten(2, (n_heads, -1)).transpose(1, 2) for part in linear(normed, qkv).chunk(3, dim=-1)
    )
    q, k = rotate(rms(q, norm_q), cos, sin), rotate(rms(k, norm_k), cos, sin)
    if n_kept < n_slots:
        q, x, gate = (part[..., -n_kept * per_slot :, :] for part in (q, x, gate))
    keys, values = (k, v) if past is None else (torch.cat([past[0], k], 2), torch.cat([past[1], v], 2))
    found = functional.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2, 3)
    x = x + gate * linear(found, out)
    _, _, gate = shaped(modulation[1], n_kept)
    x = x + gate * cross
    shift, scale, gate = shaped(modulation[2], n_kept)
    normed = functional.layer_norm(x, (c,), eps=1e-6) * (1 + scale) + shift
    return x + gate * linear(functional.gelu(linear(normed, up)), down), k, v


class Lean:
    """The same network with what need not be computed left out; equal up to rounding for one token of text.

    Left out: the modulation of every token but one a slot; queries, keys and outputs of cross-attention to
    one token; what the last block and the last layer make of slots that are not denoised. The instruction,
    the modulation of all steps and the embedding of the given slots are computed once a chunk.
    """

    def __init__(self, model: WorldActionModel, network: Any, block: Any, *, eight: bool = False) -> None:
        self.model, self.network, self.block = model, network, block
        self.n_heads: int = network.config.num_attention_heads
        turn = in_eight if eight else (lambda w: w)
        self.weights, ones, twos = [], [], []
        for part in network.transformer_blocks:
            a = part.attn1
            qkv = torch.cat([a.to_q.weight, a.to_k.weight, a.to_v.weight])
            up, down = part.ff.net[0].proj.weight, part.ff.net[2].weight
            big = [turn(w.detach()) for w in (qkv, a.to_out[0].weight, up, down)]
            self.weights.append((big[0], a.norm_q.weight, a.norm_k.weight, *big[1:]))
            norms = (part.norm1, part.norm2, part.norm3)
            ones += [norm.linear_1.weight.t() for norm in norms]
            twos += [norm.linear_2.weight.t() for norm in norms]
        self.one, self.two = torch.stack(ones).detach(), torch.stack(twos).detach()  # (3L, C, r), (3L, r, 3C)
        slots = model.layout.slots
        self.n_given = sum(not s.denoised for s in slots)
        assert not any(s.denoised for s in slots[: self.n_given])  # the denoised ones come last

    def embed(self, frames: Tensor, given: Tensor) -> Tensor:
        """Latent frames (B, c, T, h, w) as tokens, with the mask channels of `call_network`."""
        b, _, t, h, w = frames.shape
        mask = given.to(frames.dtype)[:, None, :, None, None].expand(b, 1, t, h, w)
        parts = [frames, mask]
        if self.model.config.network.concat_padding_mask:
            parts.append(torch.zeros_like(mask))
        whole = torch.cat(parts, dim=1).to(self.one.dtype)
        tokens: Tensor = self.network.patch_embed(whole).flatten(1, 3)
        return tokens

    def modulate(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Of noise levels (n, B, T): (3L, n, B, T, 3C) for the blocks, (n, B, T, 2C) for the last layer."""
        shape = levels.shape
        scale = self.model.config.network.time_scale
        shift, embedded = self.network.time_embed(self.one, (levels * scale).flatten())
        made = (
            torch.bmm(torch.bmm(functional.silu(embedded).expand(len(self.one), -1, -1), self.one), self.two)
            + shift
        )
        last = self.network.norm_out
        out = last.linear_2(last.linear_1(functional.silu(embedded)))
        out = out + shift[:, : out.shape[-1]]
        return made.view(len(made), *shape, -1), out.view(*shape, -1)

    def finish(self, x: Tensor, modulation: Tensor) -> Tensor:
        """Tokens of the last slots as latent frames (B, c, n, h, w)."""
        shift, scale = modulation.chunk(2, dim=-1)
        b, n, c = len(x), modulation.shape[1], x.shape[-1]
        normed = functional.layer_norm(x, (c,), eps=1e-6).view(b, n, -1, c)
        tokens = self.network.proj_out(normed * (1 + scale[:, :, None]) + shift[:, :, None])
        patch, size = self.model.layout.patch, self.model.layout.size
        grid = tokens.view(b, n, size // patch, size // patch, patch, patch, -1)
        return grid.permute(0, 6, 1, 2, 4, 3, 5).reshape(b, -1, n, size, size)

    def sample(self, batch: Batch, noise: dict[str, Tensor], n_steps: int, cached: bool) -> dict[str, Tensor]:
        """Euler steps; `cached` computes the given slots in the first step only, which is not exact."""
        model, network = self.model, self.network
        n, device = len(batch), batch.present.device
        text = batch.text.to(self.one.dtype)
        if network.config.use_crossattn_projection:
            text = network.crossattn_proj(text)
        crosses = [b.attn2.to_out[0](b.attn2.to_v(text)) for b in network.transformer_blocks]
        steps = torch.linspace(1, 0, n_steps + 1).tolist()
        ones = torch.ones(n, device=device)
        frames, given, levels = model.assemble(batch, noise, ones)
        n_given, n_moving = self.n_given, len(model.layout.slots) - self.n_given
        each = []
        for at in steps[:-1]:
            here = levels.clone()
            here[:, n_given:] = at
            each.append(here)
        modulation, last = self.modulate(torch.stack(each))
        cos, sin = network.rope(frames)
        fixed = self.embed(frames[:, :, :n_given], given[:, :n_given])
        per_slot = fixed.shape[1] // n_given
        moving, pasts = dict(noise), []
        for i, (at, following) in enumerate(pairwise(steps)):
            parts = [
                model.layout.write(moving[s.name]) if s.kind == "vector" else moving[s.name]
                for s in model.denoised
            ]
            x = self.embed(torch.stack(parts, dim=2), torch.zeros(n, n_moving, device=device))
            again = cached and i > 0
            first = n_given if again else 0
            if not again:
                x = torch.cat([fixed, x], dim=1)
            for j, weights in enumerate(self.weights):
                mods = tuple(modulation[3 * j + k, i, :, first:] for k in range(3))
                final = j == len(self.weights) - 1
                kept = n_moving if final or again else n_given + n_moving
                x, k, v = self.block(
                    x,
                    weights,
                    mods,
                    crosses[j],
                    cos[first * per_slot :],
                    sin[first * per_slot :],
                    pasts[j] if again else None,
                    self.n_heads,
                    kept,
                )
                if cached and i == 0:
                    pasts.append((k[:, :, : n_given * per_slot], v[:, :, : n_given * per_slot]))
            out = self.finish(x, last[i, :, n_given:]).float()
            for k, slot in enumerate(model.denoised):
                found = out[:, :, k] if slot.kind == "image" else model.layout.read(out[:, :, k], slot.width)
                moving[slot.name] = moving[slot.name] + (following - at) * found
        return moving


class SlotNorm(nn.Module):
    """Stands in for a block's norm: the modulation of one token a slot, spread over the slot."""

    per_slot: int
    norm: nn.Module
    activation: nn.Module
    linear_1: nn.Module
    linear_2: nn.Module

    def forward(
        self, hidden_states: Tensor, embedded_timestep: Tensor, temb: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        few = self.linear_2(self.linear_1(self.activation(embedded_timestep[:, :: self.per_slot])))
        if temb is not None:
            few = few + temb[:, :: self.per_slot]
        b, s, _ = hidden_states.shape
        wide = few[:, :, None].expand(-1, -1, self.per_slot, -1).reshape(b, s, -1)
        shift, scale, gate = wide.chunk(3, dim=-1)
        return self.norm(hidden_states) * (1 + scale) + shift, gate


class OneToken:
    """Cross-attention to one token: its value, whatever the query."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Tensor | None = None,
    ) -> Tensor:
        assert encoder_hidden_states is not None
        found: Tensor = attn.to_out[0](attn.to_v(encoder_hidden_states))
        return found


def make_lean(network: Any, per_slot: int) -> None:
    """The network as it is trained, without what need not be computed for one token of text."""
    for block in network.transformer_blocks:
        for norm in (block.norm1, block.norm2, block.norm3):
            norm.__class__ = SlotNorm
            norm.per_slot = per_slot
        block.attn2.set_processor(OneToken())
