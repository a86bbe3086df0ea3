"""The slots of the sequence, for training and inference, and how a vector is written to a latent frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.policies.vectors import numbers_of, width_of

Kind: TypeAlias = Literal["image", "vector"]


@dataclass(frozen=True)
class Slot:
    """One latent frame of the sequence."""

    name: str
    kind: Kind
    denoised: bool = False
    retrieved: bool = False  # absent if nothing was retrieved
    width: int = 0  # of a vector


@dataclass(frozen=True)
class Layout:
    """The slots in order, and their common shape."""

    slots: tuple[Slot, ...]
    channels: int
    size: int  # of a side
    patch: int  # side of the patch that becomes one token

    def __post_init__(self) -> None:
        for slot in self.slots:
            if slot.kind == "vector" and slot.width > self.channels * self.size**2:
                raise InputError(
                    f"slot '{slot.name}' holds {slot.width} numbers, a frame {self.channels * self.size**2}: "
                    "use larger images or a shorter chunk"
                )

    def __getitem__(self, name: str) -> Slot:
        return self.slots[self.index(name)]

    def __contains__(self, name: str) -> bool:
        return any(slot.name == name for slot in self.slots)

    def index(self, name: str) -> int:
        """The position of the slot in the sequence."""
        return [slot.name for slot in self.slots].index(name)

    @property
    def images(self) -> tuple[Slot, ...]:
        """Slots that hold images."""
        return tuple(slot for slot in self.slots if slot.kind == "image")

    @property
    def vectors(self) -> tuple[Slot, ...]:
        """Slots that hold vectors."""
        return tuple(slot for slot in self.slots if slot.kind == "vector")

    @property
    def n_tokens(self) -> int:
        """Tokens of the whole sequence."""
        return len(self.slots) * (self.size // self.patch) ** 2

    # Copies of a vector begin at patch boundaries, so that every token of its slot holds it from its first
    # number. A vector that is longer than a patch takes several.

    def _patches(self, width: int) -> tuple[int, int, int]:
        """Patches per copy, copies within each patch, and patches used in total."""
        room = self.channels * self.patch**2
        span = -(-width // room)
        n_patches = (self.size // self.patch) ** 2
        return span, max(1, room // width), n_patches // span * span

    def write(self, vector: Tensor) -> Tensor:
        """Vectors (..., width) as latent frames (..., c, h, w), repeated as often as they fit."""
        width = vector.shape[-1]
        lead = vector.shape[:-1]
        room, n = self.channels * self.patch**2, self.size // self.patch
        span, copies, used = self._patches(width)
        whole = vector.repeat(*[1] * len(lead), copies)
        whole = torch.nn.functional.pad(whole, (0, span * room - whole.shape[-1]))
        tiled = whole.reshape(*lead, span, room).repeat(*[1] * len(lead), used // span, 1)
        tiled = torch.nn.functional.pad(tiled, (0, 0, 0, n * n - used))  # (..., n², room)
        grid = tiled.reshape(*lead, n, n, self.channels, self.patch, self.patch)
        k = len(lead)
        grid = grid.permute(*range(k), k + 2, k, k + 3, k + 1, k + 4)
        return grid.reshape(*lead, self.channels, self.size, self.size)

    def read(self, frame: Tensor, width: int) -> Tensor:
        """The inverse of `write`: the mean of the copies in (..., c, h, w), (..., width)."""
        lead = frame.shape[:-3]
        room, n = self.channels * self.patch**2, self.size // self.patch
        span, copies, used = self._patches(width)
        k = len(lead)
        grid = frame.reshape(*lead, self.channels, n, self.patch, n, self.patch)
        tiled = grid.permute(*range(k), k + 1, k + 3, k, k + 2, k + 4).reshape(*lead, n * n, room)
        whole = tiled[..., :used, :].reshape(*lead, used // span, span * room).mean(-2)
        return whole[..., : copies * width].reshape(*lead, copies, width).mean(-2)


def build_layout(config: PolicyConfig) -> Layout:
    """The slots for a config."""
    image, widths = config.image, {name: width_of(parts) for name, parts in numbers_of(config).items()}

    def seen(name: str, cameras: tuple[str, ...], **marks: bool) -> list[Slot]:
        return [Slot(f"{name}/{c}", "image", **marks) for c in cameras] if config.sees else []

    def vector(name: str, **marks: bool) -> Slot:
        return Slot(name, "vector", width=widths[name], **marks)

    slots: list[Slot] = []
    if config.retrieval:
        for i in range(config.n_retrieved_frames):
            slots += seen(f"retrieved_frame_{i}", image.retrieved, retrieved=True)
        slots += [vector("retrieved_proprio", retrieved=True), vector("retrieved_action", retrieved=True)]
    slots += [*seen("frame", image.cameras), vector("proprio"), vector("action", denoised=True)]
    if config.future_image:
        for name in future_frames(config):
            slots += seen(name, image.future, denoised=True)
    if config.future_state:
        slots.append(vector("future_proprio", denoised=True))
    size, patch = config.latent_size, config.network.patch
    while not config.sees and image.channels * size**2 < max(slot.width for slot in slots):
        size += patch  # without images a slot is only as large as its widest vector needs
    return Layout(tuple(slots), image.channels, size, patch)


def future_frames(config: PolicyConfig) -> dict[str, int]:
    """The slot names of predicted images, with the number of steps ahead of each."""
    steps = config.future_steps
    return {f"future_frame_{step}": step for step in steps} if steps else {"future_frame": config.chunk_size}


def present_slot(future: str) -> str:
    """The slot of the present image, for a slot of the same camera's future image."""
    return f"frame/{future.partition('/')[2]}"


def frame_offsets(config: PolicyConfig) -> tuple[int, ...]:
    """Indices of the retrieved chunk's frames that are inputs: first, last, and evenly spaced between."""
    n, last = config.n_retrieved_frames, config.chunk_size - 1
    return (0,) if n == 1 else tuple(round(i * last / (n - 1)) for i in range(n))
