"""What a training run is: its data, its policy and its schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from recap import config as configs
from recap.errors import InputError, one_of
from recap.policies.config import PolicyConfig


@dataclass(frozen=True)
class PairsConfig:
    """How a moment of the pool is chosen for each moment of the target."""

    k: int = 3
    action_weight: float = 1.0  # of the chunk to come, which only training knows
    allow_twin: bool = True  # whether the pool's demonstration of the same scene may be matched
    n_candidates: int | None = None
    misaligned: float = 0.0  # share of the target's demonstrations that are matched at random, on purpose
    leave_out: bool = False  # demonstrations whose residual stands out are not learned from
    step_weight: float = 0.0  # of the differences from one action of that chunk to the next
    by: str = "scene"  # which demonstrations are pairs: scene, order, column:NAME or FILE.csv


@dataclass(frozen=True)
class AugmentConfig:
    """What is varied at every step; none of it changes what is true."""

    # Lengths are in the unit of the robot's positions; joints count as positions.
    mirror: bool = False  # left and right are swapped: in a plane, where robot and object are symmetric
    chunk_noise: float = 0.0  # smooth shift of the retrieved chunk; the residual takes it back
    state_noise: float = 0.0  # by which measured positions are off
    turn_noise: float = 0.0  # rad, likewise
    retrieval_dropout: float = 0.1  # share of samples that see no retrieved chunk
    image_dropout: float = 0.3  # share of samples that see no image
    latent_noise: float = 0.1  # of a latent's deviation
    action_given: float = 0.0  # share of samples that are given the action, and learn what comes of it
    image_copies: int = 0  # of each picture, varied by the two below; encoded once, and kept
    image_shift: float = 0.06  # share of a side by which the pictures of a demonstration are shifted
    image_colour: float = 0.2  # share by which their brightness, contrast and saturation change
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
    policy: PolicyConfig
    pairs: PairsConfig = field(default_factory=PairsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    # Demonstrations by standard name, packed snapshot or pool; several are separated by commas.
    target: str = ""  # of the robot
    pool: str = ""  # of the pool's embodiment
    # What training may see, by attributes such as task_key=lift_pot; none: all.
    target_where: tuple[str, ...] = ()
    pool_where: tuple[str, ...] = ()
    n_demonstrations: int = 0  # of the target that are used; 0: all
    co_training: bool = False  # the pool's demonstrations are learned from too, and none is retrieved
    own_share: float = 0.0  # of co-training's moments that are the target's, at least; 0: as they come
    held_out: float = 0.1  # share of the target's scenes, or tasks, that are for validation
    held_out_by: str = "scene"  # "task": validated on tasks that it does not learn, as it will be used
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
    scale_future: bool = False  # with policy.future_change: the change is divided by its deviation
    ema: float = 0.999  # 0: none
    max_norm: float = 1.0
    bf16: bool = True  # where the device has it
    compile: bool = True  # where there is a GPU
    checkpointing: bool = False  # recompute activations: slower, less memory
    fsdp: bool = False  # of several processes each holds a part of the weights
    validate_every: int = 250
    save_every: int = 1000  # what a stopped run resumes from, four times its weights; 0: it cannot resume
    patience: int = 0  # validations without a better one until it stops; 0: never
    weights: str | None = None  # published transformer to start from: directory or hub name
    init: str | None = None  # policy to fine-tune: its weights, statistics and autoencoder
    init_from: str | None = None  # policy, possibly of another robot, to copy matching weights from
    autoencoder: str | None = None  # a published or trained autoencoder; none: a small one is trained first
    autoencoder_iterations: int = 2800
    autoencoder_batch: int = 128

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.co_training and self.policy.retrieval:
            raise InputError(
                "co_training learns from the pool instead of retrieving from it: set policy.residual=false "
                "and policy.retrieval=false"
            )
        if self.init is not None and self.init_from is not None:
            raise InputError("init goes on with a policy, init_from begins a new one: give one of the two")
        if self.scale_future and not (self.policy.future_image and self.policy.future_change):
            raise InputError(
                "scale_future divides the predicted change of an image: set policy.future_image=true and "
                "policy.future_change=true"
            )
        robot, augment = self.policy.robot, self.augment
        planar = robot.body.is_planar and robot.act.is_planar
        if augment.mirror and not planar:
            raise InputError(f"robot '{robot.name}' has no left and right to swap: set augment.mirror=false")
        for name in ("turn", "displace", "displace_turn"):
            # A step relative to where the robot is does not say that it turns with the world.
            turns = planar and not self.policy.relative and robot.action_mode == "absolute"
            wrong = self.policy.canonical or (name == "turn" and not turns)
            if getattr(augment, name) > 0 and wrong:
                plane = "the world's frame of the plane, with policy.relative=false"
                where = plane if name == "turn" else "the world's frame"
                raise InputError(
                    f"augment.{name} moves scenes in {where}: set augment.{name}=0, or use a retrieval of "
                    "the world's frame"
                )
        if augment.displaces and not self.policy.measures:
            raise InputError("augment.displace moves poses, and images alone have none: set it to 0")

    def _check_numbers(self) -> None:
        """Every number by itself, before any data is loaded."""
        one_of("held_out_by", self.held_out_by, ("scene", "task"))
        for part in (self, self.pairs, self.augment):
            prefix = {PairsConfig: "pairs.", AugmentConfig: "augment."}.get(type(part), "")
            for setting in fields(part):
                value = getattr(part, setting.name)
                if isinstance(value, float) and not math.isfinite(value):
                    raise InputError(f"{prefix}{setting.name} is {value}: give a finite number")
        for name in ("batch_size", "accumulate", "n_iterations", "validate_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more")
        if self.batch_size % self.accumulate:
            raise InputError(
                f"batch_size {self.batch_size} cannot be accumulated in {self.accumulate} steps: "
                "give a multiple"
            )
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate}: give more than 0, such as 6e-4")
        for name, low, high in (("held_out", 0, 1), ("own_share", 0, 1), ("ema", 0, 1)):
            if not low <= getattr(self, name) < high:
                raise InputError(f"{name} {getattr(self, name)} is out of range: give {low} to {high}")
        if self.augment.image_copies < 0:
            raise InputError(f"augment.image_copies is {self.augment.image_copies}: give 0 or more")
        if self.pairs.k < 1:
            raise InputError(f"pairs.k is {self.pairs.k}: give 1 or more")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**configs.plain(self), "policy": self.policy.to_json()}


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """The inverse of `TrainConfig.to_json`."""
    known = dict(values)
    known["policy"] = PolicyConfig.from_json(known.get("policy") or {})
    return configs.read(TrainConfig, known, "the training's config", complete=True)
