"""The policy: stateless and batched, from observations with retrieved chunks to action chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recap.errors import InputError
from recap.policies.autoencoder import FrameEncoder, to_bytes, to_pixels
from recap.policies.canonical import canonical_image
from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.layout import frame_offsets, future_frames
from recap.policies.lean_sampling import LeanSampler
from recap.policies.model import Batch, SlotModel
from recap.policies.vectors import vectors_of
from recap.policies.wam import WorldActionModel
from recap.types import F32, F64, U8, ActionChunk, Conditioning, Observation

Generators = torch.Generator | Sequence[torch.Generator] | None


@dataclass(frozen=True)
class Statistics:
    """Mean and deviation of every number of every vector slot, from the training data."""

    mean: Mapping[str, F32]  # slot -> (width,)
    std: Mapping[str, F32]

    def normalise(self, slot: str, values: Tensor) -> Tensor:
        """Normalise to mean 0 and deviation 1."""
        mean, std = torch.from_numpy(self.mean[slot]), torch.from_numpy(self.std[slot])
        return (values - mean.to(values.device)) / std.to(values.device)

    def restore(self, slot: str, values: Tensor) -> Tensor:
        """The inverse of `normalise`."""
        mean, std = torch.from_numpy(self.mean[slot]), torch.from_numpy(self.std[slot])
        return values * std.to(values.device) + mean.to(values.device)


@dataclass(frozen=True)
class RetrievalStamp:
    """How a policy was trained to retrieve: a pool must be described and searched in the same way."""

    name: str
    describer: str  # fingerprint of the describer
    config: str  # metric fingerprint of the config, with scales
    scales: Mapping[str, float] = field(default_factory=dict)  # of the describer's terms


def change_deviations(statistics: Statistics, model: SlotModel) -> dict[str, Tensor]:
    """Image slot -> (c, 1, 1) deviation of its change, if training measured it."""
    slots = [slot.name for slot in model.denoised if slot.kind == "image" and slot.name in statistics.std]
    return {name: torch.from_numpy(statistics.std[name]).view(-1, 1, 1) for name in slots}


class TrainedPolicy:
    """A trained model with everything that is needed to use it.

    Args:
        encoder: the autoencoder of a policy that sees latents; None if it sees pixels or no images.
    """

    def __init__(
        self,
        model: SlotModel,
        statistics: Statistics,
        stamp: RetrievalStamp,
        encoder: FrameEncoder | None = None,
    ) -> None:
        self.model = model.eval()
        self.config: PolicyConfig = model.config
        self.statistics = statistics
        self.stamp = stamp
        self.encoder = None if encoder is None else encoder.eval()
        self._lean_sampler: tuple[object, LeanSampler] | None = None
        if self.config.sees and encoder is None and not self.config.network.sees_pixels:
            raise InputError("the policy sees images and has no autoencoder: give one")
        model.deviations = change_deviations(statistics, model)
        self._encode_tasks = model.task_encoder(self.config)
        self._text_cache: dict[str, Tensor] = {}
        for slot in model.layout.vectors:
            for table in (statistics.mean, statistics.std):
                if slot.name not in table or table[slot.name].shape != (slot.width,):
                    raise InputError(f"the policy's statistics lack slot '{slot.name}': train it again")

    def encode_pictures(self, pictures: U8) -> F32:
        """Encode canonical images (n, h, w, 3) for image slots: latents, or pixels in -1…1."""
        if self.encoder is None:
            return np.asarray(to_pixels(pictures).numpy(), np.float32)
        return self.encoder.encode_images(pictures)

    def decode_frames(self, latents: F32 | Tensor) -> U8:
        """Decode the contents of image slots to pictures (n, h, w, 3) in the canonical frame."""
        if self.encoder is None:
            return to_bytes(torch.as_tensor(latents))
        return self.encoder.decode_images(latents)

    def sample(self, batch: Batch, noise: dict[str, Tensor], config: SamplingConfig) -> dict[str, Tensor]:
        """Sample each denoised slot from noise; for a Cosmos network with the faster `LeanSampler`."""
        if not isinstance(self.model, WorldActionModel):
            return self.model.sample(batch, noise, config)
        weights = (self.device, sum(p._version for p in self.model.parameters()))
        if self._lean_sampler is None or self._lean_sampler[0] != weights:
            self._lean_sampler = (weights, LeanSampler.of(self.model))
        return self._lean_sampler[1](batch, noise, config)

    def outcome(self, batch: Batch, action: Tensor, noise: dict[str, Tensor]) -> dict[str, Tensor]:
        """Predict the outcome of normalised chunks (B, width): each denoised slot, with the action as given.

        One step gives the mean outcome, more steps a sample.
        """
        conditioned = replace(
            batch,
            values={**batch.values, "action": action},
            acted=torch.ones(len(batch), dtype=torch.bool, device=action.device),
        )
        steps = max(1, self.config.sampling.outcome_steps)
        return self.model.sample(conditioned, noise, SamplingConfig(n_steps=steps))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all weights and of the statistics."""
        digest = hashlib.sha256()
        for part in (self.model, self.encoder):
            for name, value in sorted(part.state_dict().items()) if part is not None else ():
                digest.update(name.encode() + value.detach().float().cpu().contiguous().numpy().tobytes())
        for table in (self.statistics.mean, self.statistics.std):
            for name in sorted(table):
                digest.update(name.encode() + np.ascontiguousarray(table[name]).tobytes())
        return digest.hexdigest()[:12]

    @property
    def aligned(self) -> bool:
        """True if images are warped into the object's frame."""
        return self.config.warps

    def with_sampling(self, **changes: object) -> Self:
        """The same weights with other sampling settings."""
        config = replace(self.config, sampling=replace(self.config.sampling, **changes))  # type: ignore[arg-type]
        other = type(self).__new__(type(self))
        other.__dict__ = {**self.__dict__, "config": config}
        return other

    def encode_frames(self, images: Sequence[U8], frames: Sequence[F64], cameras: Sequence[str]) -> F32:
        """Encode camera images for image slots (n, c, h, w), each warped into its canonical frame."""
        known = self.config.robot.cameras
        warped = [
            canonical_image(image, frame, self.config.image, self.aligned, known[camera].fit)
            for image, frame, camera in zip(images, frames, cameras, strict=True)
        ]
        return self.encode_pictures(np.stack(warped))

    def predict_action_chunk(
        self,
        observations: Sequence[Observation],
        inputs: Sequence[Conditioning],
        generator: Generators = None,
    ) -> list[ActionChunk]:
        """One chunk per observation, in its canonical frame.

        Args:
            generator: source of the noise; with one per observation, chunks do not depend on each other.
        """
        if not inputs:
            return []
        for observation, conditioning in zip(observations, inputs, strict=True):
            _check_finite(observation, conditioning)
        moments = [vectors_of(conditioning, self.config) for conditioning in inputs]
        batch = self._batch(observations, inputs, [m.vectors for m in moments])
        noise = self._noise(len(inputs), generator)
        samples = self.sample(batch, noise, self.config.sampling)
        if self.config.sampling.outcome_steps:
            samples = self.outcome(batch, samples["action"], noise)
        actions = self.statistics.restore("action", samples["action"]).cpu().numpy()
        shape = (self.config.chunk_size, self.config.action_dim)
        future = None
        if "future_proprio" in samples:
            future = self.statistics.restore("future_proprio", samples["future_proprio"]).cpu().numpy()
        last_frame = [*future_frames(self.config)][-1]
        image_slots = [slot.name for slot in self.model.denoised if slot.name.startswith(f"{last_frame}/")]
        latents = [samples[name].cpu().numpy() for name in image_slots]
        chunks = []
        for i, moment in enumerate(moments):
            predicted = actions[i].reshape(shape)
            chunk = predicted + (moment.base if self.config.residual else moment.origin)
            chunk = self.config.robot.act.project(chunk, moment.base)
            chunks.append(
                ActionChunk(
                    chunk.astype(np.float32),
                    (chunk - moment.base).astype(np.float32),
                    np.stack([part[i] for part in latents]) if latents else None,
                    None if future is None else future[i],
                )
            )
        return chunks

    def _batch(
        self,
        observations: Sequence[Observation],
        inputs: Sequence[Conditioning],
        vectors: list[dict[str, F32]],
    ) -> Batch:
        layout, config, n = self.model.layout, self.config, len(inputs)
        values: dict[str, Tensor] = {}
        present = torch.ones(n, len(layout.slots), dtype=torch.bool)
        empty = torch.tensor([c.is_empty for c in inputs])
        for i, slot in enumerate(layout.slots):
            if slot.denoised:
                continue
            if slot.retrieved:
                present[:, i] = ~empty
            if slot.kind == "vector":
                rows = [v.get(slot.name, self.statistics.mean[slot.name]) for v in vectors]
                values[slot.name] = self.statistics.normalise(slot.name, torch.from_numpy(np.stack(rows)))
        if config.sees:
            values |= self._latents(observations, inputs)
        text = torch.cat([self._encode_text(o.task) for o in observations])
        return Batch(values, present, text).each(lambda value: value.to(self.device))

    def _latents(
        self, observations: Sequence[Observation], inputs: Sequence[Conditioning]
    ) -> dict[str, Tensor]:
        """The image slots that are inputs."""
        config, values = self.config, {}
        for camera in config.image.cameras:
            images = [_image(o, camera) for o in observations]
            encoded = self.encode_frames(images, [c.frame for c in inputs], [camera] * len(images))
            values[f"frame/{camera}"] = torch.from_numpy(encoded)
        if config.retrieval:
            size, cameras = config.latent_size, config.image.retrieved
            shape = (len(frame_offsets(config)) * len(cameras), config.image.channels, size, size)
            rows: list[F32] = []
            for conditioning in inputs:
                latents = np.zeros(shape, np.float32) if conditioning.is_empty else conditioning.latents
                if latents is None or latents.shape != shape:
                    raise InputError("the retrieved frames come without latents: an agent encodes them")
                rows.append(latents)
            stacked = torch.from_numpy(np.stack(rows))
            names = [f"retrieved_frame_{i}/{c}" for i in range(config.n_retrieved_frames) for c in cameras]
            values |= {name: stacked[:, i] for i, name in enumerate(names)}
        return values

    def _encode_text(self, task: str) -> Tensor:
        """The encoded instruction (1, ...), cached."""
        if task not in self._text_cache:
            self._text_cache[task] = self._encode_tasks([task])
        return self._text_cache[task]

    def _noise(self, n: int, generator: Generators) -> dict[str, Tensor]:
        """Noise, drawn on the CPU so that a seed gives the same numbers on every device."""
        cpu = torch.device("cpu")
        if generator is None or isinstance(generator, torch.Generator):
            noise = self.model.draw_noise(n, generator, cpu)
        else:
            each = [self.model.draw_noise(1, one, cpu) for one in generator]
            noise = {name: torch.cat([one[name] for one in each]) for name in each[0]}
        return {name: value.to(self.device) for name, value in noise.items()}


def _image(observation: Observation, camera: str) -> U8:
    if camera not in observation.images:
        known = sorted(observation.images) or "none"
        raise InputError(f"the policy looks through camera '{camera}', and the observation has {known}")
    return observation.images[camera]


def _check_finite(observation: Observation, conditioning: Conditioning) -> None:
    numbers: dict[str, F32 | F64] = {
        "proprioception": observation.proprio,
        "the object's pose": conditioning.object_now,
        "the goal": conditioning.goal_now,
        "the retrieved chunk": conditioning.actions,
    }
    for what, values in numbers.items():
        if not np.isfinite(values).all():
            raise InputError(f"an observation has a number that is not finite ({what}): nothing is done")
