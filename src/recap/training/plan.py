"""What a run would be, before it is one."""

from __future__ import annotations

from typing import Any

import torch

from recap.policies.backbones import build_model
from recap.training.config import TrainConfig


def describe_plan(config: TrainConfig, n_processes: int = 1) -> dict[str, Any]:
    """What a run would be, without running it: sizes, parameters and an estimate of memory."""
    with torch.device("meta"):
        model = build_model(config.policy)
    n = sum(p.numel() for p in model.parameters())
    network = config.policy.network
    tokens = model.n_tokens
    micro = config.batch_size // (config.accumulate * n_processes)
    kept = 2 if config.checkpointing else 20  # activations of width `width` kept a token and layer, roughly
    activations = micro * tokens * network.width * network.num_layers * kept * (2 if config.bf16 else 4)
    weights = n * 4 * 5  # weights, gradients, two moments and the smoothed copy
    shards = n_processes if config.fsdp else 1
    gathered = 0 if shards == 1 else 2 * n * 4 / network.num_layers  # a block, and the next one on its way
    return {
        "preset": config.preset,
        "slots": [f"{s.name}{' *' if s.denoised else ''}" for s in model.layout.slots],
        "tokens": tokens,
        "parameters": n,
        "iterations": config.n_iterations,
        "samples": config.n_iterations * config.batch_size,
        "batch": f"{micro} × {config.accumulate} × {n_processes} = {config.batch_size}",
        "flops_per_sample": 6 * n * tokens,
        "fsdp": config.fsdp,
        "shards": shards,
        "weights_gib": round(weights / 2**30, 2),
        "held_gib": round(weights / shards / 2**30, 2),
        "memory_gib": round((weights / shards + gathered + activations) / 2**30, 2),
    }
