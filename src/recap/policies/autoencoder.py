"""Images to latents and back with diffusers' Wan autoencoder; each image is encoded on its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recap.errors import DatasetError, InputError
from recap.features.images import check_frames
from recap.policies.config import ImageConfig
from recap.policies.network import load_strictly, published_part, read_part, read_weights
from recap.types import F32, U8

SMALL = {"base_dim": 16, "num_res_blocks": 1, "dim_mult": [1, 2, 4, 4]}  # 2.6 M parameters
AT_ONCE = 512 * 64 * 64  # px that are processed together: the published network needs about 2 KiB per pixel


def build_autoencoder(channels: int = 16, **values: Any) -> nn.Module:
    """An `AutoencoderKLWan` with fresh weights; small by default."""
    from diffusers import AutoencoderKLWan

    mean, std = [0.0] * channels, [1.0] * channels
    chosen = {**SMALL, "z_dim": channels, "latents_mean": mean, "latents_std": std, **values}
    return _quick_at_images(AutoencoderKLWan(**chosen))


def _quick_at_images(network: nn.Module) -> nn.Module:
    """The same network, several times faster on single frames.

    Only the last time slice of each kernel sees a single frame, the others see zeros. The convolution is
    then two-dimensional.
    """
    from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d

    class Convolution(WanCausalConv3d):  # type: ignore[misc]
        def forward(self, x: Tensor, cache_x: Tensor | None = None) -> Tensor:
            if x.shape[2] != 1 or cache_x is not None or self._padding[4] != self.kernel_size[0] - 1:
                found: Tensor = super().forward(x, cache_x)
                return found
            padding = (self._padding[2], self._padding[0])
            weight = self.weight[:, :, -1]
            flat = nn.functional.conv2d(x[:, :, 0], weight, self.bias, self.stride[1:], padding)
            return flat[:, :, None]

    for module in network.modules():
        if type(module) is WanCausalConv3d:
            module.__class__ = Convolution
    return network


def load_published_autoencoder(source: str | Path) -> nn.Module:
    """Load a Wan autoencoder strictly from a diffusers folder, its `vae` folder, or a hub name."""
    from diffusers import AutoencoderKLWan

    folder = published_part(source, "vae")
    values = read_part(folder)
    if values.get("_class_name") != "AutoencoderKLWan":
        kind = values.get("_class_name", "no config.json")
        raise DatasetError(f"no autoencoder at '{source}': it has {kind} where AutoencoderKLWan is needed")
    network = _quick_at_images(AutoencoderKLWan.from_config(values))
    load_strictly(network, read_weights(folder), str(source))
    return network.eval().requires_grad_(False)


def to_pixels(images: U8) -> Tensor:
    """(n, h, w, 3) bytes as (n, 3, h, w) in -1…1."""
    return (
        torch.from_numpy(np.ascontiguousarray(check_frames(images))).permute(0, 3, 1, 2).float() / 127.5 - 1
    )


def to_bytes(pixels: Tensor) -> U8:
    """The inverse of `to_pixels`."""
    scaled = ((pixels.detach().float().cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    found: U8 = scaled.permute(0, 2, 3, 1).contiguous().numpy()
    return found


class FrameEncoder(nn.Module):
    """The autoencoder with latents normalised to mean 0 and deviation 1 per channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        config: Any = self.network.config
        self.register_buffer("mean", torch.tensor(config.latents_mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(config.latents_std).view(1, -1, 1, 1))

    def refuse_other(self, image: ImageConfig) -> None:
        """Raise an error if the latents do not have the policy's shape."""
        config = self.network.config
        made, wanted = (config.z_dim, config.scale_factor_spatial), (image.channels, image.scale)
        if made != wanted:
            raise InputError(
                f"the autoencoder's latents have {made[0]} channels at 1/{made[1]} of the size, the policy's "
                f"{wanted[0]} at 1/{wanted[1]}: set policy.image.channels and policy.image.scale to its own"
            )

    def encode(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) in -1…1 to latents (n, c, h/8, w/8), normalised."""
        latent: Tensor = self.network.encode(pixels[:, :, None]).latent_dist.mode()[:, :, 0]
        return (latent.float() - self.mean) / self.std

    def decode(self, latents: Tensor) -> Tensor:
        """The approximate inverse of `encode`."""
        raw = latents * self.std + self.mean
        found: Tensor = self.network.decode(raw[:, :, None].to(self.network.dtype)).sample[:, :, 0]
        return found.float()

    @torch.inference_mode()
    def encode_images(self, images: U8) -> F32:
        """Images (n, h, w, 3) to latents (n, c, h/8, w/8)."""
        device, dtype = self.mean.device, self.network.dtype
        batch_size = max(1, AT_ONCE // (images.shape[1] * images.shape[2]))
        parts = [
            self.encode(to_pixels(images[i : i + batch_size]).to(device, dtype)).cpu()
            for i in range(0, len(images), batch_size)
        ]
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    @torch.inference_mode()
    def decode_images(self, latents: F32 | Tensor) -> U8:
        """Latents to images (n, h, w, 3)."""
        given = torch.as_tensor(latents)
        batch_size = max(1, AT_ONCE // (64 * given.shape[2] * given.shape[3]))
        parts = [to_bytes(self.decode(p.to(self.mean.device))) for p in torch.split(given, batch_size)]
        return np.concatenate(parts)


def latent_statistics(latents: Tensor) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and deviation of each channel of raw latents (n, c, h, w)."""
    mean, std = latents.float().mean((0, 2, 3)), latents.float().std((0, 2, 3))
    return [round(float(v), 6) for v in mean], [round(float(v), 6) for v in std.clamp_min(1e-4)]
