"""Losses and errors on held-out demonstrations."""

from __future__ import annotations

import math

import numpy as np
import torch

from recap.policies.config import PolicyConfig
from recap.policies.model import SlotModel
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.data_cache import TrainingData
from recap.training.samples import Samples
from recap.training.statistics import units_of

N_VALIDATED = 1024  # held-out frames


def replay_rms(samples: Samples, config: PolicyConfig) -> float:
    """RMS error of executing the best match unchanged, on the frames that `validate` uses."""
    rows = np.linspace(0, len(samples) - 1, min(N_VALIDATED, len(samples))).astype(int)
    apart = (samples.actions[rows] - samples.base[rows, 0]) / units_of(config)
    valid = samples.valid[rows]
    return float(np.sqrt((np.square(apart) * valid).sum() / max(valid.sum(), 1.0)))


@torch.no_grad()
def validate(
    model: SlotModel, source: BatchSource, data: TrainingData, device: torch.device
) -> tuple[dict[str, float], float]:
    """Losses on held-out frames with fixed noise, and the RMS error of the sampled chunk.

    The error is in the actions' own units; those of a metric robot are divided by the scale of their kind.
    """
    n = min(N_VALIDATED, len(source))
    rows = torch.linspace(0, len(source) - 1, n).long().to(device)
    generator = torch.Generator(device).manual_seed(0)
    sums: dict[str, float] = {}
    square, count = 0.0, 0.0
    std = torch.from_numpy(data.statistics.std["action"] / units_of(model.config)).to(device)
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    for part in torch.split(rows, 256):
        batch = source.take(part, NO_AUGMENT, generator)
        noise = model.draw_noise(len(part), generator, device)
        level = torch.rand(len(part), generator=generator, device=device)
        with mixed:
            for name, loss in model.losses(batch, noise, level).items():
                sums[name] = sums.get(name, 0.0) + float(loss.sum()) / n
            predicted = model.sample(batch, noise, model.config.sampling)["action"]
        assert batch.weight is not None
        error = ((predicted.float() - batch.values["action"]) * std) ** 2 * batch.weight
        square, count = square + float(error.sum()), count + float(batch.weight.sum())
    return sums, math.sqrt(square / max(count, 1.0))
