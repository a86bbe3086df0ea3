"""The share of image change that a policy predicts, by horizon, compared with copying and upper bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recap.policies.config import SamplingConfig
from recap.policies.layout import future_frames
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.samples import I64
from recap.types import F64
from recap_research.boards import draw_boards
from recap_research.recorded import Recorded, scenes

UNMATCHED = replace(NO_AUGMENT, retrieval_dropout=1.0)


@dataclass(frozen=True)
class Way:
    """A way to draw predictions from the network."""

    name: str
    given: bool = False  # the executed action is given to the network
    steps: int = 1  # with one step the network predicts the mean
    temperature: float = 1.0
    samples: int = 1  # the images of the samples are averaged


WAYS = (
    Way("jointly, mean in one step"),
    Way("jointly, a sample in 2 steps, temperature 0.5", steps=2, temperature=0.5),
    Way("jointly, a sample in 5 steps", steps=5),
    Way("jointly, mean of 8 samples in 5 steps", steps=5, samples=8),
    Way("action given, mean in one step", given=True),
    Way("action given, a sample in 5 steps", given=True, steps=5),
    Way("action given, mean of 8 samples in 5 steps", given=True, steps=5, samples=8),
)


class Foresight:
    """Held-out frames, and the images that followed them."""

    def __init__(
        self, policy: TrainedPolicy, source: BatchSource, one: Recorded, rows: I64, pusher: str = "triangle"
    ) -> None:
        self.policy, self.source, self.one, self.rows, self.pusher = policy, source, one, rows, pusher
        self.device = policy.device
        self.drawn = [part.to(self.device) for part in scenes(one, policy.config.image.size)]
        self.slots = {f"{name}/top": far for name, far in future_frames(policy.config).items()}
        self.errors: dict[tuple[str, int], list[Tensor]] = {}  # name, horizon -> squared errors

    def run(self, ways: Sequence[Way] = WAYS, at_once: int = 60) -> list[dict[str, Any]]:
        """One row for each way and horizon."""
        for number, part in enumerate(np.array_split(self.rows, -(-len(self.rows) // at_once))):
            generator = torch.Generator(self.device).manual_seed(number)
            self._bounds(part)
            for way in ways:
                for far, frames in self.predict(part, way, generator).items():
                    self._note(way.name, far, frames, part)
        return [self._row(what, far) for what, far in self.errors if what != "change"]

    def picture(self, rows: I64) -> Tensor:
        """Rendered images (n, 3, s, s) in 0…255."""
        return self._mixed(rows, rows)

    def batch(self, rows: I64, given: bool, matched: bool = True) -> Batch:
        """A batch as the policy receives it."""
        generator = torch.Generator(self.device).manual_seed(0)
        augment = NO_AUGMENT if matched else UNMATCHED
        batch = self.source.take(torch.as_tensor(rows, device=self.device), augment, generator)
        acted = torch.full((len(rows),), given, device=self.device)
        return replace(batch, acted=acted if given else None)

    @torch.inference_mode()
    def predict(self, rows: I64, way: Way, generator: torch.Generator) -> dict[int, Tensor]:
        """Predicted images (n, 3, s, s) by horizon. The second chunk starts from the predicted frame."""
        now = self.picture(rows)
        found: dict[int, list[Tensor]] = {}
        twice = 2 * self.policy.config.chunk_size
        for _ in range(way.samples):
            batch = self.batch(rows, way.given)
            drawn = self._draw(batch, way, generator)
            for slot, far in self.slots.items():
                found.setdefault(far, []).append(self._laid_on(now, batch, drawn[slot]))
            later = self._go_on(rows, drawn, way)
            far_drawn = self._draw(later, way, generator)[self._last]
            found.setdefault(twice, []).append(self._laid_on(now, batch, far_drawn))
        return {far: torch.stack(shown).mean(0) for far, shown in found.items()}

    @property
    def _last(self) -> str:
        return max(self.slots, key=lambda slot: self.slots[slot])

    def _draw(self, batch: Batch, way: Way, generator: torch.Generator) -> dict[str, Tensor]:
        model, sampling = self.policy.model, SamplingConfig(n_steps=way.steps, temperature=way.temperature)
        noise = model.draw_noise(len(batch), generator, self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return {k: v.float() for k, v in model.sample(batch, noise, sampling).items()}

    def _go_on(self, rows: I64, drawn: dict[str, Tensor], way: Way) -> Batch:
        """The batch at the end of the predicted chunk, without retrieved chunks."""
        config, statistics = self.policy.config, self.policy.statistics
        then = self.one.ahead(rows, config.chunk_size)
        batch = self.batch(then, way.given, matched=False)
        body = statistics.restore("future_proprio", drawn["future_proprio"])
        values = {**batch.values, "frame/top": drawn[self._last]}
        true = statistics.restore("proprio", values["proprio"])
        values["proprio"] = statistics.normalise("proprio", body)
        std = torch.from_numpy(statistics.std["action"]).to(self.device)
        values["action"] = values["action"] + (true - body).repeat(1, config.chunk_size) / std
        return replace(batch, values=values)

    def _laid_on(self, now: Tensor, batch: Batch, latent: Tensor) -> Tensor:
        """The current image plus the difference of the decoded prediction from the decoded current image."""
        assert self.policy.encoder is not None
        decode: Callable[[Tensor], Tensor] = self.policy.encoder.decode
        change = (decode(latent).clamp(-1, 1) - decode(batch.values["frame/top"]).clamp(-1, 1)) * 127.5
        return (now + change).clamp(0, 255)

    @torch.inference_mode()
    def _bounds(self, rows: I64) -> None:
        assert self.policy.encoder is not None
        now = self.picture(rows)
        batch = self.batch(rows, False)
        for far in (*self.slots.values(), 2 * self.policy.config.chunk_size):
            then = self.one.ahead(rows, far)
            self._note("change", far, now, rows)
            self._note("copying the present", far, now, rows)
            self._note("true pusher drawn, block kept", far, self._mixed(rows, then), rows)
            self._note("true block drawn, pusher kept", far, self._mixed(then, rows), rows)
            latent = self.policy.encoder.encode(self.picture(then) / 127.5 - 1)
            self._note("what came, through the autoencoder", far, self._laid_on(now, batch, latent), rows)

    def _mixed(self, blocks: I64, pushers: I64) -> Tensor:
        """Boards with the block of some frames and the pusher of others."""
        ground, which, at, poses = self.drawn
        b, p = (torch.as_tensor(r, device=self.device) for r in (blocks, pushers))
        return draw_boards(ground[which[b]], at[p], poses[b], self.pusher).permute(0, 3, 1, 2).float()

    def _note(self, what: str, far: int, guess: Tensor, rows: I64) -> None:
        then = self.picture(self.one.ahead(rows, far))
        error = (guess.round() - then).square().sum((1, 2, 3)).double().cpu()
        self.errors.setdefault((what, far), []).append(error)

    def _row(self, what: str, far: int) -> dict[str, Any]:
        error, change = (torch.cat(self.errors[key, far]).numpy() for key in (what, "change"))
        low, high = interval(error, change, self.one.owner[self.rows])
        return {
            "what": what,
            "steps_ahead": far,
            "explained": round(float(1 - error.sum() / change.sum()), 4),
            "interval": [round(low, 4), round(high, 4)],
        }


def interval(error: F64, change: F64, owner: I64, n: int = 2000) -> tuple[float, float]:
    """The 95 % interval of the explained share; demonstrations are resampled."""
    names = np.unique(owner)
    sums = np.array([[error[owner == name].sum(), change[owner == name].sum()] for name in names])
    drawn = sums[np.random.default_rng(0).integers(len(names), size=(n, len(names)))].sum(1)
    low, high = np.percentile(1 - drawn[:, 0] / drawn[:, 1], (2.5, 97.5))
    return float(low), float(high)
