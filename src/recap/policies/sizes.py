"""Sizes of networks; importing this module does not need torch."""

from __future__ import annotations

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
COSMOS_HUB = "nvidia/Cosmos-Predict2.5-2B@diffusers/base/post-trained"
