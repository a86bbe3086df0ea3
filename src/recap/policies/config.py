"""The configuration of a policy: inputs, slots and network; a checkpoint contains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from recap import config as configs
from recap.body import Body
from recap.errors import InputError, one_of
from recap.robot import RobotSpec
from recap.suites import plugins
from recap.types import F32

if TYPE_CHECKING:
    from recap.policies.model import SlotModel
    from recap.training.config import TrainConfig

Inputs: TypeAlias = Literal["I", "S", "I+S"]
INPUTS = ("I", "S", "I+S")
Sampler: TypeAlias = Literal["euler", "unipc"]
SAMPLERS = ("euler", "unipc")
Noise: TypeAlias = Literal["uniform", "logit_normal"]
NOISES = ("uniform", "logit_normal")
View: TypeAlias = Literal["top-down", "camera"]
VIEWS = ("top-down", "camera")


@dataclass(frozen=True)
class ImageConfig:
    """How a camera image becomes an input of the network.

    The image of a camera that looks straight down on a plane (`top-down`) is warped into the canonical frame.
    Any other image (`camera`) is only made square, as the robot's description says.
    """

    cameras: tuple[str, ...] = ()
    camera_size: int = 96  # px of a side that a simulator should render
    size: int = 64  # px of a side of the network's input
    view: View = "camera"
    world: float = 1.0  # top-down: width of the camera image, in units of the poses
    span: float = 1.0  # top-down: width of the canonical image if aligned; otherwise it shows the whole world
    white: bool = False  # most pixels are white background, which an autoencoder need not learn
    channels: int = 16  # of a latent
    scale: int = 8  # px of the image per latent pixel, along a side
    retrieved_cameras: tuple[str, ...] = ()  # cameras with retrieved frames as input; none: all
    future_cameras: tuple[str, ...] = ()  # cameras with predicted future frames; none: all

    def __post_init__(self) -> None:
        one_of("view", self.view, VIEWS)
        for camera in (*self.retrieved_cameras, *self.future_cameras):
            one_of("camera", camera, self.cameras)

    @property
    def retrieved(self) -> tuple[str, ...]:
        """Cameras with retrieved frames as input."""
        return self.retrieved_cameras or self.cameras

    @property
    def future(self) -> tuple[str, ...]:
        """Cameras with predicted future frames."""
        return self.future_cameras or self.cameras

    @property
    def latent_size(self) -> int:
        """Side of a latent, in latent pixels."""
        return self.size // self.scale


class AnyNetworkConfig:
    """Sizes of a network; the subclass defines the backbone and is a frozen dataclass with defaults.

    A package adds a subclass by an entry point of the group `recap.backbones`, named after its backbone.
    """

    backbone: ClassVar[str]
    sees_pixels: ClassVar[bool]  # instead of latents of an autoencoder
    blocks: ClassVar[tuple[str, ...]]  # classes of modules that are sharded and compiled one by one
    sizes: ClassVar[tuple[str, ...]] = ()  # for `recap train --size`, in addition to the library's
    num_layers: int

    @classmethod
    def model(cls) -> type[SlotModel]:
        """The model class; a policy's config is enough to build it."""
        raise NotImplementedError

    @staticmethod
    def named(backbone: str) -> AnyNetworkConfig:
        """The default sizes of a backbone, by the backbone's name."""
        return network_kind(backbone)()

    @classmethod
    def recipe(cls, size: str, base: TrainConfig) -> TrainConfig:
        """The training recipe of one of its sizes, derived from another recipe for the same robot."""
        return replace(base, policy=replace(base.policy, network=cls()))

    @property
    def patch(self) -> int:
        """Side of the image patch that becomes one token."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Width of a token within the network."""
        raise NotImplementedError


@dataclass(frozen=True)
class NetworkConfig(AnyNetworkConfig):
    """Arguments of diffusers' `CosmosTransformer3DModel`; `nano` by default."""

    backbone: ClassVar[str] = "cosmos"
    sees_pixels: ClassVar[bool] = False  # its input is latents of an autoencoder
    blocks: ClassVar[tuple[str, ...]] = ("CosmosTransformerBlock",)

    num_attention_heads: int = 4
    attention_head_dim: int = 64
    num_layers: int = 8
    mlp_ratio: float = 4.0
    text_embed_dim: int = 64
    adaln_lora_dim: int = 64
    max_size: tuple[int, int, int] = (32, 32, 32)
    patch_size: tuple[int, int, int] = (1, 2, 2)
    rope_scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    concat_padding_mask: bool = False
    use_crossattn_projection: bool = False
    crossattn_proj_in_channels: int = 1024
    encoder_hidden_states_channels: int = 1024
    time_scale: float = 1000.0  # scale of the noise level before it is embedded
    coordinates: bool = False  # input channels with coordinates, which rotary positions do not give
    beside: bool = False  # input channels with the present image, for each predicted image of the same camera

    @classmethod
    def model(cls) -> type[SlotModel]:
        """The Cosmos network."""
        from recap.policies.wam import WorldActionModel

        return WorldActionModel

    @property
    def patch(self) -> int:
        """Side of the image patch that becomes one token."""
        return self.patch_size[1]

    @property
    def width(self) -> int:
        """Width of a token within the network."""
        return self.num_attention_heads * self.attention_head_dim


def installed_backbones() -> dict[str, type[AnyNetworkConfig]]:
    """Backbones found by entry points, by name."""
    return {name: entry.load() for name, entry in plugins("recap.backbones").items()}


def network_kind(backbone: str) -> type[AnyNetworkConfig]:
    """The config class of a backbone, by the backbone's name."""
    if backbone == NetworkConfig.backbone:
        return NetworkConfig
    installed = installed_backbones()
    return installed[one_of("backbone", backbone, (NetworkConfig.backbone, *installed))]


@dataclass(frozen=True)
class SamplingConfig:
    """How a chunk is sampled from the model."""

    sampler: Sampler = "euler"
    n_steps: int = 2
    temperature: float = 1.0  # scale of the initial noise
    outcome_steps: int = 0  # steps to predict the future after sampling the chunk; 0: both together

    def __post_init__(self) -> None:
        one_of("sampler", self.sampler, SAMPLERS)
        if self.n_steps < 1:
            raise InputError(f"{self.n_steps} denoising steps denoise nothing: give 1 or more")
        if self.outcome_steps < 0:
            raise InputError(f"outcome_steps is {self.outcome_steps}: give 0 (none) or more, such as 1")
        if not 0 <= self.temperature <= 2:
            raise InputError(f"temperature {self.temperature} is out of range: give 0 to 2, such as 0.5")


@dataclass(frozen=True)
class PolicyConfig:
    """The configuration of a policy: everything but weights and statistics."""

    robot: RobotSpec  # the meaning of its numbers
    retrieval_name: str = "world"  # the retrieval it was trained with
    canonical: bool = False  # whether that retrieval uses another frame than the world's
    embodiment: str = ""  # of the target demonstrations in training: the robot that it drives
    inputs: Inputs = "I+S"  # images, state (poses of objects and goal), or both; always with proprioception
    chunk_size: int = 8
    relative: bool = True  # whether the steps of a chunk are relative to the robot's present position
    retrieval: bool = True  # False: no slots for a retrieved chunk
    residual: bool = True  # False: predict actions instead of a residual
    future_image: bool = True
    future_state: bool = True
    future_change: bool = False  # predict the future image as a change of the present one
    future_clean: bool = False  # the network outputs the clean future image instead of its velocity
    future_steps: tuple[int, ...] = ()  # steps ahead of each predicted image; none: one, after the chunk
    n_retrieved_frames: int = 2  # 2: first and last of the chunk; more are evenly spaced
    image: ImageConfig = field(default_factory=ImageConfig)
    network: AnyNetworkConfig = field(default_factory=NetworkConfig)  # its class is the backbone
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    text: str = "words"  # encoder of the instruction; none: the instruction is not used
    n_action_steps: int = 8  # executed actions of each chunk, unless set otherwise
    subtrajectories: bool = False  # whether parts of demonstrations are retrieved too
    n_objects: int = 1  # objects in space; further ones are not seen
    relative_object_poses: bool = False  # retrieved objects relative to their present poses; only in space
    noise: Noise = "uniform"  # distribution of noise levels in training; Cosmos and many others: logit_normal
    noise_shift: float = 1.0  # above 1: higher noise levels, as large images need; 5 for Cosmos

    def __post_init__(self) -> None:
        one_of("inputs", self.inputs, INPUTS)
        one_of("noise", self.noise, NOISES)
        if not 0 < self.noise_shift <= 100:
            raise InputError(f"noise_shift {self.noise_shift} is out of range: give 1 to 100, such as 5")
        if self.sees and not self.image.cameras:
            raise InputError("the policy sees images and no camera is named: set image.cameras, or inputs=S")
        for camera in self.image.cameras if self.sees else ():
            one_of("camera", camera, tuple(self.robot.cameras))
        if self.measures and self.robot.object_kind not in ("pose2", "pose3"):
            raise InputError(f"robot '{self.robot.name}' has no objects with poses: set policy.inputs=I")
        if self.chunk_size < 1:
            raise InputError(f"chunk_size {self.chunk_size} holds no action: give 1 or more")
        if self.n_objects < 1:
            raise InputError(f"n_objects {self.n_objects} leaves nothing to act on: give 1 or more")
        if self.relative_object_poses and self.is_planar:
            raise InputError("relative_object_poses is for poses in space: set it to false")
        if not self.retrieval and self.residual:
            raise InputError("a policy without retrieval has nothing to correct: set residual=false")
        if not 1 <= self.n_action_steps <= self.chunk_size:
            raise InputError(f"n_action_steps {self.n_action_steps} is not within 1…{self.chunk_size}")
        ahead = (0, *self.future_steps, self.chunk_size + 1)
        if any(later <= step for step, later in pairwise(ahead)):
            raise InputError(f"future_steps {list(self.future_steps)} do not rise within 1…{self.chunk_size}")
        if self.n_retrieved_frames < 1:
            raise InputError(f"n_retrieved_frames {self.n_retrieved_frames} shows nothing: give 1 or more")
        if self.network.sees_pixels:
            self._check_pixels()

    def _check_pixels(self) -> None:
        """Check the settings for a network without an autoencoder: pixels in, only actions out."""
        if self.future_image or self.future_state:
            raise InputError("a π0-type policy predicts actions: set future_image and future_state to false")
        image, patch = self.image, self.network.patch
        if (image.channels, image.scale) != (3, 1) or image.size % patch:
            raise InputError(
                f"a π0-type policy sees pixels in patches of {patch}: set image.channels=3, image.scale=1 "
                f"and image.size to a multiple of {patch}"
            )

    @property
    def is_planar(self) -> bool:
        """True if object and goal are planar poses."""
        return self.robot.object_kind == "pose2"

    def origin(self, body: Body, now: F32) -> F32:
        """The origin of every step of a chunk, retrieved or predicted: (..., d)."""
        return body.origin(now) if self.relative else np.zeros_like(now)

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return self.robot.act.size

    @property
    def proprio_dim(self) -> int:
        """Numbers in the proprioception."""
        return self.robot.body.size

    @property
    def warps(self) -> bool:
        """True if images are warped into the canonical frame."""
        return self.canonical and self.image.view == "top-down"

    @property
    def sees(self) -> bool:
        """True if images are inputs."""
        return "I" in self.inputs

    @property
    def measures(self) -> bool:
        """True if poses are inputs."""
        return "S" in self.inputs

    @property
    def latent_size(self) -> int:
        """Side of a slot; without images one patch, which is enough for most vectors."""
        return self.image.latent_size if self.sees else self.network.patch

    def to_json(self) -> dict[str, Any]:
        """The fields and the backbone's name, as JSON values."""
        return {"backbone": self.network.backbone, **configs.plain(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PolicyConfig:
        """The inverse of `to_json`; unknown and missing keys are refused by name."""
        known = dict(values)
        kind: Any = network_kind(str(known.pop("backbone", "")))
        known["network"] = configs.read(kind, known.get("network"), "the policy's network", complete=True)
        known["robot"] = configs.read(RobotSpec, known.get("robot"), "the policy's robot")  # has defaults
        return configs.read(cls, known, "the policy's config", complete=True)
