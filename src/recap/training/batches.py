"""Draws and augments batches; a step gives the same batch for any number of processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout
from recap.policies.model import Batch
from recap.policies.policy import Statistics
from recap.training.config import AugmentConfig
from recap.training.motion import CHUNK, Motion, displacement
from recap.training.samples import Samples, tables_of

RESIDENT = 0.1  # tables and latents are put on the GPU if they take less than this share of its memory
NO_AUGMENT = AugmentConfig(retrieval_dropout=0.0, image_dropout=0.0, latent_noise=0.0)


class BatchSource:
    """Turns rows of samples into normalised batches.

    Args:
        latents: (m, v, c, h, w) of every picture, of its mirror image if mirroring is on, and the same for
            each augmented copy; bytes for a policy that sees pixels; empty for a policy without images.

    Tables and latents may be memory-mapped files; only the rows of a batch are read. They are put on a GPU
    if they take a small share of its memory.
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
        tables = {name: torch.from_numpy(values) for name, values in tables_of(samples).items()}
        if device.type == "cuda":
            size = sum(t.nbytes for t in (*tables.values(), latents))
            if size < RESIDENT * torch.cuda.get_device_properties(device).total_memory:
                tables = {name: table.to(device) for name, table in tables.items()}
                self.latents = latents.to(device)
        self._tables = tables
        self._text = config.network.model().task_encoder(config)(samples.tasks).to(device)
        self._mean = {k: torch.from_numpy(v).to(device) for k, v in statistics.mean.items()}
        self._std = {k: torch.from_numpy(v).to(device) for k, v in statistics.std.items()}
        self.motion = Motion(config, device)
        measured = config.robot.measured
        self._measured = torch.from_numpy(measured).clamp_min(0).to(device)
        known = (measured >= 0).astype(np.float32)
        self._known = torch.from_numpy(known).to(device)
        self._same_columns = measured.tolist() == list(range(config.proprio_dim))
        # 1 for the numbers of a chunk from which the current position is subtracted.
        self._origin = (
            torch.from_numpy(config.origin(config.robot.act, known)).repeat(config.chunk_size).to(device)
        )

    def __len__(self) -> int:
        return len(self.samples)

    def draw(
        self, n: int, augment: AugmentConfig, generator: torch.Generator, part: Tensor | None = None
    ) -> Batch:
        """Draw a random batch, or only its rows `part`."""
        device = self.device
        rows = torch.randint(len(self), (n,), generator=generator, device=device)
        return self.take(rows, augment, generator, part)

    def take(
        self, rows: Tensor, augment: AugmentConfig, generator: torch.Generator, part: Tensor | None = None
    ) -> Batch:
        """Build and augment the batch of these rows (B,).

        Args:
            part: indices within the batch to build; the others are neither read nor computed. Random numbers
                are drawn for the whole batch, so they do not depend on `part`.
        """
        batch_size, device = len(rows), self.device
        selected = slice(None) if part is None else part

        def uniform() -> Tensor:
            return torch.rand(batch_size, generator=generator, device=device)[selected]

        def normal(*shape: int) -> Tensor:
            return torch.randn(batch_size, *shape[1:], generator=generator, device=device)[selected]

        rows = rows[selected]
        n = len(rows)
        weight = self._read("weight", rows)  # (B, k)
        match = (uniform()[:, None] > weight.cumsum(1)).sum(1).clamp_max(weight.shape[1] - 1)
        any_match = weight.sum(1) > 0
        has_match = any_match & (uniform() >= augment.retrieval_dropout)
        mirrored = uniform() < 0.5 if augment.mirror else torch.zeros(n, dtype=torch.bool, device=device)
        has_images = uniform() >= augment.image_dropout
        acted = uniform() < augment.action_given if augment.action_given > 0 else None
        copy = torch.zeros(n, dtype=torch.long, device=device)
        if augment.image_copies > 0:
            copy = (uniform() * (augment.image_copies + 1)).long()
        horizon, width = self.config.chunk_size, self.config.action_dim

        # Shift and rotate only samples without images: an image would contradict it.
        shift_xy = angle = torch.zeros(0)
        if augment.shift > 0:
            shift_xy = augment.shift * normal(n, 2) * ~has_images[:, None]
        if augment.turn > 0:
            angle = math.radians(augment.turn) * (2 * uniform() - 1) * ~has_images

        def augmented(name: str, table: Tensor) -> Tensor:
            moved, columns = self.motion.mirrored(name, table, mirrored), self.motion.columns[name]
            if augment.turn > 0:  # about the centre of the world
                middle = torch.full((n, 2), self.config.image.world / 2, device=device)
                moved = columns.turned(moved, angle, middle)
            return moved + shift_xy @ columns.sideways if augment.shift > 0 else moved

        values = {name: augmented(name, self._read(f"fixed/{name}", rows)) for name in self.samples.fixed}
        retrieved = {
            name: augmented(name, self._read(f"matched/{name}", rows, match)) for name in self.samples.matched
        }
        actions = augmented(CHUNK, self._read("actions", rows))
        base = augmented(CHUNK, self._read("base", rows, match))
        if augment.displaces and retrieved:
            away, turned = displacement(augment, has_images, normal, uniform)
            retrieved, base = self.motion.displaced(retrieved, base, values["proprio"], away, turned)
        if (augment.chunk_noise > 0 or augment.chunk_turn > 0) and retrieved:
            ramp = torch.linspace(0, 1, horizon, device=device)[None, :, None]
            offset = normal(n, 2, width)
            chunk = self.motion.columns[CHUNK]
            amount = (chunk.lengths * augment.chunk_noise + chunk.turns * augment.chunk_turn).view(
                horizon, width
            )
            shift = amount * (offset[:, :1] + ramp * offset[:, 1:])  # (B, H, a)
            flat = shift.reshape(n, -1)
            base = base + flat
            retrieved["retrieved_action"][:, : flat.shape[1]] += flat
            if self._same_columns:
                retrieved["retrieved_proprio"][:, : flat.shape[1]] += flat
        # Without a retrieved chunk the residual is relative to holding still, as at test time.
        still = (values["proprio"][:, self._measured] * self._known).repeat(1, horizon)
        base = torch.where(has_match[:, None], base, still)
        values |= retrieved
        for name in ("proprio", "retrieved_proprio"):
            if name in values:
                values[name] = self._add_noise(name, values[name], augment, normal)
        values["action"] = actions - (base if self.config.residual else still * self._origin)
        normalised = {
            name: (value - self._mean[name]) / self._std[name]
            for name, value in values.items()
            if name in self.layout
        }
        normalised |= self._image_slots(rows, match, mirrored, copy, augment, normal)
        present = torch.ones(n, len(self.layout.slots), dtype=torch.bool, device=device)
        for i, slot in enumerate(self.layout.slots):
            if slot.retrieved:
                present[:, i] &= has_match
            if slot.kind == "image":
                present[:, i] &= has_images
        text = self._text[self._read("task", rows)]
        return Batch(normalised, present, text, self._read("valid", rows), acted)

    def _read(self, name: str, *rows: Tensor) -> Tensor:
        """These rows of a table; a second index picks the match."""
        return _index(self._tables[name], rows).to(self.device)

    def _add_noise(
        self, name: str, values: Tensor, augment: AugmentConfig, normal: Callable[..., Tensor]
    ) -> Tensor:
        """Add measurement noise."""
        columns = self.motion.columns[name]
        amount = columns.lengths * augment.state_noise + columns.turns * augment.turn_noise
        return values + amount * normal(*values.shape)

    def _image_slots(
        self,
        rows: Tensor,
        match: Tensor,
        mirrored: Tensor,
        copy: Tensor,
        augment: AugmentConfig,
        normal: Callable[..., Tensor],
    ) -> dict[str, Tensor]:
        values: dict[str, Tensor] = {}
        for slot in self.layout.images:
            numbers = self._read(f"images/{slot.name}", rows, *[match] if slot.retrieved else [])
            latent = self._image_values(numbers, mirrored, copy, 1 + augment.mirror)
            if augment.latent_noise > 0 and not slot.denoised:
                latent = latent + augment.latent_noise * normal(*latent.shape)
            values[slot.name] = latent
        return values

    def _image_values(self, numbers: Tensor, mirrored: Tensor, copy: Tensor, n_sides: int) -> Tensor:
        """The contents of image slots for these picture numbers."""
        if self.latents.dtype != torch.uint8:
            return _index(self.latents, (numbers, copy * n_sides + mirrored)).to(self.device).float()
        index = (numbers, copy) if self.latents.ndim == 5 else (numbers,)
        pixels = _index(self.latents, index).to(self.device).float() / 127.5 - 1
        return torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)


def _index(table: Tensor, rows: tuple[Tensor, ...]) -> Tensor:
    return table[tuple(row.to(table.device) for row in rows)]


PreparedBatch = tuple[Batch, dict[str, Tensor], Tensor]  # a batch with its noise and noise levels


class Prefetcher:
    """Returns the batch of an iteration; a thread with its own CUDA stream then prepares the next one."""

    def __init__(self, draw: Callable[[int], PreparedBatch], n_iterations: int, device: torch.device) -> None:
        self._draw, self._n_iterations = draw, n_iterations
        cuda: Any = torch.cuda
        self._stream = cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "batches")
        self._futures: dict[int, Future[PreparedBatch]] = {}

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def __call__(self, iteration: int) -> PreparedBatch:
        future = self._futures.pop(iteration, None) or self._thread.submit(self._prepare, iteration)
        prepared = future.result()
        if self._stream is not None:  # before the next batch is queued on that stream
            now: Any = torch.cuda.current_stream()
            now.wait_stream(self._stream)
            batch, noise, level = prepared
            for tensor in (*batch.tensors, *noise.values(), level):
                tensor.record_stream(now)  # its memory is not reused while this stream needs it
        if iteration + 1 < self._n_iterations:
            self._futures = {iteration + 1: self._thread.submit(self._prepare, iteration + 1)}
        return prepared

    def _prepare(self, iteration: int) -> PreparedBatch:
        with torch.cuda.stream(self._stream):  # None: the stream does not change
            return self._draw(iteration)
