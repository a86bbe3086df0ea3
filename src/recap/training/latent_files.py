"""The contents of image slots for every picture and its augmented copies, encoded once and cached."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from numpy.typing import NDArray
from torch import Tensor

from recap.policies.autoencoder import FrameEncoder
from recap.training.autoencoder import encoder_key
from recap.training.config import TrainConfig
from recap.training.data_cache import TrainingData
from recap.training.stages import Stages
from recap.training.tables import new_table
from recap.types import U8

AT_ONCE = 1024  # pictures that are encoded together


@dataclass(frozen=True)
class Variants:
    """Augmented copies of each picture: shifted, and in other colours, as under other light.

    Within a copy all pictures of a demonstration are changed in the same way. This keeps present and future
    images consistent, and copies can be encoded once.
    """

    n_copies: int
    shift: float  # largest shift, as a share of a side
    colour: float  # largest relative change of brightness, contrast and saturation
    owners: NDArray[np.int64]  # (m,) demonstration of each picture

    def __call__(self, pictures: U8, rows: slice, copy: int) -> U8:
        """One copy of these pictures."""
        shown = np.array(pictures[rows])
        owners = self.owners[rows]
        for owner in np.unique(owners):
            mine = owners == owner
            shown[mine] = self._varied(shown[mine], np.random.default_rng((int(owner), copy)))
        return shown

    def _varied(self, pictures: U8, rng: np.random.Generator) -> U8:
        size = pictures.shape[1]
        most = round(self.shift * size)
        down, right = rng.integers(-most, most + 1, size=2)
        brightness, contrast, saturation = 1 + self.colour * rng.uniform(-1, 1, size=3)
        ahead = np.arange(size)
        # Beyond the edge, its pixels are repeated.
        moved = pictures[:, np.clip(ahead + down, 0, size - 1)][:, :, np.clip(ahead + right, 0, size - 1)]
        values = moved.astype(np.float32) * brightness
        values = (values - 127.5) * contrast + 127.5
        grey = values.mean(axis=-1, keepdims=True)
        out: U8 = np.clip(grey + (values - grey) * saturation, 0, 255).round().astype(np.uint8)
        return out


def encode_latents(
    data: TrainingData,
    config: TrainConfig,
    encoder: FrameEncoder | None,
    accelerator: Accelerator,
    stages: Stages,
) -> Tensor:
    """Latents (m, v, c, h, w) of pictures and their variants; pixels for a policy that sees them."""
    augment, image, folder = config.augment, config.policy.image, data.folder
    if not config.policy.sees:
        return torch.zeros(0)
    variants = None
    if augment.image_copies > 0:
        assert data.owners is not None
        variants = Variants(augment.image_copies, augment.image_shift, augment.image_colour, data.owners)
    if encoder is None and variants is None:
        return torch.from_numpy(data.pictures).permute(0, 3, 1, 2)  # unchanged
    mirrored = encoder is not None and augment.mirror  # pixels are mirrored when a batch is built
    device = accelerator.device
    if folder is None:
        with stages("encoding"):
            return encode_pictures(encoder, data.pictures, device, mirrored, variants=variants)
    dtype: type = np.uint8 if encoder is None else np.float16 if device.type == "cuda" else np.float32
    facts = [mirrored, dtype.__name__, "" if encoder is None else encoder_key(encoder)]
    varied = [] if variants is None else [variants.n_copies, variants.shift, variants.colour]
    name = f"latents-{hashlib.sha256(json.dumps([*facts, *varied]).encode()).hexdigest()[:16]}"
    file, there = folder / f"{name}.npy", (folder / f"{name}.npy").exists()
    accelerator.wait_for_everyone()  # every process has looked for the file
    if there:
        stages.reuse("encoding")
        return torch.from_numpy(np.load(file, mmap_mode="c"))
    names = [f".{name}-{os.getpid()}"]
    broadcast_object_list(names)  # of the main process: another run may write the same latents
    partial = folder / f"{names[0]}.npy"
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
    n_variants = (1 + augment.image_copies) * (1 + mirrored)
    shape = (len(data.pictures), n_variants, image.channels, image.latent_size, image.latent_size)
    try:
        if accelerator.is_local_main_process:
            new_table(folder, names[0], shape, dtype)
        accelerator.wait_for_everyone()
        with stages("encoding"):
            encode_pictures(
                encoder,
                data.pictures,
                device,
                mirrored,
                variants=variants,
                into=np.load(partial, mmap_mode="r+"),
                part=(accelerator.local_process_index, n_local),
                report=lambda done, total: stages.report("encoding", done, total),
            )
        accelerator.wait_for_everyone()
        if accelerator.is_local_main_process:
            partial.rename(file)
    finally:
        if accelerator.is_local_main_process:
            partial.unlink(missing_ok=True)
    accelerator.wait_for_everyone()
    return torch.from_numpy(np.load(file, mmap_mode="c"))


def encode_pictures(
    encoder: FrameEncoder | None,
    pictures: U8,
    device: torch.device,
    mirrored: bool = True,
    *,
    variants: Variants | None = None,
    into: NDArray[Any] | None = None,
    part: tuple[int, int] = (0, 1),
    report: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Latents (m, v, c, h, w) of pictures: unchanged, mirrored, and the same for each augmented copy.

    Args:
        encoder: None keeps pixels.
        mirrored: False leaves out the mirror images.
        variants: makes the augmented copies.
        into: array to write to; None allocates memory, in 16 bits on a GPU.
        part: this process's number, and how many share the work.
    """
    sides, copies = 1 + mirrored, [None] if variants is None else [None, *range(variants.n_copies)]
    for begin in range(part[0] * AT_ONCE, len(pictures), part[1] * AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        for i, copy in enumerate(copies):
            shown = pictures[rows] if copy is None or variants is None else variants(pictures, rows, copy)
            for side in range(sides):
                flipped = np.ascontiguousarray(shown[:, :, ::-1] if side else shown)
                if encoder is None:
                    latents: NDArray[Any] = flipped.transpose(0, 3, 1, 2)
                else:
                    latents = encoder.encode_images(flipped)
                if into is None:
                    half = encoder is not None and device.type == "cuda"
                    dtype = np.float16 if half else latents.dtype
                    into = np.zeros((len(pictures), len(copies) * sides, *latents.shape[1:]), dtype)
                into[rows, i * sides + side] = latents
        if report is not None:
            report(min(begin + AT_ONCE, len(pictures)), len(pictures))
    return torch.zeros(0) if into is None else torch.from_numpy(into)
