"""What a training run is: its data, its policy and its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recap.errors import InputError
from recap.policies.config import BLOCK_MODES, PolicyConfig, without_usual
from recap.policies.encodings import PlanarEncoding

# Settings that came later, with what they mean where they are not written.
LATER: Mapping[str, Mapping[str, Any]] = {
    "": {"target_tasks": (), "pool_tasks": ()},
    "augment": {"chunk_turn": 0.0, "shift": 0.0, "turn": 0.0, "displace": 0.0, "displace_turn": 0.0},
}


@dataclass(frozen=True)
class PairsConfig:
    """How a moment of the pool is chosen for each moment of the target."""

    k: int = 3
    action_weight: float = 1.0  # of the chunk to come, which only training knows
    allow_twin: bool = True  # whether the pool's demonstration of the same scene may be matched
    n_candidates: int | None = None
    misaligned: float = 0.0  # share of the target's demonstrations that are matched at random, on purpose
    leave_out: bool = False  # demonstrations whose residual stands out are not learned from


@dataclass(frozen=True)
class AugmentConfig:
    """What is varied at every step; none of it changes what is true."""

    mirror: bool = True  # left and right: exact for a block and a pusher that are symmetric
    chunk_noise: float = 2.0  # px of smooth shift of the retrieved chunk; the residual takes it back
    state_noise: float = 0.2  # px by which measured places are off, as eyes are
    turn_noise: float = 0.002  # rad, likewise
    retrieval_dropout: float = 0.1  # share of samples that see no retrieved chunk
    image_dropout: float = 0.3  # share of samples that see no image
    latent_noise: float = 0.1  # of a latent's deviation
    chunk_turn: float = 0.0  # by which numbers of 6-D rotations of the retrieved chunk are off, smoothly
    shift: float = 0.0  # of everything sideways, in samples that see no image: only in the world's frame
    turn: float = 0.0  # degrees, either way, by which everything is turned, likewise; only in the plane
    # What was retrieved, its scene and all, is moved away from where it was shown, likewise: px or m, in
    # deviations, and degrees about its main object, either way. The residual brings it back, and has only the
    # poses to tell how far.
    displace: float = 0.0
    displace_turn: float = 0.0

    @property
    def displaces(self) -> bool:
        """Whether what was retrieved is moved away."""
        return self.displace > 0 or self.displace_turn > 0


@dataclass(frozen=True)
class TrainConfig:
    """A whole training run."""

    preset: str
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    pairs: PairsConfig = field(default_factory=PairsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    # Demonstrations by standard name, packed snapshot or pool; several are separated by commas.
    target: str = "pusht-triangle"  # of the robot
    pool: str = "pusht-9x100"  # of the pool's embodiment
    pool_angles: tuple[float, ...] = (-45.0, 45.0)  # goals of the pool that training may see; none: all
    n_demonstrations: int = 0  # of the target that are used; 0: all
    co_training: bool = False  # the pool's demonstrations are learned from too, and none is retrieved
    target_tasks: tuple[str, ...] = ()  # of the target that are learned from, by key; none: all
    pool_tasks: tuple[str, ...] = ()  # of the pool that training may see, by key; none: all
    own_share: float = 0.0  # of co-training's moments that are the target's, at least; 0: as they come
    held_out: float = 0.1  # share of the target's demonstrations that only judge
    seed: int = 0
    batch_size: int = 512  # over all processes and accumulated steps
    accumulate: int = 1
    n_iterations: int = 1800
    warm_up: int = 200
    learning_rate: float = 6e-4
    decay: bool = False  # to zero along a cosine; False: it stays, and the smoothed weights settle
    weight_decay: float = 0.05
    action_loss: float = 16.0  # the paper's lambda
    state_loss: float = 1.0
    ema: float = 0.999  # 0: none
    max_norm: float = 1.0
    bf16: bool = True  # where the device has it
    compile: bool = True  # where there is a GPU
    checkpointing: bool = False  # recompute activations: slower, less memory
    fsdp: bool = False  # of several processes each holds a part of the weights
    validate_every: int = 250
    save_every: int = 1000
    patience: int = 0  # validations without a better one until it stops; 0: never
    weights: str | None = None  # a published transformer to begin from: directory or hub name
    init: str | None = None  # a policy of ours to go on from: its weights, statistics and autoencoder
    autoencoder: str | None = None  # a published or trained autoencoder; none: a small one is trained first
    autoencoder_iterations: int = 2800
    autoencoder_batch: int = 128

    def __post_init__(self) -> None:
        if self.co_training and self.policy.retrieval:
            raise InputError(
                "co_training learns from the pool instead of retrieving from it: set policy.residual=false, "
                "then policy.retrieval=false"
            )

        if self.augment.mirror and not self.policy.world.mirrors:
            raise InputError(
                f"left and right cannot be swapped in domain '{self.policy.domain}': set augment.mirror=false"
            )
        planar = self.policy.pose_dim == PlanarEncoding.pose_dim
        for name in ("turn", "displace", "displace_turn"):
            wrong = self.policy.mode in BLOCK_MODES or (name == "turn" and not planar)
            if getattr(self.augment, name) > 0 and wrong:
                where = "the world's frame of the plane" if name == "turn" else "the world's frame"
                raise InputError(
                    f"augment.{name} moves scenes in {where}: set policy.mode=single or oracle, "
                    f"or augment.{name}=0"
                )
        if self.augment.displaces and not self.policy.measures:
            raise InputError(
                "augment.displace moves poses, and a policy of images alone has none: set augment.displace=0"
            )
        if not 0 <= self.own_share < 1:
            raise InputError(f"own_share {self.own_share} is out of range: give 0 to 1, such as 0.5")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return without_usual({**asdict(self), "policy": self.policy.to_json()}, LATER)


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """The inverse of `TrainConfig.to_json`."""
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    plain["policy"] = PolicyConfig.from_json(values["policy"])
    plain["pairs"] = PairsConfig(**values["pairs"])
    plain["augment"] = AugmentConfig(**values["augment"])
    return TrainConfig(**plain)
