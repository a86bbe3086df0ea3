"""The world-action model: a sequence of latent frames in which action and future are denoised together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import InputError
from recap.features.language import ContentWords, HashedWords, TextEncoder, make_text_encoder
from recap.policies.config import NetworkConfig, PolicyConfig
from recap.policies.layout import present_slot
from recap.policies.lean import fast_attention, make_lean
from recap.policies.model import Batch, SlotModel, TaskEncoder
from recap.policies.network import (
    build_network,
    call_network,
    load_pretrained_network,
    published_part,
    text_width,
    weight_files,
)
from recap.policies.text_states import PREFIX, TextStates

UNREAD = "none"  # text encoder of a policy that ignores the instruction
LEAST_LEVEL = 0.1  # least divisor when a velocity is computed from a clean image
CLEAN_LEVEL = 1e-4  # noise level of a clean slot, as given to the network


class WorldActionModel(SlotModel):
    """The Cosmos network with its slots."""

    tag = "world-action-model"
    summary = (
        "A retrieval-conditioned world-action model: given the observation and the chunk of another "
        "embodiment in a similar moment, it denoises the action chunk and the future together."
    )

    def __init__(self, config: PolicyConfig, network: nn.Module | None = None) -> None:
        super().__init__(config)
        self.sizes = _sizes(config)
        if network is None:
            network = build_network(self.sizes, config.image.channels)
            make_lean(network, self.layout.n_tokens // len(self.layout.slots))
        self.network = network

    @classmethod
    def task_encoder(cls, config: PolicyConfig) -> TaskEncoder:
        """One token per instruction (n, 1, d), padded to the network's width; (n, L, d) from a file."""
        width = text_width(_sizes(config))
        if config.text == UNREAD:
            return lambda tasks: torch.zeros(len(tasks), 1, width)
        if config.text.startswith(PREFIX):
            return TextStates(Path(config.text.removeprefix(PREFIX)), width)
        encoder = _text_encoder(config.text, width)

        def encode(tasks: Sequence[str]) -> Tensor:
            rows = torch.from_numpy(encoder.encode(list(tasks)))
            return nn.functional.pad(rows, (0, width - rows.shape[1]))[:, None]

        return encode

    @property
    def n_tokens(self) -> int:
        """Tokens of the whole sequence."""
        return self.layout.n_tokens

    @classmethod
    def find_published(cls, source: str) -> Path:
        """The transformer of a diffusers folder or a hub name."""
        folder = published_part(source, "transformer")
        weight_files(folder)
        return folder

    def load_published(self, source: str) -> None:
        """Load a published Cosmos transformer, strictly, from a directory or a hub name."""
        load_pretrained_network(self.network, source)

    def recompute_activations(self) -> None:
        """Keep fewer activations in training."""
        self.network.enable_gradient_checkpointing()  # type: ignore[operator]

    def forward(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor, known: Any = None
    ) -> dict[str, Tensor]:
        """The velocity of each denoised slot."""
        frames, given, levels = self.assemble(batch, moving, level)
        with fast_attention() if frames.is_cuda else nullcontext():
            out = call_network(self.network, self.sizes, frames, given, levels, batch.text.to(frames.dtype))
        found: dict[str, Tensor] = {}
        for slot in self.denoised:
            frame = out[:, :, self.layout.index(slot.name)].float()
            if slot.kind == "vector":
                found[slot.name] = self.layout.read(frame, slot.width)
            else:
                found[slot.name] = self.velocity_of(frame, moving[slot.name], level.view(-1, 1, 1, 1))
        return found

    def velocity_of(self, output: Tensor, moving: Tensor, level: Tensor) -> Tensor:
        """The velocity of an image: the network's output, or computed from it if that is the clean image."""
        if not self.config.future_clean:
            return output
        return (moving - output) / level.clamp_min(LEAST_LEVEL)

    def assemble(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The sequence (B, c or 2c, T, h, w), which slots are given (B, T), and their noise levels (B, T).

        An absent conditioning slot is not only set to zeros: it is marked as not given, with full noise.
        """
        frames, given, levels = [], [], []
        for i, slot in enumerate(self.layout.slots):
            if slot.denoised:
                value = moving[slot.name]
                here, at = torch.zeros_like(level), level
                if slot.name == "action" and batch.acted is not None:
                    here = batch.acted.to(level.dtype)
                    at = torch.where(batch.acted, torch.full_like(level, CLEAN_LEVEL), level)
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
        sequence = torch.stack(frames, dim=2)
        if self.sizes.beside:
            sequence = torch.cat([sequence, self._beside(batch, sequence)], dim=1)
        return sequence, torch.stack(given, dim=1), torch.stack(levels, dim=1)

    def _beside(self, batch: Batch, sequence: Tensor) -> Tensor:
        """The present image for each predicted image, if it is an input; zeros for all other slots."""
        found = torch.zeros_like(sequence)
        for i, slot in enumerate(self.layout.slots):
            if slot.denoised and slot.kind == "image":
                now = present_slot(slot.name)
                here = batch.present[:, self.layout.index(now)].view(-1, 1, 1, 1)
                found[:, :, i] = batch.values[now] * here
        return found


def _sizes(config: PolicyConfig) -> NetworkConfig:
    assert isinstance(config.network, NetworkConfig)
    return config.network


def _text_encoder(name: str, width: int) -> TextEncoder:
    """The text encoder of that name; an error if it is wider than the network accepts."""
    if name == "words":
        return HashedWords(min(64, width))
    if name == "content-words":
        return ContentWords(min(128, width))
    encoder = make_text_encoder(name)
    if encoder.dim > width:
        raise InputError(f"text encoder '{name}' is {encoder.dim} wide, the network takes fewer")
    return encoder
