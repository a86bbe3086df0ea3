"""What image slots hold of every picture: encoded once, by all processes together, and kept."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor

from recap.policies.autoencoder import FrameEncoder
from recap.training.autoencoder import encoder_key, frozen_latents
from recap.training.config import TrainConfig
from recap.training.data_cache import TrainingData
from recap.training.stages import Stages
from recap.training.tables import new_table
from recap.training.variants import Variants


def shown_latents(
    data: TrainingData,
    config: TrainConfig,
    encoder: FrameEncoder | None,
    accelerator: Accelerator,
    stages: Stages,
) -> Tensor:
    """Latents (m, v, c, h, w) of pictures and what is made of them; pixels for a policy that sees them."""
    augment, image, folder = config.augment, config.policy.image, data.folder
    if not config.policy.sees:
        return torch.zeros(0)
    variants = None
    if augment.image_copies > 0:
        assert data.owners is not None
        variants = Variants(augment.image_copies, augment.image_shift, augment.image_colour, data.owners)
    if encoder is None and variants is None:
        return torch.from_numpy(data.pictures).permute(0, 3, 1, 2)  # as they are
    mirrored = encoder is not None and augment.mirror  # pixels are mirrored when they are shown
    device = accelerator.device
    if folder is None:
        with stages("encoding"):
            return frozen_latents(encoder, data.pictures, device, mirrored, variants=variants)
    dtype: type = np.uint8 if encoder is None else np.float16 if device.type == "cuda" else np.float32
    facts = [mirrored, dtype.__name__, "" if encoder is None else encoder_key(encoder)]
    varied = [] if variants is None else [variants.n_copies, variants.shift, variants.colour]
    name = f"latents-{hashlib.sha256(json.dumps([*facts, *varied]).encode()).hexdigest()[:16]}"
    file, there = folder / f"{name}.npy", (folder / f"{name}.npy").exists()
    accelerator.wait_for_everyone()  # all have looked
    if there:
        stages.reuse("encoding")
        return torch.from_numpy(np.load(file, mmap_mode="c"))
    names = [f".{name}-{os.getpid()}"]
    broadcast_object_list(names)  # of the main process: another run may be at the same
    partial = folder / f"{names[0]}.npy"
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
    variety = (1 + augment.image_copies) * (1 + mirrored)
    shape = (len(data.pictures), variety, image.channels, image.latent_size, image.latent_size)
    try:
        if accelerator.is_local_main_process:
            new_table(folder, names[0], shape, dtype)
        accelerator.wait_for_everyone()
        with stages("encoding"):
            frozen_latents(
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
