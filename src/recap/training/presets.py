"""Training runs by name, and how their settings are changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from recap.errors import InputError, did_you_mean, one_of
from recap.policies.config import ImageConfig, PolicyConfig, SamplingConfig
from recap.policies.network import COSMOS_2B, NANO, TINY
from recap.policies.pi0 import PI0_BASE, PI0_DEBUG, PI0_TINY
from recap.robotwin_tasks import SEEN
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig

_NANO = PolicyConfig(
    network=NANO, sampling=SamplingConfig(n_steps=2, temperature=0.5), n_action_steps=4, hindsight=True
)
_SMALL = TrainConfig(
    "pusht-small",
    policy=replace(
        _NANO,
        mode="contact",
        robot="triangle",
        inputs="S",
        network=replace(NANO, num_attention_heads=2, num_layers=6),
        n_action_steps=8,
    ),
    batch_size=128,
    n_iterations=2000,
    learning_rate=1e-3,
    ema=0.995,
    save_every=500,
    bf16=False,
    compile=False,
)
# Images alone, small enough to train dozens of them on one GPU: 36 tokens.
_SMALL_IMAGE = TrainConfig(
    "pusht-small-image",
    policy=replace(
        _NANO,
        inputs="I",
        network=replace(NANO, num_attention_heads=2, num_layers=6, patch_size=(1, 4, 4)),
        n_action_steps=8,
    ),
    augment=AugmentConfig(image_dropout=0.0),
    batch_size=256,
    n_iterations=1000,
    learning_rate=1e-3,
    ema=0.995,
)
_ALONE = replace(_NANO, retrieval=False, residual=False)  # in the block's frame
_ALONE_WORLD = replace(_ALONE, mode="single")
_WORLD = AugmentConfig(image_dropout=0.5)
_TURNED = AugmentConfig(image_dropout=1.0, turn=60.0)  # poses alone, towards goals that were never shown
_PI0 = replace(
    _NANO,
    network=PI0_TINY,
    image=ImageConfig(channels=3, scale=1),
    future_image=False,
    future_state=False,
)
_PIXELS = AugmentConfig(latent_noise=0.0)

# Two arms in the world's frame; demonstrations are moved into the scene before a residual is added.
_ARMS = PolicyConfig(
    domain="dualarm",
    chunk_size=16,
    action_dim=20,
    proprio_dim=20,
    pose_dim=7,
    n_objects=3,
    image=ImageConfig(
        cameras=("head", "left_wrist", "right_wrist"),
        camera_size=64,
        view="camera",
        retrieved_cameras=("head",),
        future_cameras=("head",),
    ),
    network=replace(NANO, text_embed_dim=128),
    sampling=SamplingConfig(n_steps=2, temperature=0.5),
    text="content-words",
    n_action_steps=8,
)
_ARMS_ALONE = replace(_ARMS, mode="single", retrieval=False, residual=False)
_TABLE = AugmentConfig(  # metres
    mirror=False, chunk_noise=0.003, state_noise=0.002, turn_noise=0.01, chunk_turn=0.01, shift=0.05
)
_TWO_ARMS = TrainConfig(
    "dualarm-nano",
    policy=_ARMS,
    # With the twin scene, whose residual is the robots' difference: that carries over to new tasks.
    pairs=PairsConfig(k=3, leave_out=True),
    augment=_TABLE,
    target="data/dualarm/viperx.safetensors",
    pool="data/dualarm/ur5e.safetensors",
    pool_angles=(),
    target_tasks=SEEN,
    pool_tasks=SEEN,
    n_iterations=2400,
)

_TWO_ARMS_WORLD = replace(_TWO_ARMS, preset="dualarm-nano-single", policy=replace(_ARMS, mode="single"))
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
        pool_tasks=(),
    ),
    # Not a method but a ceiling: it learns from the robot's own demonstrations of every task.
    replace(
        _TWO_ARMS,
        preset="dualarm-nano-supervised",
        policy=_ARMS_ALONE,
        pairs=PairsConfig(),
        target_tasks=(),
    ),
)


def _small(config: TrainConfig) -> TrainConfig:
    """The same on poses alone, small enough for a CPU."""
    network = replace(
        NANO,
        text_embed_dim=128,
        num_attention_heads=2,
        attention_head_dim=48,
        num_layers=4,
        adaln_lora_dim=16,
    )
    return replace(
        config,
        preset=config.preset.replace("nano", "small"),
        policy=replace(config.policy, inputs="S", network=network),
        batch_size=64,
        n_iterations=1500,
        warm_up=100,
        ema=0.99,
        save_every=500,
        bf16=False,
        compile=False,
    )


def _of_poses_apart(config: TrainConfig) -> TrainConfig:
    """In the world's frame: what was retrieved lies elsewhere, and only poses tell how far.

    A slot is one token, so that what is compared number by number is beside each other.
    """
    policy = config.policy
    return replace(
        config,
        policy=replace(
            policy,
            objects_from_now=True,
            text="none",  # which task it is, what was retrieved says: an unseen one has unseen words
            image=replace(policy.image, channels=100),
            network=replace(policy.network, num_attention_heads=6, attention_head_dim=64),
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


_DEBUG = TrainConfig(
    "debug",
    policy=PolicyConfig(network=TINY, image=ImageConfig(size=16)),
    n_demonstrations=6,
    held_out=0.34,
    batch_size=16,
    n_iterations=12,
    warm_up=2,
    validate_every=6,
    save_every=6,
    bf16=False,
    compile=False,
    autoencoder_iterations=4,
    autoencoder_batch=8,
)

PRESETS: dict[str, TrainConfig] = {
    "debug": _DEBUG,
    # With images: what comes with the package.
    "pusht-nano": TrainConfig(
        "pusht-nano",
        policy=replace(_NANO, mode="contact", robot="triangle", future_change=True, n_action_steps=8),
        augment=AugmentConfig(image_dropout=0.6),
        n_iterations=3000,
    ),
    "pusht-nano-aligned": TrainConfig("pusht-nano-aligned", policy=_NANO),
    # Poses alone, small enough for a CPU: what comes with the package.
    "pusht-small": _SMALL,
    "pusht-small-single": replace(
        _SMALL,
        preset="pusht-small-single",
        policy=replace(_SMALL.policy, mode="single", n_action_steps=4),
        augment=_TURNED,
    ),
    "pusht-small-oracle": replace(
        _SMALL,
        preset="pusht-small-oracle",
        policy=replace(_SMALL.policy, mode="oracle", n_action_steps=4),
        augment=_TURNED,
    ),
    "pusht-small-image": _SMALL_IMAGE,
    "pusht-nano-state": TrainConfig("pusht-nano-state", policy=replace(_NANO, inputs="S")),
    "pusht-nano-image": TrainConfig(
        "pusht-nano-image", policy=replace(_NANO, inputs="I"), augment=AugmentConfig(image_dropout=0.0)
    ),
    "pusht-nano-single": TrainConfig(
        "pusht-nano-single", policy=replace(_NANO, mode="single"), augment=_WORLD
    ),
    "pusht-nano-oracle": TrainConfig(
        "pusht-nano-oracle", policy=replace(_NANO, mode="oracle"), augment=_WORLD
    ),
    "pusht-nano-no-retrieval": TrainConfig("pusht-nano-no-retrieval", policy=_ALONE_WORLD, augment=_WORLD),
    "pusht-nano-no-retrieval-block": TrainConfig("pusht-nano-no-retrieval-block", policy=_ALONE),
    # Every goal of the pool, as the paper's row "Co-train (all)".
    "pusht-nano-co-training": TrainConfig(
        "pusht-nano-co-training", policy=_ALONE_WORLD, augment=_WORLD, co_training=True, pool_angles=()
    ),
    "pusht-nano-co-training-block": TrainConfig(
        "pusht-nano-co-training-block", policy=_ALONE, co_training=True, pool_angles=()
    ),
    **{config.preset: config for config in (*_OF_TWO_ARMS, *map(_small, _OF_TWO_ARMS))},
    "dualarm-small-single": _of_poses_apart(_small(_TWO_ARMS_WORLD)),
    "debug-dualarm": replace(
        _DEBUG,
        preset="debug-dualarm",
        policy=replace(_ARMS, chunk_size=8, network=TINY, image=replace(_ARMS.image, size=32)),
        pairs=_TWO_ARMS.pairs,
        augment=_TABLE,
        target="dualarm-debug-viperx",
        pool="dualarm-debug-ur5e",
        pool_angles=(),
    ),
    "debug-pi0": replace(
        _DEBUG,
        preset="debug-pi0",
        policy=replace(_PI0, network=PI0_DEBUG, image=ImageConfig(size=16, channels=3, scale=1)),
        augment=_PIXELS,
    ),
    "pusht-pi0-tiny": TrainConfig("pusht-pi0-tiny", policy=_PI0, augment=_PIXELS, compile=False),
    "pusht-pi0-tiny-no-retrieval": TrainConfig(
        "pusht-pi0-tiny-no-retrieval",
        policy=replace(_PI0, mode="single", retrieval=False, residual=False),
        augment=_PIXELS,
        compile=False,
    ),
    # Published weights of the π0 type, fine-tuned; not the paper's settings, which are not known.
    "pi0-base": TrainConfig(
        "pi0-base",
        policy=replace(
            _PI0,
            network=PI0_BASE,
            image=ImageConfig(camera_size=224, size=224, channels=3, scale=1),
            sampling=SamplingConfig(n_steps=10),
            text="google/paligemma-3b-pt-224",
        ),
        augment=_PIXELS,
        batch_size=64,
        accumulate=4,
        n_iterations=20_000,
        warm_up=1000,
        learning_rate=2.5e-5,
        decay=True,
        compile=False,
        weights="lerobot/pi0_base",
    ),
    # The paper's settings: 16 a GPU × 4 accumulated × 8 GPUs. Activations of 16 take 61 GiB; where they do
    # not fit, checkpointing=true takes a third longer.
    "cosmos-2b": TrainConfig(
        "cosmos-2b",
        policy=PolicyConfig(
            network=COSMOS_2B,
            chunk_size=16,
            n_action_steps=1,
            image=ImageConfig(camera_size=224, size=224),
            sampling=SamplingConfig(n_steps=5),
            inputs="I",
            mode="single",
        ),
        pairs=PairsConfig(k=3, action_weight=0.1, n_candidates=5),
        augment=AugmentConfig(
            chunk_noise=0.0, state_noise=0.0, turn_noise=0.0, image_dropout=0.0, latent_noise=0.0
        ),
        batch_size=512,
        accumulate=4,
        n_iterations=20_000,
        warm_up=2000,
        learning_rate=1e-4,
        decay=True,
        action_loss=16.0,
        fsdp=True,
        weights="nvidia/Cosmos-Predict2.5-2B",
        autoencoder="nvidia/Cosmos-Predict2.5-2B",
    ),
}


def preset(name: str, changes: Sequence[str] = ()) -> TrainConfig:
    """A preset with changes such as `policy.inputs=S` or `n_iterations=100`."""
    one_of("training preset", name, tuple(PRESETS))
    config = PRESETS[name]
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals:
            raise InputError(f"'{change}' is no setting: write key=value, such as policy.inputs=S")
        config = _changed(config, path.strip().split("."), text.strip(), path)
    return config


def _changed(part: Any, path: Sequence[str], text: str, whole: str) -> Any:
    """The part with one of its values replaced."""
    names = [f.name for f in fields(part)]
    if path[0] not in names:
        raise InputError(f"there is no setting '{whole}': {did_you_mean(path[0], names)}")
    old = getattr(part, path[0])
    if is_dataclass(old):
        if len(path) == 1:
            raise InputError(
                f"'{whole}' is a group: name one of its settings, such as {whole}.{fields(old)[0].name}"
            )
        return replace(part, **{path[0]: _changed(old, path[1:], text, whole)})
    if len(path) > 1:
        raise InputError(f"'{whole}' goes too deep: '{path[0]}' is one value")
    return replace(part, **{path[0]: _parsed(text, get_type_hints(type(part))[path[0]], whole)})


def _parsed(text: str, kind: Any, name: str) -> Any:
    """The value of that kind."""
    wanted = str(kind)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if "None" in wanted and text.lower() == "none":
            return None
        if wanted.startswith("tuple"):
            each = float if "float" in wanted else int if "int" in wanted else str
            return tuple(each(item) for item in text.split(",") if item)
        if kind is int or wanted.startswith("int"):
            return int(text)
        if kind is float:
            return float(text)
        return text
    except (ValueError, KeyError):
        raise InputError(
            f"'{text}' is no value for {name}: it is {getattr(kind, '__name__', wanted)}"
        ) from None
