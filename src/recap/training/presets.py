"""Training recipes by name: those of installed suites, and sizes for any robot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recap import config as configs
from recap.errors import InputError, did_you_mean
from recap.policies.config import (
    AnyNetworkConfig,
    ImageConfig,
    PolicyConfig,
    SamplingConfig,
    installed_backbones,
)
from recap.policies.sizes import COSMOS_2B, COSMOS_HUB, NANO, TINY
from recap.policies.vectors import numbers_of, width_of
from recap.robot import RobotSpec
from recap.suites import suites
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig

# A run of seconds that checks the set-up.
DEBUG: Mapping[str, Any] = {
    "held_out": 0.34,
    "batch_size": 16,
    "n_iterations": 12,
    "warm_up": 2,
    "validate_every": 6,
    "save_every": 6,
    "bf16": False,
    "compile": False,
    "autoencoder_iterations": 4,
    "autoencoder_batch": 8,
}
# Fine-tunes published weights on many GPUs.
LARGE: Mapping[str, Any] = {
    "accumulate": 4,
    "n_iterations": 20_000,
    "warm_up": 2000,
    "learning_rate": 1e-4,
    "decay": True,
}
# The library's own networks, for any robot.
SIZES = ("debug", "small", "nano", "2b")


def sizes() -> tuple[str, ...]:
    """All sizes for any robot, including those of installed backbones."""
    return (*SIZES, *_installed_sizes())


def _installed_sizes() -> dict[str, type[AnyNetworkConfig]]:
    return {size: kind for kind in installed_backbones().values() for size in kind.sizes}


def preset(name: str, changes: Sequence[str] = (), robot: RobotSpec | None = None) -> TrainConfig:
    """A recipe with changes such as `policy.inputs=S` or `n_iterations=100`, checked together.

    Args:
        robot: the robot that the recipe is for; `name` is then the network's size.
    """
    if robot is not None:
        if name not in sizes():
            raise InputError(f"unknown size '{name}' for robot '{robot.name}': {did_you_mean(name, sizes())}")
        config = configs.with_changes(_for_robot(name, robot), changes)
        if any(change.startswith("policy.image.size=") for change in changes):
            return config
        return replace(config, policy=_fitting(config.policy))
    known = {key: value for suite in suites().values() for key, value in suite.training_presets().items()}
    if name not in known:
        hint = did_you_mean(name, known)
        hint = hint if hint.startswith("did you") else "recap train --list shows them"
        raise InputError(f"unknown training recipe '{name}': {hint}; or give robot.yaml and --size")
    return configs.with_changes(known[name], changes)


def _fitting(policy: PolicyConfig) -> PolicyConfig:
    """Enlarge the images until the robot's widest vector fits a latent frame."""
    widest = max(map(width_of, numbers_of(policy).values()))
    image, step = policy.image, policy.image.scale * policy.network.patch
    while policy.sees and image.channels * image.latent_size**2 < widest:
        image = replace(image, size=image.size + step)
    return replace(policy, image=image)


def _for_robot(size: str, robot: RobotSpec) -> TrainConfig:
    """A recipe for any robot: retrieval in the world's frame, with images if it has cameras."""
    cameras = tuple(robot.cameras)
    measures = robot.object_kind in ("pose2", "pose3")
    if not cameras and not measures:
        raise InputError(f"robot '{robot.name}' has neither cameras nor objects: describe what it sees")
    policy = PolicyConfig(
        robot,
        inputs="I+S" if cameras and measures else "I" if cameras else "S",
        chunk_size=16,
        n_action_steps=8,
        image=ImageConfig(cameras),
        network=NANO,
        sampling=SamplingConfig(n_steps=2, temperature=0.5),
    )
    moves = AugmentConfig(chunk_noise=0.003, state_noise=0.002) if robot.is_metric else AugmentConfig()
    moves = replace(moves, image_dropout=0.3 if measures else 0.0)
    base = TrainConfig(f"{robot.name}-{size}", policy, PairsConfig(leave_out=True), moves)
    slow = replace(base, bf16=False, compile=False)
    if size == "debug":
        tiny = replace(policy, network=TINY, chunk_size=8, image=replace(policy.image, size=16))
        return replace(slow, policy=tiny, **DEBUG)
    if size == "small":
        network = replace(NANO, num_attention_heads=2, num_layers=4, attention_head_dim=48, adaln_lora_dim=16)
        return replace(
            slow,
            policy=replace(policy, network=network, image=replace(policy.image, size=32)),
            batch_size=64,
            n_iterations=600,
            warm_up=100,
            learning_rate=1e-3,
            ema=0.99,
            validate_every=150,
            save_every=300,
            autoencoder_iterations=300,
            autoencoder_batch=32,
        )
    if size == "2b":
        big = replace(
            policy,
            network=COSMOS_2B,
            image=replace(policy.image, size=224),
            sampling=SamplingConfig(n_steps=5),
        )
        return replace(base, policy=big, fsdp=True, weights=COSMOS_HUB, autoencoder=COSMOS_HUB, **LARGE)
    return base if size in SIZES else _installed_sizes()[size].recipe(size, base)
