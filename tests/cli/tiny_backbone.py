"""A backbone as another package would provide it: two layers over all inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recap.policies.config import AnyNetworkConfig, PolicyConfig
from recap.policies.model import Batch, SlotModel, TaskEncoder
from recap.policies.network import load_strictly, read_weights
from recap.training.config import TrainConfig


@dataclass(frozen=True)
class TinyConfig(AnyNetworkConfig):
    """The configuration of a tiny network on pixels."""

    backbone: ClassVar[str] = "tiny"
    sees_pixels: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[tuple[str, ...]] = ("tiny-debug",)

    num_layers: int = 2
    width: int = 16  # type: ignore[assignment]
    patch: int = 8  # type: ignore[assignment]

    @classmethod
    def model(cls) -> type[SlotModel]:
        return TinyModel

    @classmethod
    def recipe(cls, size: str, base: TrainConfig) -> TrainConfig:
        image = replace(base.policy.image, size=16, channels=3, scale=1)
        base = replace(base, bf16=False, compile=False)
        augment = replace(base.augment, latent_noise=0.0)
        policy = replace(
            base.policy, network=cls(), image=image, future_image=False, future_state=False, chunk_size=8
        )
        return replace(base, policy=policy, augment=augment, batch_size=8, n_iterations=2, held_out=0.34)


class TinyModel(SlotModel):
    """A network that ignores the task text."""

    tag, summary = "tiny-model", "A tiny policy."

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        assert isinstance(config.network, TinyConfig)
        known = sum(torch.Size(self.shape(slot)).numel() for slot in self.layout.slots)
        width, out = config.network.width, self.layout["action"].width
        self.network = nn.Sequential(nn.Linear(known + 1, width), nn.ReLU(), nn.Linear(width, out))

    @classmethod
    def task_encoder(cls, config: PolicyConfig) -> TaskEncoder:
        def encode(tasks: Sequence[str]) -> Tensor:
            return torch.zeros(len(tasks), 1, 1)

        return encode

    @property
    def n_tokens(self) -> int:
        return 1

    def load_published(self, source: str) -> None:
        load_strictly(self.network, read_weights(self.find_published(source)), source)

    def recompute_activations(self) -> None:
        pass

    def forward(
        self, batch: Batch, moving: dict[str, Tensor], level: Tensor, known: Any = None
    ) -> dict[str, Tensor]:
        parts = [level[:, None]]
        for i, slot in enumerate(self.layout.slots):
            value = (moving if slot.denoised else batch.values)[slot.name].flatten(1)
            parts.append(value * batch.present[:, i, None] if not slot.denoised else value)
        return {"action": self.network(torch.cat(parts, dim=1))}
