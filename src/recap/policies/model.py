"""The base class of all backbones: a sequence of slots, some given and some denoised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from recap.features.pretrained import find_model
from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.flow import noisy, solve, velocity
from recap.policies.layout import Layout, Slot, build_layout, present_slot
from recap.policies.network import weight_files

TaskEncoder: TypeAlias = Callable[[Sequence[str]], Tensor]  # instructions -> (n, L) or (n, L, d)


@dataclass(frozen=True)
class Batch:
    """Normalised slots of some samples."""

    values: dict[str, Tensor]  # slot -> (B, width) or (B, c, h, w); denoised slots only in training
    present: Tensor  # (B, T) False if a conditioning slot is empty
    text: Tensor  # (B, L, d), or (B, L) ids of words
    weight: Tensor | None = None  # (B, width of action) weight of the action's numbers in the loss
    acted: Tensor | None = None  # (B,) True if the action is given too, and its outcome predicted

    def __len__(self) -> int:
        return len(self.text)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of the batch."""
        others = [tensor for tensor in (self.weight, self.acted) if tensor is not None]
        return [*self.values.values(), self.present, self.text, *others]

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to every tensor."""
        values = {name: change(value) for name, value in self.values.items()}
        weight, acted = (None if t is None else change(t) for t in (self.weight, self.acted))
        return Batch(values, change(self.present), change(self.text), weight, acted)


class SlotModel(nn.Module, ABC):
    """A network with its slots; flow and loss are the same for every network."""

    tag: str  # for the model card
    summary: str  # for the model card
    network: nn.Module

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.layout: Layout = build_layout(config)
        self.deviations: dict[str, Tensor] = {}  # image slot -> (c, 1, 1) deviation, see `scale_of`

    @classmethod
    @abstractmethod
    def task_encoder(cls, config: PolicyConfig) -> TaskEncoder:
        """A function from instructions to the `text` of a batch."""

    @property
    @abstractmethod
    def n_tokens(self) -> int:
        """Tokens of the whole sequence."""

    @classmethod
    def find_published(cls, source: str) -> Path:
        """The folder of published weights, downloaded if needed; an error if there are none."""
        folder = find_model(source, "network")
        weight_files(folder)
        return folder

    @abstractmethod
    def load_published(self, source: str) -> None:
        """Load a published network, strictly, from a directory or a hub name."""

    @abstractmethod
    def recompute_activations(self) -> None:
        """Keep fewer activations in training: slower, less memory."""

    @abstractmethod
    def forward(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor, known: Any = None
    ) -> dict[str, Tensor]:
        """The velocity of each denoised slot.

        Args:
            moving: denoised slot -> its value now, at noise level `level` (B,).
            known: the result of `read` for the batch, if it was called.
        """

    def read(self, batch: Batch) -> Any:
        """Compute once what is the same at every denoising step; nothing by default."""
        return None

    @property
    def denoised(self) -> tuple[Slot, ...]:
        """The slots that are predicted."""
        return tuple(slot for slot in self.layout.slots if slot.denoised)

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """Shape of one value of the slot."""
        layout = self.layout
        return (slot.width,) if slot.kind == "vector" else (layout.channels, layout.size, layout.size)

    def draw_noise(
        self, n: int, generator: torch.Generator | None, device: torch.device
    ) -> dict[str, Tensor]:
        """Noise for each denoised slot; noise for a vector has the vector's width."""
        return {
            slot.name: torch.randn(n, *self.shape(slot), generator=generator, device=device)
            for slot in self.denoised
        }

    def losses(self, batch: Batch, noise: dict[str, Tensor], level: Tensor) -> dict[str, Tensor]:
        """Flow-matching loss of each denoised slot and sample: (B,)."""
        clean = {
            s.name: (batch.values[s.name] - self.origin_of(batch, s)) / self.scale_of(s, batch.text.device)
            for s in self.denoised
        }
        moving = {name: noisy(value, noise[name], level) for name, value in clean.items()}
        found = self(batch, given_action(batch, moving), level)
        losses: dict[str, Tensor] = {}
        for name, value in found.items():
            error = (value - velocity(clean[name], noise[name])) ** 2
            if name == "action" and batch.weight is not None:
                losses[name] = (error * batch.weight).sum(1) / batch.weight.sum(1).clamp_min(1.0)
                if batch.acted is not None:  # a given action is not learned
                    losses[name] = losses[name] * _share(~batch.acted)
            elif name in self.deviations:  # the change of an image that is not an input cannot be predicted
                losses[name] = error.flatten(1).mean(1) * self._shown(batch, name)
            else:
                losses[name] = error.flatten(1).mean(1)
        return losses

    @torch.inference_mode()
    def sample(self, batch: Batch, noise: dict[str, Tensor], config: SamplingConfig) -> dict[str, Tensor]:
        """Sample each denoised slot from noise."""
        n, known = len(batch), self.read(batch)
        sizes = [(slot, int(torch.tensor(self.shape(slot)).prod())) for slot in self.denoised]

        def join(parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([parts[slot.name].reshape(n, -1) for slot, _ in sizes], dim=1)

        def split(x: Tensor) -> dict[str, Tensor]:
            pieces = torch.split(x, [size for _, size in sizes], dim=1)
            return {s.name: p.reshape(n, *self.shape(s)) for (s, _), p in zip(sizes, pieces, strict=True)}

        def field(x: Tensor, level: float) -> Tensor:
            now = given_action(batch, split(x))
            return join(self(batch, now, torch.full((n,), level, device=x.device), known))

        found = given_action(batch, split(solve(field, join(noise), config)))
        return {
            slot.name: found[slot.name] * self.scale_of(slot, noise[slot.name].device)
            + self.origin_of(batch, slot)
            for slot in self.denoised
        }

    def origin_of(self, batch: Batch, slot: Slot) -> Tensor | float:
        """The value that a predicted slot is relative to: the present image, or 0."""
        if slot.kind != "image" or not self.config.future_change:
            return 0.0
        return batch.values[present_slot(slot.name)]

    def scale_of(self, slot: Slot, device: torch.device) -> Tensor | float:
        """The divisor of a predicted image change, which makes it as large as the noise."""
        found = self.deviations.get(slot.name)
        return 1.0 if found is None else found.to(device)

    def _shown(self, batch: Batch, slot: str) -> Tensor:
        """Weights (B,) with mean 1: zero for samples without the present image."""
        return _share(batch.present[:, self.layout.index(present_slot(slot))])


def given_action(batch: Batch, moving: dict[str, Tensor]) -> dict[str, Tensor]:
    """The denoised values, with the true action in samples that are given it."""
    if batch.acted is None:
        return moving
    action = torch.where(batch.acted[:, None], batch.values["action"], moving["action"])
    return {**moving, "action": action}


def _share(chosen: Tensor) -> Tensor:
    """Weights (B,) with mean 1: zero for samples that are not chosen."""
    return chosen.float() / chosen.float().mean().clamp_min(1e-6)
