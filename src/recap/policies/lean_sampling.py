"""Sampling from a large Cosmos network on a GPU: less computation, equal up to rounding.

Values of a slot are computed once per slot, and values of a step once per chunk. The last block computes no
output for given slots. Blocks are compiled, and a chunk is one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from recap.policies.config import SamplingConfig
from recap.policies.lean import fast_attention
from recap.policies.model import Batch
from recap.policies.network import with_coordinates
from recap.policies.wam import WorldActionModel

LARGE = 200_000_000  # parameters; for a smaller network, compiling takes longer than it saves
EPSILON = 1e-6  # of every norm of the network


@torch.library.custom_op("recap::linear_gelu", mutates_args=())
def linear_gelu(x: Tensor, weight: Tensor) -> Tensor:
    """A linear layer with GELU, in one kernel on a GPU.

    That kernel uses the tanh form. Its difference from the exact form is a tenth of rounding to 16 bits.
    """
    if x.device.type != "cuda":
        return functional.gelu(functional.linear(x, weight))
    flat = x.reshape(-1, x.shape[-1])
    nothing = torch.zeros(len(weight), dtype=x.dtype, device=x.device)
    found: Tensor = torch._addmm_activation(nothing, flat, weight.t(), use_gelu=True)
    return found.view(*x.shape[:-1], -1)


@linear_gelu.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(weight))


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    scaled = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPSILON)
    return scaled.to(weight.dtype) * weight


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions."""
    a, b = x.chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-b, a], dim=-1).float() * sin).to(x.dtype)


def _modulated(x: Tensor, modulation: Tensor) -> Tensor:
    """Normalise tokens (B, S, C), then shift and scale them by their slots' modulation (B, T, 2C or 3C)."""
    c = x.shape[-1]
    shift, scale = _spread(modulation[..., :c], x), _spread(modulation[..., c : 2 * c], x)
    return functional.layer_norm(x, (c,), eps=EPSILON) * (1 + scale) + shift


def _spread(per_slot: Tensor, x: Tensor) -> Tensor:
    """Repeat (B, T, C) for the tokens of x (B, S, C)."""
    b, s, c = x.shape
    n = per_slot.shape[1]
    return per_slot[:, :, None].expand(-1, -1, s // n, -1).reshape(b, s, c)


def lean_block(
    x: Tensor,
    normed: Tensor,
    weights: tuple[Tensor, ...],
    modulation: tuple[Tensor, ...],
    cross: Tensor,
    rotation: tuple[Tensor, Tensor],
    n_heads: int,
    n_kept: int,
) -> tuple[Tensor, Tensor]:
    """One block: its tokens, and these normalised for the next block.

    Args:
        x: (B, S, C); `normed` is x normalised for this block.
        modulation: (B, T, 3C) each, of self-attention, cross-attention, MLP and the next block.
        cross: (B, 1, C) the output of cross-attention, for every token.
        n_kept: number of last slots that are needed after the attention.
    """
    qkv, norm_q, norm_k, out, up, down = weights
    c = x.shape[-1]
    per_slot = x.shape[1] // modulation[0].shape[1]
    q, k, v = (
        part.view(*part.shape[:2], n_heads, -1).transpose(1, 2)
        for part in functional.linear(normed, qkv).chunk(3, dim=-1)
    )
    q, k = _rotate(_rms(q, norm_q), *rotation), _rotate(_rms(k, norm_k), *rotation)
    q, x = q[..., -n_kept * per_slot :, :], x[:, -n_kept * per_slot :]
    first, second, third, following = (m[:, -n_kept:] for m in modulation)
    found = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2, 3)
    x = x + _spread(first[..., 2 * c :], x) * functional.linear(found, out)
    x = x + _spread(second[..., 2 * c :], x) * cross
    made = functional.linear(linear_gelu(_modulated(x, third), up), down)
    x = x + _spread(third[..., 2 * c :], x) * made
    return x, _modulated(x, following)


@dataclass(frozen=True)
class _Graph:
    """The CUDA graph of one chunk, with its inputs and outputs."""

    replay: Callable[[], None]
    batch: Batch
    noise: dict[str, Tensor]
    found: dict[str, Tensor]


class LeanSampler:
    """Samples chunks from a world-action model with an instruction of one token; copies the weights.

    Args:
        dtype: of the copied weights.
        compiled: compile blocks, and capture each chunk as a CUDA graph; only on a GPU.
    """

    def __init__(self, model: WorldActionModel, dtype: torch.dtype, *, compiled: bool = False) -> None:
        self.model, self.dtype, self.compiled = model, dtype, compiled
        self._network: Any = model.network
        self._like: Tensor = cast(Any, model.network).proj_out.weight  # has the network's device and dtype
        self.n_heads = model.sizes.num_attention_heads
        slots = model.layout.slots
        self.n_given = sum(not slot.denoised for slot in slots)
        assert not any(slot.denoised for slot in slots[: self.n_given])  # the given slots come first
        made = partial(torch.compile, dynamic=False) if compiled else (lambda part: part)
        self.block: Any = made(lean_block)
        self._enter: Any = made(self._to_tokens)
        self._leave: Any = made(self._to_velocities)
        self._graphs: dict[int, _Graph] = {}
        self._copy_weights()

    @classmethod
    def of(cls, model: WorldActionModel) -> LeanSampler:
        """A sampler for the model: in 16 bits and compiled if it is large and on a GPU."""
        large = sum(p.numel() for p in model.network.parameters()) >= LARGE
        if large and next(model.parameters()).is_cuda:
            return cls(model, torch.bfloat16, compiled=True)
        return cls(model, next(model.parameters()).dtype)

    def _copy_weights(self) -> None:
        network, dtype = self._network, self.dtype

        def own(*weights: Tensor) -> Tensor:
            return torch.cat([w.detach() for w in weights]).to(dtype)

        self.weights, ones, twos, both = [], [], [], []
        for block in network.transformer_blocks:
            a, norms = block.attn1, (block.norm1, block.norm2, block.norm3)
            qkv = own(a.to_q.weight, a.to_k.weight, a.to_v.weight)
            last = (a.to_out[0].weight, block.ff.net[0].proj.weight, block.ff.net[2].weight)
            self.weights.append((qkv, own(a.norm_q.weight), own(a.norm_k.weight), *map(own, last)))
            ones += [own(norm.linear_1.weight).t() for norm in norms]
            twos += [own(norm.linear_2.weight).t() for norm in norms]
            both.append(own(block.attn2.to_v.weight.t() @ block.attn2.to_out[0].weight.t()))
        self.one, self.two = torch.stack(ones), torch.stack(twos)  # (3L, C, r), (3L, r, 3C)
        self.cross = torch.stack(both)  # (L, d, C)
        layout = self.model.layout
        shape = (1, 1, len(layout.slots), layout.size, layout.size)
        self.rotation: tuple[Tensor, Tensor] = network.rope(torch.empty(shape, device=self._like.device))
        if self.model.sizes.use_crossattn_projection:
            first = network.crossattn_proj[0]
            self.text = own(first.weight), own(first.bias)
        end = network.norm_out
        self.last_one, self.last_two = own(end.linear_1.weight).t(), own(end.linear_2.weight).t()
        self.last = own(network.proj_out.weight)

    @torch.inference_mode()
    def __call__(self, batch: Batch, noise: dict[str, Tensor], config: SamplingConfig) -> dict[str, Tensor]:
        """Like `SlotModel.sample`."""
        if config.sampler != "euler" or batch.text.shape[1] != 1 or batch.acted is not None:
            return self.model.sample(batch, noise, config)
        start = {name: value * config.temperature for name, value in noise.items()}
        denoise = self._one_by_one if self.compiled else self.denoise
        found = denoise(batch, start, config.n_steps)
        for slot in self.model.denoised:
            origin = self.model.origin_of(batch, slot)
            if isinstance(origin, Tensor):
                scale = self.model.scale_of(slot, origin.device)
                found[slot.name] = found[slot.name] * scale + origin
        return found

    def _one_by_one(self, batch: Batch, noise: dict[str, Tensor], n_steps: int) -> dict[str, Tensor]:
        """Sample chunks one by one: one keeps a large network busy, and a single graph is enough."""
        rows = []
        for i in range(len(batch)):
            one = slice(i, i + 1)
            own = {name: value[one] for name, value in noise.items()}
            rows.append(self._replay(batch.each(itemgetter(one)), own, n_steps))
        return (
            rows[0] if len(rows) == 1 else {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
        )

    def _replay(self, batch: Batch, noise: dict[str, Tensor], n_steps: int) -> dict[str, Tensor]:
        """Sample one chunk by the graph for this number of steps, which is captured on first use."""
        if n_steps not in self._graphs:
            self._graphs[n_steps] = self._capture(batch, noise, n_steps)
        graph = self._graphs[n_steps]
        given = list(batch.values)
        torch._foreach_copy_(
            [*(graph.batch.values[name] for name in given), graph.batch.text, *graph.noise.values()],
            [*(batch.values[name] for name in given), batch.text, *(noise[name] for name in graph.noise)],
        )
        graph.batch.present.copy_(batch.present)
        graph.replay()
        return {name: value.clone() for name, value in graph.found.items()}

    def _capture(self, batch: Batch, noise: dict[str, Tensor], n_steps: int) -> _Graph:
        own = batch.each(torch.clone)
        start = {name: value.clone() for name, value in noise.items()}
        with fast_attention():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):  # compiles, and lets the libraries select kernels
                    self.denoise(own, start, n_steps)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = self.denoise(own, start, n_steps)
        return _Graph(graph.replay, own, start, found)

    def denoise(self, batch: Batch, noise: dict[str, Tensor], n_steps: int) -> dict[str, Tensor]:
        """Euler steps from noise."""
        model, n_given = self.model, self.n_given
        steps = torch.linspace(1, 0, n_steps + 1).tolist()
        frames, given, levels = model.assemble(batch, noise, torch.ones(len(batch), device=self.one.device))
        modulation, last = self._modulations(levels, steps[:-1])
        crosses = self._crosses(batch)
        fixed = self._embed(frames[:, :, :n_given], given[:, :n_given])
        beside = frames[:, model.layout.channels :, n_given:]  # the same at every step; may have no channels
        moving = dict(noise)
        for i, (at, following) in enumerate(pairwise(steps)):
            here = [*modulation[:, i], last[i]]
            x, normed = self._enter(moving, fixed, beside, here[0])
            for j, weights in enumerate(self.weights):
                final = j == len(self.weights) - 1
                x, normed = self.block(
                    x,
                    normed,
                    weights,
                    tuple(here[3 * j : 3 * j + 4]),
                    crosses[j],
                    self.rotation,
                    self.n_heads,
                    len(model.denoised) if final else here[0].shape[1],
                )
            now = torch.full((1, 1, 1, 1), at, device=self._like.device)
            for name, output in self._leave(normed).items():
                image = model.layout[name].kind == "image"
                velocity = model.velocity_of(output, moving[name], now) if image else output
                moving[name] = moving[name] + (following - at) * velocity
        return moving

    def _to_tokens(
        self, moving: dict[str, Tensor], fixed: Tensor, beside: Tensor, modulation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The tokens of given and denoised slots, and these normalised for the first block."""
        layout = self.model.layout
        parts = [
            layout.write(moving[s.name]) if s.kind == "vector" else moving[s.name]
            for s in self.model.denoised
        ]
        frames = torch.cat([torch.stack(parts, dim=2), beside], dim=1)
        x = torch.cat([fixed, self._embed(frames, frames.new_zeros(len(frames), len(parts)))], dim=1)
        return x, _modulated(x, modulation)

    def _to_velocities(self, normed: Tensor) -> dict[str, Tensor]:
        """The network's output for each denoised slot, from the last block's tokens."""
        layout, slots = self.model.layout, self.model.denoised
        side = layout.size // layout.patch
        tokens = functional.linear(normed, self.last)
        grid = tokens.view(len(tokens), len(slots), side, side, layout.patch, layout.patch, -1)
        frames = (
            grid.permute(1, 0, 6, 2, 4, 3, 5).reshape(len(slots), len(tokens), -1, *[layout.size] * 2).float()
        )
        return {
            slot.name: frame if slot.kind == "image" else layout.read(frame, slot.width)
            for slot, frame in zip(slots, frames, strict=True)
        }

    def _modulations(self, levels: Tensor, steps: list[float]) -> tuple[Tensor, Tensor]:
        """Modulation at each step: (3L, n, B, T, 3C) for the blocks, (n, B, T, 2C) for the last layer."""
        network = self._network
        each = levels.repeat(len(steps), 1, 1)
        for i, at in enumerate(steps):
            each[i, :, self.n_given :] = at
        flat = (each * self.model.sizes.time_scale).flatten()
        shift, embedded = network.time_embed(self._like, flat)
        shift, embedded = shift.to(self.dtype), functional.silu(embedded.to(self.dtype))
        made = torch.bmm(torch.bmm(embedded.expand(len(self.one), -1, -1), self.one), self.two) + shift
        out = embedded @ self.last_one @ self.last_two
        out = out + shift[:, : out.shape[-1]]
        return made.view(len(made), *each.shape, -1), out.view(*each.shape, -1)

    def _crosses(self, batch: Batch) -> Tensor:
        """The output of cross-attention to the one token: (L, B, 1, C)."""
        text = batch.text[:, 0].to(self.dtype)
        if self.model.sizes.use_crossattn_projection:
            text = functional.gelu(functional.linear(text, *self.text))
        return torch.bmm(text.expand(len(self.cross), -1, -1), self.cross)[:, :, None]

    def _embed(self, frames: Tensor, given: Tensor) -> Tensor:
        """Latent frames (B, c, T, h, w) as tokens, with the mask channels of `call_network`."""
        b, _, t, h, w = frames.shape
        mask = given.to(frames.dtype)[:, None, :, None, None].expand(b, 1, t, h, w)
        parts = [with_coordinates(frames) if self.model.sizes.coordinates else frames, mask]
        if self.model.sizes.concat_padding_mask:
            parts.append(torch.zeros_like(mask))
        tokens: Tensor = self._network.patch_embed(torch.cat(parts, dim=1).to(self._like.dtype))
        return tokens.flatten(1, 3).to(self.dtype)
