"""Training of the small autoencoder on the images that the policy will see."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from recap.errors import InputError
from recap.policies.autoencoder import (
    FrameEncoder,
    build_autoencoder,
    latent_statistics,
    load_published_autoencoder,
)
from recap.policies.checkpoint import from_pretrained
from recap.policies.network import published_part, weight_files
from recap.suites import shipped_policies
from recap.training.config import TrainConfig
from recap.training.data_cache import TrainingData
from recap.training.networks import cosine
from recap.training.stages import Stages
from recap.training.tables import whole_folder
from recap.types import U8

PAPER = 0.9  # in -1…1: a pixel brighter than this in every channel is white background
INK = 4.0  # additional loss weight of the other pixels, which are few


def train_autoencoder(
    pictures: U8,
    *,
    n_iterations: int,
    batch_size: int,
    seed: int,
    device: torch.device,
    learning_rate: float = 2e-3,
    paper: bool = True,
    begun: FrameEncoder | None = None,
    report: Callable[[int], None] | None = None,
) -> FrameEncoder:
    """Fit a small Wan autoencoder to pictures (m, h, w, 3) and their mirror images.

    Args:
        paper: most pixels are white background; the others get a higher loss weight.
        begun: an encoder to continue from; None starts from fresh weights.
    """
    torch.manual_seed(seed)
    network: Any = (build_autoencoder() if begun is None else begun.network.requires_grad_(True)).to(device)
    if begun is None:
        _for_single_frames(network)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    stored = torch.from_numpy(pictures)  # may be a memory-mapped file
    generator = torch.Generator(device).manual_seed(seed)
    bf16 = device.type == "cuda"
    for step in range(n_iterations):
        for group in optimizer.param_groups:
            group["lr"] = cosine(learning_rate, step, n_iterations, n_iterations // 20)
        rows = torch.randint(len(stored), (batch_size,), generator=generator, device=device)
        pixels = stored[rows.cpu()].to(device).permute(0, 3, 1, 2).float() / 127.5 - 1
        if step % 2:
            pixels = pixels.flip(-1)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            latent = network.encode(pixels[:, :, None]).latent_dist.mode()
            restored = unclamped(network, latent)[:, :, 0]
        error = restored.float() - pixels
        weight = 1 + (INK if paper else 0.0) * (pixels.amin(1, keepdim=True) < PAPER)
        loss = (weight * (error.abs() + 2 * error.square())).mean() / (1 + INK * 0.1 * paper)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if report is not None:
            report(step + 1)
    network.eval()
    with torch.inference_mode():
        some = stored[torch.linspace(0, len(stored) - 1, min(2048, len(stored))).long()].to(device)
        parts = [
            network.encode((part.permute(0, 3, 1, 2).float() / 127.5 - 1)[:, :, None]).latent_dist.mode()[
                :, :, 0
            ]
            for part in torch.split(some, 256)
        ]
    mean, std = latent_statistics(torch.cat(parts).float().cpu())
    network.register_to_config(latents_mean=mean, latents_std=std)
    return FrameEncoder(network.requires_grad_(False)).to(device)


@torch.no_grad()
def _for_single_frames(network: nn.Module) -> None:
    """Zero the time slices of each kernel that see only padding when there is a single frame."""
    for module in network.modules():
        if isinstance(module, nn.Conv3d) and module.kernel_size[0] == 3:
            module.weight[:, :, :-1] = 0
            module.weight[:, :, -1] *= 3**0.5


def unclamped(network: nn.Module, latent: Tensor) -> Tensor:
    """Decode one latent frame without the final clamp, which passes no gradient on white background."""
    inner: Any = network
    found: Tensor = inner.decoder(inner.post_quant_conv(latent))
    return found


def reconstruction(encoder: FrameEncoder, pictures: U8) -> float:
    """Peak signal-to-noise ratio in dB of pictures after encoding and decoding."""
    restored = encoder.decode_images(encoder.encode_images(pictures))
    return psnr(restored, pictures)


def psnr(a: U8, b: U8) -> float:
    """Peak signal-to-noise ratio in dB."""
    error = np.square(a.astype(np.float64) - b.astype(np.float64)).mean()
    return float(10 * np.log10(255.0**2 / max(error, 1e-12)))


def find_autoencoder(
    config: TrainConfig,
    data: TrainingData,
    out: Path,
    begun: FrameEncoder | None,
    accelerator: Accelerator,
    stages: Stages,
) -> FrameEncoder | None:
    """The run's autoencoder: from the config, the run or the data folder, or trained now (from `begun`)."""
    device: torch.device = accelerator.device
    if not config.policy.sees or config.policy.network.sees_pixels:
        return None
    if config.autoencoder is not None:
        return load_autoencoder(config.autoencoder, device)
    kept, n, size = out / "autoencoder", config.autoencoder_iterations, config.autoencoder_batch
    if not (kept / "config.json").is_file() and accelerator.is_main_process:
        white, first = config.policy.image.white, "new" if begun is None else encoder_key(begun)
        name = f"autoencoder-{n}-{size}-{white}-{device.type}-{first}"
        shared = None if data.folder is None else data.folder / name
        if shared is not None and shared.exists():
            stages.reuse("autoencoder")
            shutil.copytree(shared, kept)
        else:
            with stages("autoencoder"):
                encoder = train_autoencoder(
                    data.pictures,
                    n_iterations=n,
                    batch_size=size,
                    seed=0,  # the same autoencoder for every seed of the policy
                    device=device,
                    paper=white,
                    begun=begun,
                    report=lambda done: stages.report("autoencoder", done, n),
                )
                encoder.network.save_pretrained(kept)
            if shared is not None:
                with whole_folder(shared) as partial:
                    shutil.copytree(kept, partial, dirs_exist_ok=True)
    accelerator.wait_for_everyone()
    return load_autoencoder(str(kept), device)


def load_autoencoder(source: str, device: torch.device) -> FrameEncoder:
    """Load a Wan autoencoder: of one of our policies, a directory or its `vae` folder, or a hub name."""
    if _is_policy(source):
        encoder = from_pretrained(source, str(device)).encoder
        if encoder is None:
            raise InputError(f"policy '{source}' has no autoencoder: it sees no images")
        return encoder
    return FrameEncoder(load_published_autoencoder(source)).to(device)


def check_autoencoder(source: str) -> None:
    """Raise an error if a published autoencoder has no weights; download them if needed."""
    if not _is_policy(source):
        weight_files(published_part(source, "vae"))


def _is_policy(source: str) -> bool:
    return source in shipped_policies() or (Path(source) / "model.safetensors").is_file()


def encoder_key(encoder: FrameEncoder) -> str:
    """A hash of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
