"""Training recipes of two arms."""

from __future__ import annotations

from dataclasses import replace

from recap.policies.config import ImageConfig, PolicyConfig, SamplingConfig
from recap.policies.sizes import NANO, TINY
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig
from recap.training.presets import DEBUG
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.dualarm.robotwin_tasks import SEEN

SEEN_TASKS = tuple(f"task_key={task}" for task in SEEN)

# Two arms in the world's frame; demonstrations are aligned to the scene before the residual is added.
_ARMS = PolicyConfig(
    TWO_ARMS,
    "dualarm-parts",
    chunk_size=16,
    n_objects=3,
    image=ImageConfig(
        cameras=("head", "left_wrist", "right_wrist"),
        camera_size=64,
        retrieved_cameras=("head",),
        future_cameras=("head",),
    ),
    network=replace(NANO, text_embed_dim=128),
    sampling=SamplingConfig(n_steps=2, temperature=0.5),
    text="content-words",
    n_action_steps=8,
)
_ARMS_ALONE = replace(_ARMS, retrieval_name="dualarm-world", retrieval=False, residual=False)
_TABLE = AugmentConfig(  # metres
    mirror=False, chunk_noise=0.003, state_noise=0.002, turn_noise=0.01, chunk_turn=0.01, shift=0.05
)
_TWO_ARMS = TrainConfig(
    "dualarm-nano",
    policy=_ARMS,
    # Pairs include the twin: its residual is the difference of the robots, which also holds for new tasks.
    pairs=PairsConfig(k=3, leave_out=True),
    augment=_TABLE,
    target="data/dualarm/viperx.safetensors",
    pool="data/dualarm/ur5e.safetensors",
    target_where=SEEN_TASKS,
    pool_where=SEEN_TASKS,
    n_iterations=2400,
)

_TWO_ARMS_WORLD = replace(
    _TWO_ARMS, preset="dualarm-nano-world", policy=replace(_ARMS, retrieval_name="dualarm-world")
)
_OF_TWO_ARMS = (
    _TWO_ARMS,
    _TWO_ARMS_WORLD,
    replace(_TWO_ARMS, preset="dualarm-nano-no-retrieval", policy=_ARMS_ALONE, pairs=PairsConfig()),
    replace(
        _TWO_ARMS,
        preset="dualarm-nano-co-training",
        policy=_ARMS_ALONE,
        pairs=PairsConfig(),
        co_training=True,
        pool_where=(),
    ),
    # Not a method but an upper bound: it learns from the robot's own demonstrations of every task.
    replace(
        _TWO_ARMS,
        preset="dualarm-nano-supervised",
        policy=_ARMS_ALONE,
        pairs=PairsConfig(),
        target_where=(),
    ),
)


_SMALL_NETWORK = replace(
    NANO,
    text_embed_dim=128,
    num_attention_heads=2,
    attention_head_dim=48,
    num_layers=4,
    adaln_lora_dim=16,
)


def _small(config: TrainConfig) -> TrainConfig:
    """The same with poses only, small enough for a CPU."""
    return replace(
        config,
        preset=config.preset.replace("nano", "small"),
        policy=replace(config.policy, inputs="S", network=_SMALL_NETWORK),
        batch_size=64,
        n_iterations=1500,
        warm_up=100,
        ema=0.99,
        save_every=500,
        bf16=False,
        compile=False,
    )


def _of_poses_apart(config: TrainConfig) -> TrainConfig:
    """For the world's frame: retrieved objects are elsewhere, and only poses show how far.

    A slot is one token, so that numbers that are compared are next to each other.
    """
    policy = config.policy
    return replace(
        config,
        policy=replace(
            policy,
            relative_object_poses=True,
            text="none",  # the retrieved chunk determines the task; unseen tasks have unseen words
            image=replace(policy.image, channels=100),
            network=replace(_SMALL_NETWORK, num_attention_heads=6, attention_head_dim=64),
        ),
        pairs=PairsConfig(k=3, action_weight=0.0, allow_twin=False, leave_out=True),
        augment=replace(
            _TABLE,
            shift=0.1,
            displace=0.05,
            displace_turn=15.0,
            image_dropout=1.0,
            retrieval_dropout=0.02,
        ),
        n_iterations=2400,
        learning_rate=7e-4,
        decay=True,
    )


RECIPES: dict[str, TrainConfig] = {
    **{config.preset: config for config in (*_OF_TWO_ARMS, *map(_small, _OF_TWO_ARMS))},
    "dualarm-small-world": _of_poses_apart(_small(_TWO_ARMS_WORLD)),
    "debug-dualarm": TrainConfig(
        "debug-dualarm",
        policy=replace(_ARMS, chunk_size=8, network=TINY, image=replace(_ARMS.image, size=32)),
        pairs=_TWO_ARMS.pairs,
        augment=_TABLE,
        target="dualarm-debug-viperx",
        pool="dualarm-debug-ur5e",
        n_demonstrations=6,
        **DEBUG,
    ),
}
