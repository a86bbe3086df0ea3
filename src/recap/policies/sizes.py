"""The sizes of networks that are used here; no torch is needed to name them."""

from __future__ import annotations

from recap.policies.config import NetworkConfig, Pi0NetworkConfig

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
PI0_TINY = Pi0NetworkConfig()
PI0_DEBUG = Pi0NetworkConfig(
    num_layers=2,
    num_attention_heads=2,
    prefix_dim=64,
    prefix_mlp_dim=128,
    expert_dim=64,
    expert_mlp_dim=128,
    vision_layers=1,
    vision_heads=2,
    vision_dim=64,
    vision_mlp_dim=128,
    vision_patch=8,
    n_words=64,
    n_text_tokens=8,
)
PI0_BASE = Pi0NetworkConfig(
    num_layers=18,
    num_attention_heads=8,
    num_key_value_heads=1,
    attention_head_dim=256,
    prefix_dim=2048,
    prefix_mlp_dim=16_384,
    expert_dim=1024,
    expert_mlp_dim=4096,
    vision_layers=27,
    vision_heads=16,
    vision_dim=1152,
    vision_mlp_dim=4304,
    vision_patch=14,
    n_words=257_152,
    n_text_tokens=48,
)
