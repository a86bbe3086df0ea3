"""Samples on the device, drawn and varied: the same step gives the same batch on any number of processes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from recap.policies.backbones import model_class
from recap.policies.config import PolicyConfig
from recap.policies.encodings import PLACES, TURNS
from recap.policies.layout import build_layout
from recap.policies.model import Batch
from recap.policies.policy import Statistics
from recap.policies.vectors import letters_of
from recap.training.config import AugmentConfig
from recap.training.motion import Motion, displacement
from recap.training.samples import Samples

NO_AUGMENT = AugmentConfig(retrieval_dropout=0.0, image_dropout=0.0, latent_noise=0.0)


class BatchSource:
    """Turns rows of samples into normalised batches.

    Args:
        latents: (m, 2, c, h, w) of every picture and its mirror image; the pictures themselves as bytes
            (m, 3, h, w) for a policy that sees pixels; empty for one without images.
    """

    def __init__(
        self,
        samples: Samples,
        latents: Tensor,
        statistics: Statistics,
        config: PolicyConfig,
        device: torch.device,
    ) -> None:
        self.samples, self.config, self.device = samples, config, device
        self.layout = build_layout(config)
        self.latents = latents
        self._fixed = {k: torch.from_numpy(v).to(device) for k, v in samples.fixed.items()}
        self._matched = {k: torch.from_numpy(v).to(device) for k, v in samples.matched.items()}
        self._actions = torch.from_numpy(samples.actions).to(device)
        self._base = torch.from_numpy(samples.base).to(device)
        self._valid = torch.from_numpy(samples.valid).to(device)
        self._weight = torch.from_numpy(samples.weight).to(device)
        self._images = {k: torch.from_numpy(v).to(device) for k, v in samples.images.items()}
        self._task = torch.from_numpy(samples.task).to(device)
        self._text = model_class(config).task_encoder(config)(samples.tasks).to(device)
        self._mean = {k: torch.from_numpy(v).to(device) for k, v in statistics.mean.items()}
        self._std = {k: torch.from_numpy(v).to(device) for k, v in statistics.std.items()}
        world = 0.0 if config.canonical else config.image.world
        letters = letters_of(config)
        letters["absolute"] = config.robot.act.letters * config.chunk_size
        self._flips = {name: _mirror_table(text, world, device) for name, text in letters.items()}
        self.motion = Motion(config, device)
        self._kinds = {
            name: (_where(text, PLACES, device), _where(text, TURNS, device))
            for name, text in letters.items()
        }
        measured = torch.from_numpy(config.robot.measured).to(device)
        self._measured, self._known = measured.clamp_min(0), (measured >= 0).float()
        self._alike = config.robot.measured.tolist() == list(range(config.proprio_dim))
        body = config.robot.act.letters
        chunk = config.encoding.chunk_letters(config.robot.act)
        relative = [float(a != b) for a, b in zip(body, chunk, strict=True)]  # numbers with an origin
        self._origin = torch.tensor(relative * config.chunk_size, device=device)
        self._sides = {
            name: torch.stack([_where(text, side, device) for side in "XY"]) for name, text in letters.items()
        }

    def __len__(self) -> int:
        return len(self.samples)

    def draw(self, n: int, augment: AugmentConfig, generator: torch.Generator) -> Batch:
        """A random batch."""
        device = self.device
        rows = torch.randint(len(self), (n,), generator=generator, device=device)
        return self.take(rows, augment, generator)

    def take(self, rows: Tensor, augment: AugmentConfig, generator: torch.Generator) -> Batch:
        """These rows (B,), varied."""
        n, device = len(rows), self.device

        def uniform() -> Tensor:
            return torch.rand(n, generator=generator, device=device)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=device)

        weight = self._weight[rows]  # (B, k)
        passed = (uniform()[:, None] > weight.cumsum(1)).sum(1).clamp_max(weight.shape[1] - 1)
        matched = weight.sum(1) > 0
        shown = matched & (uniform() >= augment.retrieval_dropout)
        mirrored = uniform() < 0.5 if augment.mirror else torch.zeros(n, dtype=torch.bool, device=device)
        seeing = uniform() >= augment.image_dropout
        horizon, width = self.config.chunk_size, self.config.action_dim

        # Elsewhere, and turned, where no image says otherwise.
        aside = angle = torch.zeros(0)
        if augment.shift > 0:
            aside = augment.shift * normal(n, 2) * ~seeing[:, None]
        if augment.turn > 0:
            angle = math.radians(augment.turn) * (2 * uniform() - 1) * ~seeing

        def varied(name: str, table: Tensor) -> Tensor:
            moved = self._flip(name, table, mirrored)
            if augment.turn > 0:
                moved = self._turn(name, moved, angle)
            return moved + aside @ self._sides[name] if augment.shift > 0 else moved

        values = {name: varied(name, table[rows]) for name, table in self._fixed.items()}
        picked = {name: varied(name, table[rows, passed]) for name, table in self._matched.items()}
        actions = varied("absolute", self._actions[rows])
        base = varied("absolute", self._base[rows, passed])
        if augment.displaces and picked:
            away, turned = displacement(augment, seeing, generator)
            picked, base = self.motion.displaced(picked, base, values["proprio"], away, turned)
        if (augment.chunk_noise > 0 or augment.chunk_turn > 0) and picked:
            ramp = torch.linspace(0, 1, horizon, device=device)[None, :, None]
            offset = normal(n, 2, width)
            places, turns = self._kinds["absolute"]
            amount = (places * augment.chunk_noise + turns * augment.chunk_turn).view(horizon, width)
            shift = amount * (offset[:, :1] + ramp * offset[:, 1:])  # (B, H, a)
            flat = shift.reshape(n, -1)
            base = base + flat
            picked["retrieved_action"][:, : flat.shape[1]] += flat
            if self._alike:
                picked["retrieved_proprio"][:, : flat.shape[1]] += flat
        # Without a chunk the residual is over holding still, as it is at test time.
        still = (values["proprio"][:, self._measured] * self._known).repeat(1, horizon)
        base = torch.where(shown[:, None], base, still)
        values |= picked
        for name in ("proprio", "retrieved_proprio"):
            if name in values:
                values[name] = self._shaken(name, values[name], augment, normal)
        values["action"] = actions - (base if self.config.residual else still * self._origin)
        normalised = {
            name: (value - self._mean[name]) / self._std[name]
            for name, value in values.items()
            if name in self.layout
        }
        normalised |= self._pictures(rows, passed, mirrored, augment, normal)
        present = torch.ones(n, len(self.layout.slots), dtype=torch.bool, device=device)
        for i, slot in enumerate(self.layout.slots):
            if slot.retrieved:
                present[:, i] &= shown
            if slot.kind == "image":
                present[:, i] &= seeing
        return Batch(normalised, present, self._text[self._task[rows]], self._valid[rows])

    def _flip(self, name: str, values: Tensor, mirrored: Tensor) -> Tensor:
        sign, offset = self._flips[name]
        return torch.where(mirrored[:, None], values * sign + offset, values)

    def _turn(self, name: str, values: Tensor, angle: Tensor) -> Tensor:
        """Everything turned about the middle of the world, by an angle (B,) each."""
        middle = torch.full((len(values), 2), self.config.image.world / 2, device=self.device)
        return self.motion.turned(name, values, angle, middle)

    def _shaken(
        self, name: str, values: Tensor, augment: AugmentConfig, normal: Callable[..., Tensor]
    ) -> Tensor:
        """With the noise of a measurement."""
        places, turns = self._kinds[name]
        amount = places * augment.state_noise + turns * augment.turn_noise
        return values + amount * normal(*values.shape)

    def _pictures(
        self,
        rows: Tensor,
        passed: Tensor,
        mirrored: Tensor,
        augment: AugmentConfig,
        normal: Callable[..., Tensor],
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for slot in self.layout.images:
            numbers = self._images[slot.name][rows]
            if slot.retrieved:
                numbers = numbers.gather(1, passed[:, None])[:, 0]
            latent = self._shown(numbers, mirrored)
            if augment.latent_noise > 0 and not slot.denoised:
                latent = latent + augment.latent_noise * normal(*latent.shape)
            found[slot.name] = latent
        return found

    def _shown(self, numbers: Tensor, mirrored: Tensor) -> Tensor:
        """What image slots hold of these pictures."""
        if self.latents.dtype != torch.uint8:
            side = mirrored.long() if self.latents.shape[1] > 1 else 0
            return self.latents[numbers, side].float()
        pixels = self.latents[numbers].float() / 127.5 - 1
        return torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)


def _mirror_table(kinds: str, world: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Sign and offset of each number under a mirror that swaps left and right."""
    sign = torch.tensor([-1.0 if kind in "XxSs" else 1.0 for kind in kinds], device=device)
    offset = torch.tensor([world if kind == "X" else 0.0 for kind in kinds], device=device)
    return sign, offset


def _where(kinds: str, which: str, device: torch.device) -> Tensor:
    return torch.tensor([float(kind in which) for kind in kinds], device=device)
