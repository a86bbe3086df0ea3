"""Flow matching: the straight path from data to noise, and the solvers for the way back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from recap.policies.config import PolicyConfig, SamplingConfig

Velocity: TypeAlias = Callable[[Tensor, float], Tensor]  # (B, n) at a noise level -> (B, n)


def noisy(clean: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """The point of the path at `level` (B,): 0 is the data, 1 the noise."""
    at = level.view(-1, *[1] * (clean.ndim - 1))
    return (1 - at) * clean + at * noise


def draw_levels(
    n: int, config: PolicyConfig, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Noise levels (n,) for training; a shift above 1 moves them towards the noise."""
    if config.noise == "uniform":
        level = torch.rand(n, generator=generator, device=device)
    else:
        level = torch.randn(n, generator=generator, device=device).sigmoid()
    shift = config.noise_shift
    return level if shift == 1 else shift * level / (1 + (shift - 1) * level)


def velocity(clean: Tensor, noise: Tensor) -> Tensor:
    """The direction of the path, which is constant."""
    return noise - clean


def solve(field: Velocity, noise: Tensor, config: SamplingConfig) -> Tensor:
    """Solve from noise (B, n) to data, with `n_steps` evaluations of the velocity field."""
    levels = torch.linspace(1, 0, config.n_steps + 1).tolist()
    start = noise * config.temperature
    return _unipc(field, start, levels) if config.sampler == "unipc" else _euler(field, start, levels)


def _euler(field: Velocity, x: Tensor, levels: list[float]) -> Tensor:
    for level, following in pairwise(levels):
        x = x + (following - level) * field(x, level)
    return x


def _unipc(field: Velocity, x: Tensor, levels: list[float]) -> Tensor:
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(
        num_train_timesteps=1000, prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=1.0
    )
    scheduler.set_timesteps(len(levels) - 1, device=x.device)
    for step, level in enumerate(scheduler.sigmas[:-1].tolist()):
        x = scheduler.step(field(x, level), scheduler.timesteps[step], x, return_dict=False)[0]
    return x
