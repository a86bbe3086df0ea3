"""diffusers' Cosmos video transformer, unmodified, and how its weights are loaded."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from recap.errors import DatasetError, cause
from recap.features.pretrained import find_model
from recap.policies.config import NetworkConfig

WAVES = (1, 2, 4)  # half periods of a coordinate across a latent frame
N_COORDINATES = 2 + 4 * len(WAVES)
# Settings that the shapes of weights do not determine.
SIZES = ("num_attention_heads", "attention_head_dim", "num_layers", "patch_size", "rope_scale")


def build_network(config: NetworkConfig, channels: int) -> nn.Module:
    """A `CosmosTransformer3DModel` with fresh weights."""
    from diffusers import CosmosTransformer3DModel

    values = asdict(config)
    del values["time_scale"], values["coordinates"], values["beside"]
    # The padding mask is a channel after the condition mask. diffusers would resize it with torchvision,
    # which is not a dependency here. So the channel counts as an input, and `call_network` adds it.
    values["concat_padding_mask"] = False
    extra = (2 if config.concat_padding_mask else 1) + N_COORDINATES * config.coordinates
    network: nn.Module = CosmosTransformer3DModel(
        in_channels=channels * (1 + config.beside) + extra,
        out_channels=channels,
        extra_pos_embed_type=None,
        **values,
    )
    return network


def text_width(config: NetworkConfig) -> int:
    """Width of an instruction's token."""
    return config.crossattn_proj_in_channels if config.use_crossattn_projection else config.text_embed_dim


def call_network(
    network: nn.Module, config: NetworkConfig, frames: Tensor, given: Tensor, level: Tensor, text: Tensor
) -> Tensor:
    """The velocity of every slot.

    Args:
        frames: (B, C, T, h, w) clean where given, noisy elsewhere.
        given: (B, T) 1 where a slot is given.
        level: (B, T) noise level of each slot, 0 to 1.
        text: (B, L, d).
    """
    batch, _, slots, height, width = frames.shape
    mask = given.to(frames.dtype)[:, None, :, None, None].expand(batch, 1, slots, height, width)
    if config.coordinates:
        frames = with_coordinates(frames)
    if config.concat_padding_mask:
        frames, mask = torch.cat([frames, mask], dim=1), torch.zeros_like(mask)  # nothing is padded
    found: Tensor = network(
        hidden_states=frames,
        timestep=(level * config.time_scale)[:, None, :, None, None],
        encoder_hidden_states=text,
        condition_mask=mask,
        return_dict=False,
    )[0]
    return found


def with_coordinates(frames: Tensor) -> Tensor:
    """Latent frames (B, C, T, h, w) with added channels: coordinates, and waves of the coordinates."""
    batch, _, slots, height, width = frames.shape
    across, down = (
        torch.linspace(-1, 1, n, dtype=torch.float32, device=frames.device) for n in (width, height)
    )
    channels = [across.expand(height, width), down[:, None].expand(height, width)]
    for place in tuple(channels):
        for n in WAVES:
            channels += [(torch.pi * n * place).sin(), (torch.pi * n * place).cos()]
    where = torch.stack(channels).to(frames.dtype)[None, :, None]  # (1, n, 1, h, w)
    return torch.cat([frames, where.expand(batch, -1, slots, -1, -1)], dim=1)


def load_pretrained_network(network: nn.Module, source: str | Path) -> None:
    """Load a published transformer, strictly, from a diffusers folder or a hub name.

    Missing, unknown and differently shaped keys are errors. So are other sizes, even if the weights would
    fit.
    """
    folder = published_part(source, "transformer")
    theirs, ours = read_part(folder), dict(cast(Any, network).config)
    for name in (*SIZES, "in_channels", "out_channels"):
        value: Any = ours[name]
        found = theirs.get(name)
        if name == "in_channels":  # diffusers does not count the padding mask
            value -= bool(theirs.get("concat_padding_mask"))
        value = list(value) if isinstance(value, tuple) else value
        if theirs and found != value:
            raise DatasetError(
                f"weights of {source} are of a network with {name} {found}, the policy's has {value}: "
                "set policy.network to theirs"
            )
    load_strictly(network, read_weights(folder), str(source))


def published_part(source: str | Path, part: str) -> Path:
    """The folder of one part of a diffusers pipeline (a path or hub name), or the part's own folder."""
    folder = find_model(source, f"{part} of a backbone", ["transformer/*", "vae/*"])
    return folder / part if (folder / part).is_dir() else folder


def read_part(folder: Path) -> dict[str, Any]:
    """The folder's config.json; empty if there are only weights."""
    file = folder / "config.json"
    try:
        values = json.loads(file.read_text("utf-8")) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file} cannot be read: {cause(error)}") from error
    return dict(values) if isinstance(values, dict) else {}


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a folder, several for large networks; an error if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DatasetError(f"no weights in {folder}: give a directory with .safetensors files")
    return files


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            found = load_file(file)
        except (SafetensorError, OSError) as error:
            raise DatasetError(f"weights {file} cannot be read: {cause(error)}") from error
        twice = sorted(set(state) & set(found))
        if twice:
            raise DatasetError(f"'{twice[0]}' is in {file} and in another file of {folder}: keep one variant")
        state |= found
    return state


def load_strictly(network: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load weights; a mismatch is an error of one line."""
    wanted = {key: value.shape for key, value in network.state_dict().items()}
    missing = sorted(set(wanted) - set(state))
    unknown = sorted(set(state) - set(wanted))
    other = sorted(key for key in set(wanted) & set(state) if wanted[key] != state[key].shape)
    for what, keys in (("lack", missing), ("have an unknown", unknown), ("have another shape of", other)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise DatasetError(f"weights of {source} {what} '{keys[0]}'{more}: they are of another network")
    network.load_state_dict(state, strict=True, assign=any(p.is_meta for p in network.parameters()))
