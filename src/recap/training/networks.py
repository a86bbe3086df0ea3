"""What a run trains: the network, its smoothed weights (EMA), the optimizer and the learning rate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recap.policies.layout import present_slot
from recap.policies.model import Batch, SlotModel
from recap.policies.policy import Statistics, TrainedPolicy
from recap.training.config import TrainConfig
from recap.training.samples import Samples
from recap.training.sharding import empty_copy, shard


class Loss(nn.Module):
    """The model with losses as `forward`, as distributed training needs."""

    def __init__(self, model: SlotModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, noise: dict[str, Tensor], level: Tensor) -> dict[str, Tensor]:
        """The mean loss of each slot."""
        return {name: loss.mean() for name, loss in self.model.losses(batch, noise, level).items()}


def build_networks(
    config: TrainConfig, begun: TrainedPolicy | None, device: torch.device, n_shards: int
) -> tuple[Loss, SlotModel]:
    """The model to train and its smoothed weights (EMA); either both are sharded or neither.

    Args:
        begun: a policy to fine-tune.
        n_shards: processes that the weights are split over; 1: no sharding.
    """
    torch.manual_seed(config.seed)
    model = config.policy.network.model()(config.policy)
    if config.weights is not None:
        model.load_published(config.weights)
    if begun is not None:
        model.load_state_dict(begun.model.state_dict())
    ema = empty_copy(model).eval()
    if n_shards == 1:
        model = model.to(device)
    if config.checkpointing:
        model.recompute_activations()
    if config.compile and device.type == "cuda":
        compile_blocks(model, config.policy.network.blocks)  # before sharding, as torch requires
    loss = Loss(model)
    if n_shards > 1:  # from the CPU, so that the device never holds all weights
        shard(loss, config.policy.network.blocks, n_shards, device)
    ema.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    return loss, ema.to(device).requires_grad_(False)


def compile_blocks(model: nn.Module, names: tuple[str, ...]) -> None:
    """Compile block by block: equal blocks share the code, also in later runs of a process."""
    for part in model.modules():
        if type(part).__name__ in names:
            part.compile(dynamic=False)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    fused = all(p.is_cuda for p in model.parameters())
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.99), fused=fused)


def with_change_deviations(statistics: Statistics, samples: Samples, latents: Tensor) -> Statistics:
    """Add the root mean square change of each latent channel from the present to the future image."""
    std = dict(statistics.std)
    rows = np.linspace(0, len(samples) - 1, min(len(samples), 4096)).astype(int)
    for slot, then in samples.images.items():
        if slot.startswith("future_"):
            now = samples.images[present_slot(slot)]
            change = latents[then[rows], 0].float() - latents[now[rows], 0].float()  # (n, c, h, w)
            std[slot] = change.square().mean((0, 2, 3)).sqrt().clamp_min(1e-3).cpu().numpy()
    return replace(statistics, std=std)


def cosine(peak: float, iteration: int, n_iterations: int, warm_up: int) -> float:
    """Linear warm-up to `peak`, then half a cosine down to zero."""
    if iteration < warm_up:
        return peak * (iteration + 1) / warm_up
    share = (iteration - warm_up) / max(1, n_iterations - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def learning_rate(config: TrainConfig, iteration: int) -> float:
    """The learning rate at an iteration."""
    if not config.decay:
        return config.learning_rate * min(1.0, (iteration + 1) / max(1, config.warm_up))
    return cosine(config.learning_rate, iteration, config.n_iterations, config.warm_up)


def describe_plan(config: TrainConfig, n_processes: int = 1) -> dict[str, Any]:
    """A summary of a run without running it: sizes, parameters and estimated memory."""
    with torch.device("meta"):
        model = config.policy.network.model()(config.policy)
    n = sum(p.numel() for p in model.parameters())
    network = config.policy.network
    tokens = model.n_tokens
    micro = config.batch_size // (config.accumulate * n_processes)
    kept = 2 if config.checkpointing else 20  # activations of size `width` per token and layer, roughly
    activations = micro * tokens * network.width * network.num_layers * kept * (2 if config.bf16 else 4)
    weights = n * 4 * 5  # weights, gradients, two optimizer moments and smoothed weights
    shards = n_processes if config.fsdp else 1
    gathered = 0 if shards == 1 else 2 * n * 4 / network.num_layers  # the current and the prefetched block
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
