"""Trainings in miniature, to rehearse a plan on a CPU."""

from __future__ import annotations

from dataclasses import replace

from recap.policies.network import TINY
from recap.training.config import TrainConfig


def shrunk(config: TrainConfig) -> TrainConfig:
    """As small as it can be."""
    image = replace(config.policy.image, size=32)
    policy = replace(config.policy, network=TINY, chunk_size=8, image=image)
    return replace(
        config,
        policy=policy,
        held_out=0.34,
        batch_size=8,
        n_iterations=4,
        warm_up=1,
        validate_every=4,
        save_every=4,
        bf16=False,
        compile=False,
        autoencoder_iterations=2,
        autoencoder_batch=4,
    )
