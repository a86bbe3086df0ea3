"""Small synthetic demonstrations of two arms with three cameras, and a tiny policy for them."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from recap.geometry3 import ARM_DIM
from recap.policies.config import PolicyConfig
from recap.policies.policy import RetrievalStamp, TrainedPolicy
from recap.policies.wam import WorldActionModel
from recap.pool.memory import MemoryView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.presets import find_retrieval
from recap.training.presets import preset
from recap.types import Conditioning, Episode, FrameRef, Observation
from toy_policy import toy_encoder, toy_statistics
from two_arms import lift_pot, place_in_box, pose

CAMERAS = ("head", "left_wrist", "right_wrist")
EVERY = 4  # every fourth frame is kept: 31 of each demonstration


def arms_config(**changes: Any) -> PolicyConfig:
    """The policy configuration of the debug preset."""
    return replace(preset("debug-dualarm").policy, **changes)


@cache
def demonstration(embodiment: str, seed: int, task: str = "move_can_pot", px: int = 64) -> Episode:
    """A demonstration of the seed's scene, which both robots share; one robot has a small offset."""
    rng = np.random.default_rng(seed)
    x, y, angle = rng.uniform(-0.3, -0.1), rng.uniform(0.2, 0.4), rng.uniform(-0.5, 0.5)
    whole = (
        place_in_box(pose(x, y, angle=angle), pose(x + 0.2, y + 0.2))
        if task == "move_can_pot"
        else lift_pot(pose(x + 0.2, y, angle=angle))
    )
    keep = slice(None, None, EVERY)
    n = len(whole.timestamps[keep])
    off = np.zeros(2 * ARM_DIM, np.float32)
    off[[0, 11]] = 0.01 if embodiment == "ur5e" else 0.0
    drift = np.cumsum(rng.normal(0, 2, (n, 8, 8, 3)), axis=0) + rng.uniform(60, 200, (8, 8, 3))
    film = np.clip(np.repeat(np.repeat(drift, px // 8, 1), px // 8, 2), 0, 255).astype(np.uint8)
    scene = f"dualarm/{task}/clean/{seed}"
    return replace(
        whole,
        id=f"{scene}/{embodiment}",
        scene_id=scene,
        embodiment=embodiment,
        timestamps=np.arange(n) / 20,
        proprio=whole.proprio[keep] + off,
        actions=whole.actions[keep] + off,
        objects={name: poses[keep] for name, poses in whole.objects.items()},
        images={camera: np.roll(film, i, axis=3) for i, camera in enumerate(CAMERAS)},  # type: ignore[misc]
        attributes={"env": "dualarm", "task_key": task, "seed": seed},
    )


def demonstrations(embodiment: str, seeds: range, task: str = "move_can_pot") -> list[Episode]:
    """One demonstration per seed."""
    return [demonstration(embodiment, seed, task) for seed in seeds]


def arms_retrieval(config: PolicyConfig) -> RetrievalConfig:
    """The retrieval configuration for a policy of that config."""
    return replace(find_retrieval(config.retrieval_name)[1], chunk_size=config.chunk_size)


def arms_policy(seed: int = 0, **changes: Any) -> TrainedPolicy:
    """An untrained policy."""
    config = arms_config(**changes)
    torch.manual_seed(seed)
    describer, _ = find_retrieval(config.retrieval_name)
    retrieval = arms_retrieval(config)
    stamp = RetrievalStamp(
        config.retrieval_name, describer.fingerprint, retrieval.metric_fingerprint, dict(retrieval.scales)
    )
    encoder = toy_encoder() if config.sees else None
    return TrainedPolicy(WorldActionModel(config), toy_statistics(config), stamp, encoder)


def given_of(config: PolicyConfig, query: Episode, t: int, shown: Episode, at: int) -> Conditioning:
    """The conditioning of the query at t on the chunk of `shown` that starts at `at`."""
    refs = [FrameRef(shown.id, at)]
    return build_conditioning(MemoryView([shown]), refs, query, t, arms_retrieval(config), config.robot)


def seen_at(episode: Episode, t: int) -> Observation:
    """The observation of step t."""
    return Observation(
        proprio=episode.proprio[t],
        task=episode.task,
        time_s=float(episode.timestamps[t]),
        images={camera: frames[t] for camera, frames in episode.images.items()},
        objects={name: poses[t].astype(np.float64) for name, poses in episode.objects.items()},
    )


def moments(policy: TrainedPolicy, n: int) -> tuple[list[Observation], list[Conditioning]]:
    """n different observations, each with its own retrieved chunk."""
    config, observations, given = policy.config, [], []
    for i in range(n):
        query, shown = demonstration("viperx", i), demonstration("ur5e", i + 100)
        one = given_of(config, query, i, shown, i + 2)
        if config.sees:
            frames = [shown.images["head"][i + 2], shown.images["head"][i + 1 + config.chunk_size]]
            one = replace(one, latents=policy.encode_frames(frames, [one.frames[0]] * 2, ["head"] * 2))
        observations.append(seen_at(query, i))
        given.append(one)
    return observations, given
