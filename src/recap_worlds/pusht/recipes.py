"""Training recipes of PushT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.sizes import COSMOS_2B, COSMOS_HUB, NANO, TINY
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig
from recap.training.presets import DEBUG
from recap_pi0.config import PI0_BASE, PI0_DEBUG, PI0_TINY
from recap_worlds.pusht.robot import PUSHT, TOP_DOWN

# px; the mirror is exact if block and tool are symmetric.
_PX = AugmentConfig(mirror=True, chunk_noise=2.0, state_noise=0.2, turn_noise=0.002)
_BLOCK = PolicyConfig(  # in the block's frame
    PUSHT, "pusht-object", canonical=True, relative=False, image=TOP_DOWN
)
SEEN_GOALS = ("goal_angle=-45", "goal_angle=45")


def _recipe(name: str, **settings: Any) -> TrainConfig:
    usual: dict[str, Any] = {
        "policy": _BLOCK,
        "augment": _PX,
        "target": "pusht-triangle",
        "pool": "pusht-9x100",
        "pool_where": SEEN_GOALS,
    }
    return TrainConfig(name, **{**usual, **settings})


_NANO = replace(
    _BLOCK,
    network=NANO,
    sampling=SamplingConfig(n_steps=2, temperature=0.5),
    n_action_steps=4,
    subtrajectories=True,
)
_SMALL = _recipe(
    "pusht-small",
    policy=replace(
        _NANO,
        retrieval_name="pusht-contact",
        embodiment="triangle",
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
# Images only, small enough to train dozens on one GPU: 36 tokens.
_SMALL_IMAGE = _recipe(
    "pusht-small-image",
    policy=replace(
        _NANO,
        inputs="I",
        network=replace(NANO, num_attention_heads=2, num_layers=6, patch_size=(1, 4, 4)),
        n_action_steps=8,
    ),
    augment=replace(_PX, image_dropout=0.0),
    batch_size=256,
    n_iterations=1000,
    learning_rate=1e-3,
    ema=0.995,
)
_ALONE = replace(_NANO, retrieval=False, residual=False)  # in the block's frame
_ALONE_WORLD = replace(_ALONE, retrieval_name="pusht-world", canonical=False)
_WORLD = replace(_PX, image_dropout=0.5)
_TURNED = replace(_PX, image_dropout=1.0, turn=60.0)  # poses only; towards goals that were never shown
_PI0 = replace(
    _NANO,
    network=PI0_TINY,
    image=replace(TOP_DOWN, channels=3, scale=1),
    future_image=False,
    future_state=False,
)
_PIXELS = replace(_PX, latent_noise=0.0)

_DEBUG = _recipe(
    "debug",
    policy=replace(_BLOCK, network=TINY, image=replace(TOP_DOWN, size=16)),
    n_demonstrations=6,
    **DEBUG,
)

RECIPES: dict[str, TrainConfig] = {
    "debug": _DEBUG,
    # With images; included in the package.
    "pusht-nano": _recipe(
        "pusht-nano",
        policy=replace(
            _NANO, retrieval_name="pusht-contact", embodiment="triangle", future_change=True, n_action_steps=8
        ),
        augment=replace(_PX, image_dropout=0.6),
        n_iterations=3000,
    ),
    "pusht-nano-object": _recipe("pusht-nano-object", policy=_NANO),
    # Poses only, small enough for a CPU; included in the package.
    "pusht-small": _SMALL,
    "pusht-small-world": replace(
        _SMALL,
        preset="pusht-small-world",
        policy=replace(_SMALL.policy, retrieval_name="pusht-world", canonical=False, n_action_steps=4),
        augment=_TURNED,
    ),
    "pusht-small-world-oracle": replace(
        _SMALL,
        preset="pusht-small-world-oracle",
        policy=replace(_SMALL.policy, retrieval_name="pusht-world-oracle", canonical=False, n_action_steps=4),
        augment=_TURNED,
    ),
    "pusht-small-image": _SMALL_IMAGE,
    "pusht-nano-state": _recipe("pusht-nano-state", policy=replace(_NANO, inputs="S")),
    "pusht-nano-image": _recipe(
        "pusht-nano-image", policy=replace(_NANO, inputs="I"), augment=replace(_PX, image_dropout=0.0)
    ),
    "pusht-nano-world": _recipe(
        "pusht-nano-world",
        policy=replace(_NANO, retrieval_name="pusht-world", canonical=False),
        augment=_WORLD,
    ),
    "pusht-nano-world-oracle": _recipe(
        "pusht-nano-world-oracle",
        policy=replace(_NANO, retrieval_name="pusht-world-oracle", canonical=False),
        augment=_WORLD,
    ),
    "pusht-nano-no-retrieval": _recipe("pusht-nano-no-retrieval", policy=_ALONE_WORLD, augment=_WORLD),
    "pusht-nano-no-retrieval-block": _recipe("pusht-nano-no-retrieval-block", policy=_ALONE),
    # Every goal of the pool, as in the paper's row "Co-train (all)".
    "pusht-nano-co-training": _recipe(
        "pusht-nano-co-training", policy=_ALONE_WORLD, augment=_WORLD, co_training=True, pool_where=()
    ),
    "pusht-nano-co-training-block": _recipe(
        "pusht-nano-co-training-block", policy=_ALONE, co_training=True, pool_where=()
    ),
    "debug-pi0": replace(
        _DEBUG,
        preset="debug-pi0",
        policy=replace(_PI0, network=PI0_DEBUG, image=replace(TOP_DOWN, size=16, channels=3, scale=1)),
        augment=_PIXELS,
    ),
    "pusht-pi0-tiny": _recipe("pusht-pi0-tiny", policy=_PI0, augment=_PIXELS, compile=False),
    "pusht-pi0-tiny-no-retrieval": _recipe(
        "pusht-pi0-tiny-no-retrieval",
        policy=replace(_PI0, retrieval_name="pusht-world", canonical=False, retrieval=False, residual=False),
        augment=_PIXELS,
        compile=False,
    ),
    # Published π0 weights, fine-tuned; the paper's settings are not known, so these differ.
    "pi0-base": _recipe(
        "pi0-base",
        policy=replace(
            _PI0,
            network=PI0_BASE,
            image=replace(TOP_DOWN, camera_size=224, size=224, channels=3, scale=1),
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
    # The paper's settings: batch 16 per GPU × 4 accumulated × 8 GPUs. Activations of 16 take 61 GiB. If they
    # do not fit, checkpointing=true needs a third more time.
    "cosmos-2b": _recipe(
        "cosmos-2b",
        policy=replace(
            _BLOCK,
            network=COSMOS_2B,
            chunk_size=16,
            n_action_steps=1,
            image=replace(TOP_DOWN, camera_size=224, size=224),
            sampling=SamplingConfig(n_steps=5),
            inputs="I",
            retrieval_name="pusht-world",
            canonical=False,
        ),
        pairs=PairsConfig(k=3, action_weight=0.1, n_candidates=5),
        augment=replace(
            _PX, chunk_noise=0.0, state_noise=0.0, turn_noise=0.0, image_dropout=0.0, latent_noise=0.0
        ),
        batch_size=512,
        accumulate=4,
        n_iterations=20_000,
        warm_up=2000,
        learning_rate=1e-4,
        decay=True,
        action_loss=16.0,
        fsdp=True,
        weights=COSMOS_HUB,
        autoencoder=COSMOS_HUB,
    ),
}
