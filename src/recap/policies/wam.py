"""The world-action model: one sequence of latent frames in which action and future are denoised together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.flow import noisy, solve, velocity
from recap.policies.layout import Layout, Slot, build_layout
from recap.policies.network import build_network, call_network

CLEAN_LEVEL = 1e-4  # the noise level that a clean slot is said to have


@dataclass(frozen=True)
class Batch:
    """Normalised slots of some samples."""

    values: dict[str, Tensor]  # slot -> (B, width) or (B, c, h, w); denoised ones only for training
    present: Tensor  # (B, T) false where a conditioning slot holds nothing
    text: Tensor  # (B, L, d)
    weight: Tensor | None = None  # (B, width of action) what of the action counts in the loss

    def __len__(self) -> int:
        return len(self.text)


class WorldActionModel(nn.Module):
    """The network with its table of slots."""

    def __init__(self, config: PolicyConfig, network: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.layout: Layout = build_layout(config)
        self.network = build_network(config.network, config.image.channels) if network is None else network

    @property
    def denoised(self) -> tuple[Slot, ...]:
        """The slots that are predicted."""
        return tuple(slot for slot in self.layout.slots if slot.denoised)

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """Of one value of the slot."""
        layout = self.layout
        return (slot.width,) if slot.kind == "vector" else (layout.channels, layout.size, layout.size)

    def forward(self, batch: Batch, moving: dict[str, Tensor], level: Tensor) -> dict[str, Tensor]:
        """The velocity of each denoised slot.

        Args:
            moving: denoised slot -> its value now, at noise level `level` (B,).
        """
        frames, given, levels = self.assemble(batch, moving, level)
        out = call_network(
            self.network, self.config.network, frames, given, levels, batch.text.to(frames.dtype)
        )
        found: dict[str, Tensor] = {}
        for slot in self.denoised:
            frame = out[:, :, self.layout.index(slot.name)].float()
            found[slot.name] = frame if slot.kind == "image" else self.layout.read(frame, slot.width)
        return found

    def assemble(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sequence (B, c, T, h, w), which slots are given (B, T), and their noise levels (B, T).

        A conditioning slot that is absent is not zeros in disguise: it is marked as not given, at full noise.
        """
        frames, given, levels = [], [], []
        for i, slot in enumerate(self.layout.slots):
            if slot.denoised:
                value = moving[slot.name]
                here, at = torch.zeros_like(level), level
            else:
                here = batch.present[:, i].to(level.dtype)
                value = batch.values[slot.name]
                value = value * here.view(-1, *[1] * (value.ndim - 1))
                at = torch.where(
                    batch.present[:, i], torch.full_like(level, CLEAN_LEVEL), torch.ones_like(level)
                )
            frames.append(self.layout.write(value) if slot.kind == "vector" else value)
            given.append(here)
            levels.append(at)
        return torch.stack(frames, dim=2), torch.stack(given, dim=1), torch.stack(levels, dim=1)

    def draw_noise(
        self, n: int, generator: torch.Generator | None, device: torch.device
    ) -> dict[str, Tensor]:
        """Noise for each denoised slot; of a vector it is drawn once, and written like the vector itself."""
        return {
            slot.name: torch.randn(n, *self.shape(slot), generator=generator, device=device)
            for slot in self.denoised
        }

    def losses(self, batch: Batch, noise: dict[str, Tensor], level: Tensor) -> dict[str, Tensor]:
        """Flow-matching loss of each denoised slot, a row a sample: (B,)."""
        moving = {s.name: noisy(batch.values[s.name], noise[s.name], level) for s in self.denoised}
        found = self(batch, moving, level)
        losses: dict[str, Tensor] = {}
        for name, value in found.items():
            error = (value - velocity(batch.values[name], noise[name])) ** 2
            if name == "action" and batch.weight is not None:
                losses[name] = (error * batch.weight).sum(1) / batch.weight.sum(1).clamp_min(1.0)
            else:
                losses[name] = error.flatten(1).mean(1)
        return losses

    @torch.inference_mode()
    def sample(self, batch: Batch, noise: dict[str, Tensor], config: SamplingConfig) -> dict[str, Tensor]:
        """Each denoised slot, from noise."""
        n = len(batch)
        sizes = [(slot, int(torch.tensor(self.shape(slot)).prod())) for slot in self.denoised]

        def join(parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([parts[slot.name].reshape(n, -1) for slot, _ in sizes], dim=1)

        def split(x: Tensor) -> dict[str, Tensor]:
            pieces = torch.split(x, [size for _, size in sizes], dim=1)
            return {s.name: p.reshape(n, *self.shape(s)) for (s, _), p in zip(sizes, pieces, strict=True)}

        def field(x: Tensor, level: float) -> Tensor:
            return join(self(batch, split(x), torch.full((n,), level, device=x.device)))

        return split(solve(field, join(noise), config))
