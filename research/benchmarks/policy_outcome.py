"""Predicted frames compared with the frames that followed, at each distance that the policy predicts.

Frames are predicted for held-out demonstrations in four ways: given the executed chunk, in one step (the
mean), as one sample and as the mean of several samples; and with the policy's own chunk. The explained
share is of the squared change of pixels: 0 for copying the present, 1 for a perfect prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recap.policies.config import SamplingConfig
from recap.policies.layout import future_frames
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.types import F64, U8

Latents = Mapping[str, Tensor]  # name of a predicted frame -> (B, c, h, w)
N_RESAMPLES = 2000
AT_ONCE = 128


@dataclass(frozen=True)
class Errors:
    """Squared pixel errors of some frames: of a prediction, and of copying the present."""

    predicted: F64  # (n,)
    copied: F64  # (n,)

    def row(self, episodes: NDArray[np.int64]) -> dict[str, float]:
        """The explained share, with an interval over episodes."""
        names, place = np.unique(episodes, return_inverse=True)
        sums = np.stack([np.bincount(place, v) for v in (self.predicted, self.copied)])  # (2, episodes)
        drawn = np.random.default_rng(0).integers(len(names), size=(N_RESAMPLES, len(names)))
        shares = 1 - sums[0][drawn].sum(1) / sums[1][drawn].sum(1)
        low, high = np.quantile(shares, (0.025, 0.975))
        whole = 1 - self.predicted.sum() / self.copied.sum()
        return {"explained": float(whole), "low": float(low), "high": float(high)}


def outcomes(
    policy: TrainedPolicy, batch: Batch, generator: torch.Generator, n_samples: int
) -> dict[str, Latents]:
    """Way -> its predictions for a batch that contains the executed chunk."""
    model, device = policy.model, policy.device

    def noise() -> dict[str, Tensor]:
        return model.draw_noise(len(batch), generator, device)

    def given(action: Tensor, n_steps: int) -> dict[str, Tensor]:
        steps = policy.with_sampling(outcome_steps=n_steps)
        return steps.outcome(batch, action, noise())

    executed = batch.values["action"]
    drawn = [given(executed, 5) for _ in range(n_samples)]
    own = model.sample(batch, noise(), policy.config.sampling)
    alone = model.sample(batch, noise(), SamplingConfig(n_steps=1))
    return {
        "given the chunk, 1 step": given(executed, 1),
        "given the chunk, a sample of 5 steps": drawn[0],
        f"given the chunk, mean of {n_samples} samples": {
            name: torch.stack([one[name] for one in drawn]).mean(0) for name in drawn[0]
        },
        "given the policy's own chunk, 1 step": given(own["action"], 1),
        "drawn with the policy's own chunk": own,
        "no chunk, 1 step": alone,
    }


def explained(
    policy: TrainedPolicy,
    source: BatchSource,
    pictures: U8,
    rows: NDArray[np.int64],
    episodes: NDArray[np.int64],
    n_samples: int = 8,
    show: Callable[[str, str, U8], None] | None = None,
) -> list[dict[str, object]]:
    """A row for each distance and way; `rows` and `episodes` (n,) are the frames and their episodes.

    Args:
        show: called with the frame's name, the way and the predicted images.
    """
    camera = policy.config.image.future[0]
    images = source.samples.images
    now = pictures[images[f"frame/{camera}"][rows]]
    ways: dict[str, dict[str, list[Tensor]]] = {}
    generator = torch.Generator(policy.device).manual_seed(0)
    for part in torch.from_numpy(rows).split(AT_ONCE):
        batch = source.take(part.to(policy.device), NO_AUGMENT, generator)
        for way, found in outcomes(policy, batch, generator, n_samples).items():
            for frame in future_frames(policy.config):
                ways.setdefault(way, {}).setdefault(frame, []).append(found[f"{frame}/{camera}"].cpu())
    table: list[dict[str, object]] = []
    for frame, ahead in future_frames(policy.config).items():
        then = pictures[images[f"{frame}/{camera}"][rows]]
        came = torch.from_numpy(policy.encode_pictures(then))
        guesses = {"what came, through the autoencoder": came}
        guesses |= {way: torch.cat(found[frame]) for way, found in ways.items()}
        copied = squared(now, then)
        for way, latents in guesses.items():
            guess = laid_on(policy, now, latents)
            row = Errors(squared(guess, then), copied).row(episodes)
            table.append({"ahead": ahead, "what": way, "n": len(rows), **row})
            if show is not None:
                show(frame, way, guess)
    return table


def whole_chunks(source: BatchSource, n: int) -> NDArray[np.int64]:
    """n frames, spread evenly over those whose chunk lies within their demonstration."""
    whole = np.flatnonzero(source.samples.valid.all(axis=1))
    return whole[np.unique(np.linspace(0, len(whole) - 1, n).astype(int))]


def laid_on(policy: TrainedPolicy, now: U8, latents: Tensor) -> U8:
    """The current images plus the difference of the decoded ones, so that unchanged parts stay exact."""
    change = policy.decode_frames(latents).astype(np.int16)
    change -= policy.decode_frames(policy.encode_pictures(now)).astype(np.int16)
    return np.clip(now + change, 0, 255).astype(np.uint8)


def squared(a: U8, b: U8) -> F64:
    """The squared difference of each pair of images."""
    apart = a.astype(np.float32) - b.astype(np.float32)
    return np.square(apart).sum(axis=(1, 2, 3), dtype=np.float64)
