"""diffusers' Cosmos video transformer, unmodified, in the sizes that are used here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from recap.errors import DatasetError, InputError
from recap.policies.config import NetworkConfig

NANO = NetworkConfig()
TINY = NetworkConfig(
    num_attention_heads=2, attention_head_dim=32, num_layers=2, text_embed_dim=64, adaln_lora_dim=16
)
COSMOS_2B = NetworkConfig(
    num_attention_heads=16,
    attention_head_dim=128,
    num_layers=28,
    text_embed_dim=1024,
    adaln_lora_dim=256,
    max_size=(128, 240, 240),
    rope_scale=(1.0, 3.0, 3.0),
    concat_padding_mask=True,
    use_crossattn_projection=True,
    crossattn_proj_in_channels=100_352,
    encoder_hidden_states_channels=1024,
    time_scale=1.0,
)
NETWORKS = {"tiny": TINY, "nano": NANO, "cosmos-2b": COSMOS_2B}


def build_network(config: NetworkConfig, channels: int) -> nn.Module:
    """A `CosmosTransformer3DModel` with fresh weights."""
    from diffusers import CosmosTransformer3DModel

    values = asdict(config)
    del values["time_scale"]
    # The padding mask is a channel after the condition mask. diffusers would resize it with torchvision,
    # which is no dependency of ours: the channel is counted as an input and given by `call_network`.
    values["concat_padding_mask"] = False
    extra = 2 if config.concat_padding_mask else 1
    network: nn.Module = CosmosTransformer3DModel(
        in_channels=channels + extra, out_channels=channels, extra_pos_embed_type=None, **values
    )
    return network


def text_width(config: NetworkConfig) -> int:
    """Of a token of the instruction."""
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


def load_pretrained_network(network: nn.Module, source: str | Path) -> None:
    """Load a published transformer, strictly, from a directory or a hub name.

    Any key that is missing, left over or of another shape is an error.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(source)
    if not folder.exists():
        folder = _from_hub(str(source))
    inner = folder / "transformer"
    files = (
        sorted((inner if inner.is_dir() else folder).glob("*.safetensors")) if folder.is_dir() else [folder]
    )
    if not files:
        raise DatasetError(f"no weights in {folder}: give a directory with .safetensors files")
    state: dict[str, Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise DatasetError(f"weights {file} cannot be read: {str(error).splitlines()[0]}") from error
    load_strictly(network, state, str(source))


def load_strictly(network: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load weights, or name in one line what does not fit."""
    wanted = {key: value.shape for key, value in network.state_dict().items()}
    missing = sorted(set(wanted) - set(state))
    unknown = sorted(set(state) - set(wanted))
    other = sorted(key for key in set(wanted) & set(state) if wanted[key] != state[key].shape)
    for what, keys in (("lack", missing), ("have an unknown", unknown), ("have another shape of", other)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise DatasetError(f"weights of {source} {what} '{keys[0]}'{more}: they are of another network")
    network.load_state_dict(state, strict=True, assign=any(p.is_meta for p in network.parameters()))


def _from_hub(name: str) -> Path:
    """The transformer of a repository on the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["transformer/*", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise InputError(
            f"no weights at '{name}': it is no directory, and the hub gave none ({type(error).__name__})"
        ) from error
