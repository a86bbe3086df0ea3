"""A tiny untrained policy, inputs for it, and demonstrations small enough to train it in a test."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from episodes import observation_of, random_episode
from recap.policies.autoencoder import FrameEncoder, build_autoencoder
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout
from recap.policies.model import Batch
from recap.policies.policy import RetrievalStamp, Statistics, TrainedPolicy
from recap.policies.sizes import TINY
from recap.policies.wam import WorldActionModel
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.packed import write_packed
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.presets import find_retrieval
from recap.types import Conditioning, Episode, FrameRef, Moment, Observation
from recap_worlds.pusht.rendering import RenderedFrames
from recap_worlds.pusht.robot import PUSHT, TOP_DOWN

ANGLE = np.pi / 4


def toy_config(**changes: Any) -> PolicyConfig:
    """Push-T in the block's frame, with 16 px images and the smallest network."""
    image = replace(TOP_DOWN, size=16)
    base = PolicyConfig(PUSHT, "pusht-object", canonical=True, relative=False, image=image, network=TINY)
    return replace(base, **changes)


def in_world(name: str = "world") -> dict[str, Any]:
    """Changes for a policy in the world's frame: `world` or `world-oracle`."""
    return {"retrieval_name": f"pusht-{name}", "canonical": False}


def toy_statistics(config: PolicyConfig) -> Statistics:
    """Statistics with mean 0 and a standard deviation of 50 px for every number."""
    widths = {slot.name: slot.width for slot in build_layout(config).vectors}
    return Statistics(
        {name: np.zeros(width, np.float32) for name, width in widths.items()},
        {name: np.full(width, 50.0, np.float32) for name, width in widths.items()},
    )


def toy_stamp(name: str = "pusht-object") -> RetrievalStamp:
    """The stamp of the named retrieval."""
    describer, retrieval = find_retrieval(name)
    return RetrievalStamp(name, describer.fingerprint, retrieval.metric_fingerprint, dict(retrieval.scales))


def toy_retrieval(config: PolicyConfig) -> RetrievalConfig:
    """The retrieval configuration for a policy of that config."""
    return replace(find_retrieval(config.retrieval_name, config.robot)[1], chunk_size=config.chunk_size)


@cache
def toy_encoder() -> FrameEncoder:
    """A small untrained autoencoder."""
    torch.manual_seed(0)
    return FrameEncoder(build_autoencoder(base_dim=8).eval().requires_grad_(False))


def toy_policy(config: PolicyConfig | None = None, seed: int = 0) -> TrainedPolicy:
    """An untrained policy."""
    config = config or toy_config()
    torch.manual_seed(seed)
    encoder = toy_encoder() if config.sees else None
    return TrainedPolicy(
        WorldActionModel(config), toy_statistics(config), toy_stamp(config.retrieval_name), encoder
    )


def drawn(episode: Episode) -> Episode:
    """The episode with rendered camera frames."""
    return replace(episode, images={"top": RenderedFrames(episode, 96)})


def moments(policy: TrainedPolicy, n: int) -> tuple[list[Observation], list[Conditioning]]:
    """n different observations, each with its own retrieved chunk."""
    config = policy.config
    retrieval = toy_retrieval(config)
    observations, given = [], []
    for i in range(n):
        seen, shown = drawn(random_episode("seen", 2 * i)), drawn(random_episode("shown", 2 * i + 1))
        ref = FrameRef("shown", 3 + i)
        one = build_conditioning(MemoryView([shown]), [ref], seen, i, retrieval, config.robot)
        if config.sees and config.retrieval:
            frames = [shown.images["top"][3 + i], shown.images["top"][3 + i + config.chunk_size - 1]]
            one = replace(one, latents=policy.encode_frames(frames, [one.frames[0]] * 2, ["top"] * 2))
        observation = observation_of(seen, i)
        observations.append(replace(observation, images={"top": seen.images["top"][i]}))
        given.append(one)
    return observations, given


def nothing_retrieved(observation: Observation, config: PolicyConfig) -> Conditioning:
    """The conditioning of the observation with an empty pool."""
    query = Moment.of([observation])
    return build_conditioning(MemoryView([]), [], query, 0, toy_retrieval(config), config.robot)


def random_batch(model: WorldActionModel, n: int, seed: int = 0) -> Batch:
    """A batch of noise with every slot present."""
    draw = torch.Generator().manual_seed(seed)
    values = {s.name: torch.randn(n, *model.shape(s), generator=draw) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool)
    return Batch(values, present, torch.randn(n, 1, model.config.network.text_embed_dim, generator=draw))


def demonstrations(embodiment: str, seeds: range, n: int = 12) -> list[Episode]:
    """Half with goal -45° and half with +45°; equal seeds are equal scenes."""
    episodes = []
    for seed in seeds:
        wander = random_episode(f"{embodiment}-{seed}", seed, n)
        episodes.append(replace(towards(wander, 1 if seed % 2 else -1), embodiment=embodiment))
    return episodes


def towards(episode: Episode, sign: int) -> Episode:
    """The episode with its goal at 45° to that side."""
    goal = np.array([256, 256, sign * ANGLE], np.float32)
    return replace(episode, goal=goal, attributes={**episode.attributes, "goal_angle": sign * 45.0})


def write_demonstrations(folder: Path, n_target: int = 6, n_pool: int = 6) -> tuple[str, str]:
    """Writes target and pool as packed files, rendered on access; every second target scene has a twin."""
    for name, embodiment, seeds in (
        ("target", "triangle", range(n_target)),
        ("pool", "disc", range(0, 2 * n_pool, 2)),
    ):
        episodes = demonstrations(embodiment, seeds)
        if name == "pool":  # both goals, although all its scenes are even
            episodes = [towards(e, (-1) ** i) for i, e in enumerate(episodes)]
        write_packed(MemoryPool(episodes).view(), folder / f"{name}.safetensors")
    return str(folder / "target.safetensors"), str(folder / "pool.safetensors")
