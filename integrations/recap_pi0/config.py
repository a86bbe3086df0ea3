"""Sizes of π0-type networks, and the training recipes of the sizes of `recap train --size`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from recap.errors import InputError
from recap.policies.config import AnyNetworkConfig, SamplingConfig

if TYPE_CHECKING:
    from recap.policies.model import SlotModel
    from recap.training.config import TrainConfig


@dataclass(frozen=True)
class Pi0NetworkConfig(AnyNetworkConfig):
    """Sizes of transformers' `PI0ForConditionalGeneration`; `tiny` by default.

    A prefix of images, words and retrieved tokens is computed once. An action expert with the same number of
    layers attends to it, layer by layer, while it denoises the chunk.
    """

    backbone: ClassVar[str] = "pi0"
    sees_pixels: ClassVar[bool] = True  # through its own vision tower
    blocks: ClassVar[tuple[str, ...]] = ("GemmaDecoderLayer", "SiglipEncoderLayer")
    sizes: ClassVar[tuple[str, ...]] = ("pi0-debug", "pi0")
    published: ClassVar[str] = "lerobot/pi0_base"

    num_layers: int = 6  # of prefix and expert each
    num_attention_heads: int = 4
    num_key_value_heads: int = 1
    attention_head_dim: int = 32
    prefix_dim: int = 128
    prefix_mlp_dim: int = 512
    expert_dim: int = 128
    expert_mlp_dim: int = 512
    vision_layers: int = 4
    vision_heads: int = 4
    vision_dim: int = 128
    vision_mlp_dim: int = 512
    vision_patch: int = 16  # px per side
    n_words: int = 512  # size of the vocabulary
    n_text_tokens: int = 16  # of an instruction; longer ones are truncated
    max_state_dim: int = 32  # as published; shorter states are padded with zeros
    max_action_dim: int = 32

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            if type(value) is not int or value < 1:
                raise InputError(f"network.{key} is {value!r}: give a whole number, 1 or more")
        fits = (
            ("num_attention_heads", "a multiple of num_key_value_heads", self.num_key_value_heads),
            ("vision_dim", "a multiple of vision_heads", self.vision_heads),
            ("attention_head_dim", "an even number", 2),
            ("expert_dim", "an even number", 2),
        )
        for key, what, step in fits:
            if getattr(self, key) % step:
                raise InputError(f"network.{key} is {getattr(self, key)}: give {what}")
        if self.n_words < 4:
            raise InputError(f"network.n_words is {self.n_words}: give 4 or more, 3 of them are marks")

    @classmethod
    def model(cls) -> type[SlotModel]:
        """The model class around transformers' π0."""
        from recap_pi0.vla import VisionLanguageActionModel

        return VisionLanguageActionModel

    @classmethod
    def recipe(cls, size: str, base: TrainConfig) -> TrainConfig:
        """It sees pixels and predicts only actions; the full size is fine-tuned from published weights."""
        from recap.training.presets import DEBUG, LARGE

        whole = not size.endswith("-debug")
        policy = replace(
            base.policy,
            network=cls(**asdict(PI0_BASE if whole else PI0_DEBUG)),
            image=replace(base.policy.image, size=224 if whole else 16, channels=3, scale=1),
            sampling=SamplingConfig(n_steps=10 if whole else 2),
            future_image=False,
            future_state=False,
            text="google/paligemma-3b-pt-224" if whole else "words",
        )
        base = replace(base, policy=policy, augment=replace(base.augment, latent_noise=0.0), compile=False)
        if not whole:
            return replace(base, **DEBUG)
        schedule = {**LARGE, "batch_size": 64, "learning_rate": 2.5e-5, "warm_up": 1000}
        return replace(base, weights=cls.published, **schedule)

    @property
    def patch(self) -> int:
        """Pixels per side of an image patch, which is one token."""
        return self.vision_patch

    @property
    def width(self) -> int:
        """The width of a token of the prefix."""
        return self.prefix_dim


@dataclass(frozen=True)
class Pi05NetworkConfig(Pi0NetworkConfig):
    """Like π0, but the time step modulates every norm of the action expert, and the state is text."""

    backbone: ClassVar[str] = "pi05"
    blocks: ClassVar[tuple[str, ...]] = (*Pi0NetworkConfig.blocks, "AdaptiveLayer")
    sizes: ClassVar[tuple[str, ...]] = ("pi05-debug", "pi05")
    published: ClassVar[str] = "lerobot/pi05_base"

    @classmethod
    def model(cls) -> type[SlotModel]:
        """The model class with π0.5's norms and text."""
        from recap_pi0.vla import Pi05ActionModel

        return Pi05ActionModel


PI0_TINY = Pi0NetworkConfig()
PI0_DEBUG = Pi0NetworkConfig(
    num_layers=2,
    num_attention_heads=2,
    prefix_dim=64,
    prefix_mlp_dim=128,
    expert_dim=64,
    expert_mlp_dim=128,
    vision_layers=1,
    vision_heads=2,
    vision_dim=64,
    vision_mlp_dim=128,
    vision_patch=8,
    n_words=64,
    n_text_tokens=8,
)
PI0_BASE = Pi0NetworkConfig(
    num_layers=18,
    num_attention_heads=8,
    num_key_value_heads=1,
    attention_head_dim=256,
    prefix_dim=2048,
    prefix_mlp_dim=16_384,
    expert_dim=1024,
    expert_mlp_dim=4096,
    vision_layers=27,
    vision_heads=16,
    vision_dim=1152,
    vision_mlp_dim=4304,
    vision_patch=14,
    n_words=257_152,
    n_text_tokens=48,
)
