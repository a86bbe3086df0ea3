"""Training recipes of Meta-World: images, hand and gripper; no object poses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recap.policies.config import ImageConfig, PolicyConfig, SamplingConfig
from recap.policies.sizes import NANO, TINY
from recap.robot import load_robot
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig
from recap.training.presets import DEBUG

_ARM = PolicyConfig(
    load_robot(Path(__file__).with_name("robot.yaml")),
    "image",
    inputs="I",
    chunk_size=16,
    image=ImageConfig(
        cameras=("scene", "wrist"), camera_size=128, size=64, channels=16, future_cameras=("wrist",)
    ),
    # A quarter of the usual nano, so that the weights can be included in the package.
    network=replace(NANO, text_embed_dim=128, num_attention_heads=3, num_layers=6, adaln_lora_dim=32),
    sampling=SamplingConfig(n_steps=2, temperature=0.5),
    text="none",  # the retrieved chunk determines the task
    n_action_steps=8,
)
_ALONE = replace(_ARM, retrieval=False, residual=False, text="content-words")
_OURS = TrainConfig(
    "metaworld-nano",
    policy=_ARM,
    # As at test time: other scenes of the task, aligned by time.
    pairs=PairsConfig(k=3, action_weight=0.0, allow_twin=False, n_candidates=3, leave_out=True),
    augment=AugmentConfig(chunk_noise=0.01, state_noise=0.002, image_dropout=0.0, retrieval_dropout=0.05),
    target="data/metaworld/seen.safetensors",
    pool="data/metaworld/seen.safetensors",
    n_iterations=1200,
)
RECIPES: dict[str, TrainConfig] = {
    config.preset: config
    for config in (
        _OURS,
        # Trained on seen tasks. Trained also on demonstrations of new tasks, this is co-training.
        replace(_OURS, preset="metaworld-nano-no-retrieval", policy=_ALONE, pairs=PairsConfig()),
        TrainConfig(
            "debug-metaworld",
            policy=replace(_ARM, chunk_size=8, network=TINY, image=replace(_ARM.image, size=32)),
            pairs=_OURS.pairs,
            augment=_OURS.augment,
            **DEBUG,
        ),
    )
}
