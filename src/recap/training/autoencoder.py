"""Training the small autoencoder on the very pictures that the policy will see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recap.errors import InputError
from recap.policies.autoencoder import (
    FrameEncoder,
    build_autoencoder,
    latent_statistics,
    load_published_autoencoder,
)
from recap.policies.checkpoint import from_pretrained
from recap.suites import shipped_policies
from recap.training.schedule import cosine
from recap.training.variants import Variants
from recap.types import U8

PAPER = 0.9  # brighter than this it is white
AT_ONCE = 1024  # pictures that are encoded together
INK = 4.0  # how much more a pixel counts that is not paper: most of a board is


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
    """A small Wan autoencoder, fitted to the pictures (m, h, w, 3) and their mirror images.

    Args:
        paper: most of a picture is white, and what is not counts for more.
        begun: one to go on from; otherwise it begins anew.
    """
    torch.manual_seed(seed)
    network: Any = (build_autoencoder() if begun is None else begun.network.requires_grad_(True)).to(device)
    if begun is None:
        _for_single_frames(network)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    stored = torch.from_numpy(pictures)  # which may be a file
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
    """Begin as a network for one frame: of a kernel in time only the last slice sees more than zeros."""
    for module in network.modules():
        if isinstance(module, nn.Conv3d) and module.kernel_size[0] == 3:
            module.weight[:, :, :-1] = 0
            module.weight[:, :, -1] *= 3**0.5


def unclamped(network: nn.Module, latent: Tensor) -> Tensor:
    """One latent frame decoded without the last clamp: on white paper it would let no gradient through."""
    inner: Any = network
    found: Tensor = inner.decoder(inner.post_quant_conv(latent))
    return found


def reconstruction(encoder: FrameEncoder, pictures: U8) -> float:
    """Peak signal-to-noise ratio of pictures after encoding and decoding, dB."""
    restored = encoder.decode_images(encoder.encode_images(pictures))
    return psnr(restored, pictures)


def psnr(a: U8, b: U8) -> float:
    """Peak signal-to-noise ratio, dB."""
    error = np.square(a.astype(np.float64) - b.astype(np.float64)).mean()
    return float(10 * np.log10(255.0**2 / max(error, 1e-12)))


def save_autoencoder(encoder: FrameEncoder, path: Path) -> None:
    """As diffusers has it, for other runs to begin from."""
    encoder.network.save_pretrained(path)


def load_autoencoder(source: str, device: torch.device) -> FrameEncoder:
    """A Wan autoencoder: of one of our policies, or published (a directory, its `vae` folder, a hub name)."""
    folder = Path(source)
    if source in shipped_policies() or (folder / "model.safetensors").is_file():
        encoder = from_pretrained(source, str(device)).encoder
        if encoder is None:
            raise InputError(f"policy '{source}' has no autoencoder: it sees no images")
        return encoder
    return FrameEncoder(load_published_autoencoder(source)).to(device)


def frozen_latents(
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
    """Latents (m, v, c, h, w) of pictures: as they are, mirrored, and of each of their varied copies.

    Args:
        encoder: None for pixels as they are.
        mirrored: False leaves the mirror images out.
        variants: makes the varied copies.
        into: where they are written; otherwise memory, in 16 bits where there is a GPU.
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


def encoder_key(encoder: FrameEncoder) -> str:
    """Changes with any weight."""
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
