"""Configuration of a training run: data, policy and schedule."""

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
    """How frames of the pool are chosen as matches for each frame of the target."""

    k: int = 3  # matches per target frame
    action_weight: float = 1.0  # weight of the true actions to come, which only training knows
    allow_twin: bool = True  # whether the pool's demonstration of the same scene may be matched
    n_candidates: int | None = None  # demonstrations that stage 1 keeps; None: as the retrieval says
    misaligned: float = 0.0  # share of target demonstrations that get random matches, for experiments
    leave_out: bool = False  # leave out demonstrations with an outlying residual
    step_weight: float = 0.0  # weight of the differences between consecutive true actions
    by: str = "scene"  # how demonstrations are paired: scene, order, column:NAME or FILE.csv


@dataclass(frozen=True)
class AugmentConfig:
    """Data augmentation; inputs and targets stay consistent."""

    # Lengths are in the unit of the robot's positions; joints count as positions.
    mirror: bool = False  # swap left and right; only in a plane, for a symmetric robot and object
    chunk_noise: float = 0.0  # smooth shift of the retrieved chunk; the residual target corrects it
    state_noise: float = 0.0  # noise on measured positions
    turn_noise: float = 0.0  # rad, noise on measured rotations
    retrieval_dropout: float = 0.1  # share of samples without a retrieved chunk
    image_dropout: float = 0.3  # share of samples without images
    latent_noise: float = 0.1  # noise on image latents, relative to their deviation
    action_given: float = 0.0  # share of samples that get the action as input and learn its outcome
    image_copies: int = 0  # augmented copies of each picture, by the next two; encoded once and cached
    image_shift: float = 0.06  # largest shift of a demonstration's pictures, as a share of a side
    image_colour: float = 0.2  # largest relative change of brightness, contrast and saturation
    chunk_turn: float = 0.0  # smooth shift of the rotation numbers of the retrieved chunk
    shift: float = 0.0  # sideways shift of the whole scene, in samples without images
    turn: float = 0.0  # degrees, largest rotation of the whole scene, likewise; only in the plane
    # Displacement of the retrieved chunk with its scene, in samples without images. The residual target
    # corrects it, and only the poses show how far it is.
    displace: float = 0.0  # px or m, deviation of a shift of the retrieved scene
    displace_turn: float = 0.0  # degrees, largest rotation of the retrieved scene about its main object

    @property
    def displaces(self) -> bool:
        """True if the retrieved chunk is displaced."""
        return self.displace > 0 or self.displace_turn > 0


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    preset: str
    policy: PolicyConfig
    pairs: PairsConfig = field(default_factory=PairsConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    # Standard name, packed snapshot or pool; separate several by commas.
    target: str = ""  # demonstrations of the robot
    pool: str = ""  # demonstrations of the pool's embodiment
    # Attributes to select by, any of which is enough, such as task_key=lift_pot; none: all.
    target_where: tuple[str, ...] = ()
    pool_where: tuple[str, ...] = ()
    n_demonstrations: int = 0  # target demonstrations to use; 0: all
    co_training: bool = False  # learn from the pool's demonstrations too, and retrieve none
    own_share: float = 0.0  # least share of target frames in co-training; 0: as they come
    held_out: float = 0.1  # share of the target's scenes, or tasks, used for validation
    held_out_by: str = "scene"  # "task" validates on tasks that are not trained on, as in later use
    seed: int = 0
    batch_size: int = 512  # over all processes and accumulated steps
    accumulate: int = 1
    n_iterations: int = 1800
    warm_up: int = 200
    learning_rate: float = 6e-4
    decay: bool = False  # to zero along a cosine; False: constant, and the weights are smoothed
    weight_decay: float = 0.05
    action_loss: float = 16.0  # weight of the action loss, the paper's lambda
    state_loss: float = 1.0
    scale_future: bool = False  # with policy.future_change: divide the change by its deviation
    ema: float = 0.999  # decay of the smoothed weights; 0: no smoothing
    max_norm: float = 1.0
    bf16: bool = True  # if the device supports it
    compile: bool = True  # on a GPU
    checkpointing: bool = False  # recompute activations: slower, less memory
    fsdp: bool = False  # shard the weights over the processes
    validate_every: int = 250
    save_every: int = 1000  # iterations between states to resume from (four times the weights' size); 0: none
    patience: int = 0  # validations without improvement after which training stops; 0: never
    weights: str | None = None  # published transformer to start from: directory or hub name
    init: str | None = None  # policy to fine-tune: its weights, statistics and autoencoder
    init_from: str | None = None  # policy, possibly of another robot, to copy matching weights from
    autoencoder: str | None = None  # published or trained autoencoder; None: a small one is trained first
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
            # Relative numbers in the plane are not rotated with the world (see `Columns.of`).
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
        """Check each number on its own, before data is loaded."""
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
        """The fields as JSON values."""
        return {**configs.plain(self), "policy": self.policy.to_json()}


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """The inverse of `TrainConfig.to_json`."""
    known = dict(values)
    known["policy"] = PolicyConfig.from_json(known.get("policy") or {})
    return configs.read(TrainConfig, known, "the training's config", complete=True)
