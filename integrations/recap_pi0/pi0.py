"""Builds and loads transformers' π0-type network, unmodified, and tokenizes instructions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recap.errors import DatasetError
from recap.features.language import WORD
from recap.features.pretrained import find_model, load_tokenizer, optional_module
from recap.policies.network import load_strictly, read_part, read_weights
from recap_pi0.config import Pi0NetworkConfig

# Pattern of a published name -> our name, applied in this order. LeRobot policies add the prefix `model.`.
NAMES = (
    (r"^model\.(?=paligemma_with_expert|action_|time_mlp|state_proj)", ""),
    (r"^paligemma_with_expert\.paligemma\.lm_head\.", "model.vlm.language_model.embed_tokens."),
    (r"^paligemma_with_expert\.paligemma\.model\.", "model.vlm."),
    (r"^paligemma_with_expert\.gemma_expert\.model\.", "model.dit."),
    (r"^model\.vlm\.vision_tower\.vision_model\.", "model.vlm.vision_tower."),
    (r"^model\.vlm\.language_model\.model\.", "model.vlm.language_model."),
)
PI0_NAMES = (
    (r"^paligemma_with_expert\.gemma_expert\.lm_head\.", "model.dit.embed_tokens."),
    (r"^(?=state_proj|action_in_proj|action_time_mlp)", "embed_action_time."),
)
BEGIN, NO_WORD = 2, -1  # ids of Gemma's token for the beginning, and of padding


def build_pi0(config: Pi0NetworkConfig, image_size: int, chunk_size: int) -> nn.Module:
    """A `PI0ForConditionalGeneration` with random weights."""
    transformers = optional_module("transformers", "a π0-type policy")
    heads = {
        "model_type": "gemma",
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.attention_head_dim,
        "vocab_size": config.n_words,
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": config.vision_dim,
        "intermediate_size": config.vision_mlp_dim,
        "num_hidden_layers": config.vision_layers,
        "num_attention_heads": config.vision_heads,
        "patch_size": config.vision_patch,
        "image_size": image_size,
        "vision_use_head": False,
    }
    prefix = {**heads, "hidden_size": config.prefix_dim, "intermediate_size": config.prefix_mlp_dim}
    expert = {**heads, "hidden_size": config.expert_dim, "intermediate_size": config.expert_mlp_dim}
    network: nn.Module = transformers.PI0ForConditionalGeneration(
        transformers.PI0Config(
            vlm_config={
                "model_type": "paligemma",
                "text_config": prefix,
                "vision_config": vision,
                "projection_dim": config.prefix_dim,
                "image_token_id": config.n_words,
            },
            dit_config=expert,
            chunk_size=chunk_size,
            max_state_dim=config.max_state_dim,
            max_action_dim=config.max_action_dim,
        )
    )
    return network


def load_pretrained_pi0(network: nn.Module, source: str) -> None:
    """Load published weights of the π0 type, strictly, from a directory or a hub name.

    Missing or unexpected keys and other shapes are errors, and so are other sizes of the network, even if
    the weights would fit. A config.json of LeRobot does not contain sizes.
    """
    transformers = optional_module("transformers", "a π0-type policy")
    directory = find_model(source, "π0-type network")
    told = read_part(directory)
    if "vlm_config" in told:
        ours, theirs = _sizes(network.config), _sizes(transformers.PI0Config.from_dict(told))
        for name, value in ours.items():
            if theirs[name] != value:
                raise DatasetError(
                    f"weights of {source} are of a network with {name} {theirs[name]}, the policy's has "
                    f"{value}: set policy.network and policy.image.size to theirs"
                )
    load_strictly(network, published_names(read_weights(directory), PI0_NAMES), source)


def published_names(weights: dict[str, Tensor], names: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Rename weights to our names; those with an empty new name are dropped."""
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        for pattern, ours in (*NAMES, *names):
            name = re.sub(pattern, ours, name)
        if name:
            renamed[name] = value
    return renamed


def _sizes(config: Any) -> dict[str, Any]:
    """Settings that the shapes of weights do not determine."""
    parts = {
        "text": config.vlm_config.text_config,
        "expert": config.dit_config,
        "vision": config.vlm_config.vision_config,
    }
    sizes = {
        f"{part}.{name}": getattr(values, name)
        for part, values in parts.items()
        for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    }
    return {**sizes, "min_period": config.min_period, "max_period": config.max_period}


def freeze_unused(network: Any, sees: bool) -> None:
    """Freeze weights that do not affect actions, because a distributed run would wait for their gradients.

    The expert uses only the keys and values of each layer of the prefix. So the rest of the prefix's last
    layer has no effect, and neither have the expert's word embeddings.
    """
    prefix = network.model.vlm.language_model
    last = prefix.layers[-1]
    unused = [prefix.norm, last.mlp, last.post_attention_layernorm, last.self_attn.q_proj]
    unused += [last.self_attn.o_proj, network.model.dit.embed_tokens or nn.Identity()]  # π0.5 has no words
    if not sees:
        unused += [network.model.vlm.vision_tower, network.model.vlm.multi_modal_projector]
    for module in unused:
        module.requires_grad_(False)


def hashed_ids(tasks: Sequence[str], config: Pi0NetworkConfig) -> Tensor:
    """Word ids (n, L) by hashing, so that a small network trained from scratch needs no vocabulary."""
    rows = []
    for task in tasks:
        digests = [hashlib.sha256(word.encode()).digest()[:8] for word in WORD.findall(task.lower())]
        ids = [int.from_bytes(digest, "big") % (config.n_words - BEGIN - 1) for digest in digests]
        rows.append([BEGIN, *(BEGIN + 1 + number for number in ids)])
    return _padded(rows, config.n_text_tokens)


def tokenized_ids(texts: Sequence[str], tokenizer: Any, config: Pi0NetworkConfig) -> Tensor:
    """Ids (n, L) of a published tokenizer, after its token for the beginning."""
    begun = [f"{tokenizer.bos_token or ''}{text}" for text in texts]
    rows: list[list[int]] = tokenizer(begun, add_special_tokens=False)["input_ids"]
    for row in rows:
        if max(row, default=0) >= config.n_words:
            raise DatasetError(f"the tokenizer has id {max(row)}, the network {config.n_words}: use its own")
    return _padded(rows, config.n_text_tokens)


def published_tokenizer(source: str) -> Any:
    """Load a tokenizer from a directory or a hub name."""
    return load_tokenizer(find_model(source, "tokenizer"))


def _padded(rows: list[list[int]], length: int) -> Tensor:
    return torch.tensor([(row + [NO_WORD] * length)[:length] for row in rows])
