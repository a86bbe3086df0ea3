"""How good a model is on demonstrations that it never learned from."""

from __future__ import annotations

import math

import torch

from recap.policies.model import SlotModel
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.data import TrainingData

N_JUDGED = 1024  # held-out moments


@torch.no_grad()
def judge(
    model: SlotModel, source: BatchSource, data: TrainingData, device: torch.device
) -> tuple[dict[str, float], float]:
    """Losses on held-out moments with always the same noise, and the sampled chunk's error in world units."""
    n = min(N_JUDGED, len(source))
    rows = torch.linspace(0, len(source) - 1, n).long().to(device)
    generator = torch.Generator(device).manual_seed(0)
    sums: dict[str, float] = {}
    square, count = 0.0, 0.0
    std = torch.from_numpy(data.statistics.std["action"]).to(device)
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    for part in torch.split(rows, 256):
        batch = source.take(part, NO_AUGMENT, generator)
        noise = model.draw_noise(len(part), generator, device)
        level = torch.rand(len(part), generator=generator, device=device)
        with mixed:
            for name, loss in model.losses(batch, noise, level).items():
                sums[name] = sums.get(name, 0.0) + float(loss.sum()) / n
            found = model.sample(batch, noise, model.config.sampling)["action"]
        assert batch.weight is not None
        error = ((found.float() - batch.values["action"]) * std) ** 2 * batch.weight
        square, count = square + float(error.sum()), count + float(batch.weight.sum())
    return sums, math.sqrt(square / max(count, 1.0))
