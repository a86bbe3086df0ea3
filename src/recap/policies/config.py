"""What a policy is: its inputs, its slots and its network, as data that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_type_hints

from recap.errors import InputError, one_of
from recap.plain import plain_value
from recap.policies.domain import Domain, domain_named

Inputs: TypeAlias = Literal["I", "S", "I+S"]
INPUTS = ("I", "S", "I+S")
Sampler: TypeAlias = Literal["euler", "unipc"]
SAMPLERS = ("euler", "unipc")
VIEWS = ("board", "camera")
SHIPPED = ("pusht-nano", "pusht-small", "dualarm-small")  # policies that come with the package
BLOCK_MODES = ("aligned", "contact")  # in which all is in the block's frame

# Settings that came after the first checkpoints, with what they mean where they are not written.
LATER: Mapping[str, Mapping[str, Any]] = {
    "": {"domain": "pusht", "n_objects": 1, "future_change": False, "robot": "", "objects_from_now": False},
    "image": {"retrieved_cameras": (), "future_cameras": ()},
}


@dataclass(frozen=True)
class ImageConfig:
    """How a camera image becomes what the network sees.

    What a camera sees that looks straight down on a plane (`board`) is warped, pixels to pixels, into the
    canonical frame; what any other sees (`camera`) is only resized.
    """

    cameras: tuple[str, ...] = ("top",)
    camera_size: int = 96  # px of a side, as the environment draws it
    size: int = 64  # px of a side, as the network sees it
    view: str = "board"
    world: float = 512.0  # what the camera image spans, in units of the poses
    span: float = 320.0  # what the canonical image spans, when aligned; the whole world when not
    channels: int = 16  # of a latent
    scale: int = 8  # px a latent's side
    retrieved_cameras: tuple[str, ...] = ()  # whose frames of the retrieved chunk are shown; none: all
    future_cameras: tuple[str, ...] = ()  # whose frames to come are predicted; none: all

    def __post_init__(self) -> None:
        for camera in (*self.retrieved_cameras, *self.future_cameras):
            one_of("camera", camera, self.cameras)

    @property
    def retrieved(self) -> tuple[str, ...]:
        """Cameras whose frames of the retrieved chunk are shown."""
        return self.retrieved_cameras or self.cameras

    @property
    def future(self) -> tuple[str, ...]:
        """Cameras whose frames to come are predicted."""
        return self.future_cameras or self.cameras

    @property
    def latent_size(self) -> int:
        """Of a side."""
        return self.size // self.scale


@dataclass(frozen=True)
class NetworkConfig:
    """Arguments of diffusers' `CosmosTransformer3DModel`; `nano` by default."""

    backbone: ClassVar[str] = "cosmos"
    sees_pixels: ClassVar[bool] = False  # it sees latents of an autoencoder
    blocks: ClassVar[tuple[str, ...]] = ("CosmosTransformerBlock",)  # what is sharded as one

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
    time_scale: float = 1000.0  # of the noise level, before it is embedded

    @property
    def patch(self) -> int:
        """Of a side of what becomes one token."""
        return self.patch_size[1]

    @property
    def width(self) -> int:
        """Of a token within the network."""
        return self.num_attention_heads * self.attention_head_dim


@dataclass(frozen=True)
class Pi0NetworkConfig:
    """Sizes of transformers' `PI0ForConditionalGeneration`; `tiny` by default.

    A prefix of images, words and what was retrieved is read once; an action expert of as many layers looks
    at it, layer by layer, while it denoises the chunk.
    """

    backbone: ClassVar[str] = "pi0"
    sees_pixels: ClassVar[bool] = True  # through a vision tower of its own
    blocks: ClassVar[tuple[str, ...]] = ("GemmaDecoderLayer", "SiglipEncoderLayer")

    num_layers: int = 6  # of prefix and expert alike
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
    vision_patch: int = 16  # px of a side
    n_words: int = 512  # of the vocabulary
    n_text_tokens: int = 16  # of an instruction; what is longer is cut
    max_state_dim: int = 32  # as published: shorter ones are filled up with zeros
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

    @property
    def patch(self) -> int:
        """Of a side of what becomes one token."""
        return self.vision_patch

    @property
    def width(self) -> int:
        """Of a token of the prefix."""
        return self.prefix_dim


AnyNetworkConfig: TypeAlias = NetworkConfig | Pi0NetworkConfig
NETWORK_KINDS: Mapping[str, type[AnyNetworkConfig]] = {
    kind.backbone: kind for kind in (NetworkConfig, Pi0NetworkConfig)
}


@dataclass(frozen=True)
class SamplingConfig:
    """How a chunk is drawn from the model."""

    sampler: Sampler = "euler"
    n_steps: int = 2
    temperature: float = 1.0  # of the noise it begins from

    def __post_init__(self) -> None:
        one_of("sampler", self.sampler, SAMPLERS)
        if self.n_steps < 1:
            raise InputError(f"{self.n_steps} denoising steps denoise nothing: give 1 or more")
        if not 0 <= self.temperature <= 2:
            raise InputError(f"temperature {self.temperature} is out of range: give 0 to 2, such as 0.5")


@dataclass(frozen=True)
class PolicyConfig:
    """Everything but the weights and the statistics."""

    mode: str = "aligned"  # the retrieval preset it was trained with
    inputs: Inputs = "I+S"  # images, state (poses of object and goal), or both; proprioception always
    chunk_size: int = 8
    action_dim: int = 2
    proprio_dim: int = 2
    pose_dim: int = 3  # of an object
    retrieval: bool = True  # False: the slots of the retrieved chunk are left out
    residual: bool = True  # False: actions as they are, in the canonical frame
    future_image: bool = True
    future_state: bool = True
    n_retrieved_frames: int = 2  # 2: first and last of the chunk; more lie evenly between
    image: ImageConfig = field(default_factory=ImageConfig)
    network: AnyNetworkConfig = field(default_factory=NetworkConfig)  # its kind is the backbone
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    text: str = "words"  # the instruction's encoder; none: it is not read
    n_action_steps: int = 8  # of a chunk that are executed, unless told otherwise
    hindsight: bool = False  # whether parts of demonstrations are retrieved too, unless told otherwise
    domain: str = "pusht"  # where it acts: what its numbers mean
    n_objects: int = 1  # that are told apart; those after them are not seen
    future_change: bool = False  # the future image is predicted as a change of the present one
    robot: str = ""  # the embodiment that it drives, where its shape matters
    objects_from_now: bool = False  # retrieved objects are told from where they are now; only in space

    def __post_init__(self) -> None:
        one_of("inputs", self.inputs, INPUTS)
        one_of("view", self.image.view, VIEWS)
        if self.pose_dim != self.world.encoding.pose_dim:
            raise InputError(
                f"an object of domain '{self.domain}' has {self.world.encoding.pose_dim} numbers, not "
                f"{self.pose_dim}: set policy.pose_dim={self.world.encoding.pose_dim}"
            )
        if self.n_objects < 1:
            raise InputError(f"n_objects {self.n_objects} leaves nothing to act on: give 1 or more")
        if self.objects_from_now and self.domain == "pusht":
            raise InputError(
                "objects are told from where they are now only in space: set objects_from_now=false"
            )
        if not self.retrieval and self.residual:
            raise InputError(
                "a policy without retrieval has nothing to add a residual to: set residual=false"
            )
        if not 1 <= self.n_action_steps <= self.chunk_size:
            raise InputError(f"n_action_steps {self.n_action_steps} is not within 1…{self.chunk_size}")
        if self.n_retrieved_frames < 1:
            raise InputError(f"n_retrieved_frames {self.n_retrieved_frames} shows nothing: give 1 or more")
        if self.network.sees_pixels:
            self._check_pixels()

    def _check_pixels(self) -> None:
        """What a network without an autoencoder asks for: pixels in, actions alone out."""
        if self.future_image or self.future_state:
            raise InputError(
                "a π0-type policy predicts actions alone: set future_image=false and future_state=false"
            )
        image, patch = self.image, self.network.patch
        if (image.channels, image.scale) != (3, 1) or image.size % patch:
            raise InputError(
                f"a π0-type policy sees pixels in patches of {patch}: set image.channels=3, image.scale=1 "
                f"and image.size to a multiple of {patch}"
            )

    @property
    def world(self) -> Domain:
        """The domain itself."""
        return domain_named(self.domain)

    @property
    def retrieval_preset(self) -> str:
        """The name of the retrieval it is trained with."""
        return f"{self.domain}-{self.mode}"

    @property
    def warps(self) -> bool:
        """Whether images are warped into the canonical frame."""
        return self.mode in BLOCK_MODES and self.image.view == "board"

    @property
    def sees(self) -> bool:
        """Whether images go in."""
        return "I" in self.inputs

    @property
    def measures(self) -> bool:
        """Whether poses go in."""
        return "S" in self.inputs

    @property
    def latent_size(self) -> int:
        """Of a side of a slot; without images one patch, which is enough for most vectors."""
        return self.image.latent_size if self.sees else self.network.patch

    def to_json(self) -> dict[str, Any]:
        """Plain values, and which backbone they are of; later settings only where they say something."""
        return without_usual({"backbone": self.network.backbone, **asdict(self)}, LATER)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PolicyConfig:
        """The inverse of `to_json`; unknown and missing keys are refused by name."""
        known = dict(values)
        backbone = known.pop("backbone", NetworkConfig.backbone)  # once there was only one
        one_of("backbone", backbone, tuple(NETWORK_KINDS))
        parts: dict[str, type[Any]] = {
            "image": ImageConfig,
            "network": NETWORK_KINDS[backbone],
            "sampling": SamplingConfig,
        }
        for key, kind in parts.items():
            inner = known.get(key)
            if isinstance(inner, Mapping):
                inner = {**LATER.get(key, {}), **inner}
            known[key] = from_plain(kind, inner, f"{key}.")
        found: PolicyConfig = from_plain(cls, {**LATER[""], **known})
        return found


def without_usual(values: dict[str, Any], later: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Without the settings that came later and say nothing: what was written before reads the same."""
    for part, usual in later.items():
        inner = values[part] if part else values
        for key, value in usual.items():
            if inner[key] == value:
                del inner[key]
    return values


def from_plain(kind: type[Any], values: Any, prefix: str = "") -> Any:
    """A dataclass from its plain values: every key must be there and of its kind, and no other."""
    if not isinstance(values, Mapping):
        raise InputError(
            f"the policy's config lacks '{prefix.rstrip('.')}': it is damaged, or of another version"
        )
    hints = get_type_hints(kind)
    kinds = {f.name: hints[f.name] for f in fields(kind)}
    for key in sorted(kinds.keys() ^ set(values)):
        what = "lacks" if key in kinds else "has an unknown key"
        raise InputError(f"the policy's config {what} '{prefix}{key}': it is of another version of recap")
    read = {}
    for key, value in values.items():
        try:
            read[key] = value if is_dataclass(value) else plain_value(kinds[key], value)
        except TypeError as wanted:
            raise InputError(
                f"the policy's config has {value!r} as '{prefix}{key}', not {wanted}: it is damaged"
            ) from None
    return kind(**read)
