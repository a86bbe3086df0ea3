"""Any sweep at toy size: every step in minutes on a CPU, to test it before a real run."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recap.evaluation.spec import EvalSpec
from recap.policies.sizes import TINY
from recap.pool.opening import open_pool
from recap.training.config import TrainConfig
from recap.types import Episode
from recap_pi0.config import PI0_DEBUG
from recap_research.sweep.pools import Selection, pack
from recap_research.sweep.sweep import POOLS, Sweep

if TYPE_CHECKING:
    from recap_worlds.pusht.collecting import CollectSpec

N_EACH = 3  # demonstrations per goal
N_FRAMES = 16  # frames of each demonstration
MAX_STEPS = 8  # steps of an episode


def shrink(sweep: Sweep) -> None:
    """Make the runs and evaluations as small as possible, in the same order."""
    sweep.each(
        lambda config: replace(
            tiny(config), target=_pools(config.target, sweep.out), pool=_pools(config.pool, sweep.out)
        ),
        lambda spec: _spec(spec, sweep.out),
        _collection,
    )


def tiny(config: TrainConfig) -> TrainConfig:
    """A training config of the smallest network."""
    network = PI0_DEBUG if config.policy.network.sees_pixels else TINY
    image = replace(config.policy.image, size=32)
    return replace(
        config,
        policy=replace(config.policy, network=network, chunk_size=8, image=image),
        n_demonstrations=0,
        held_out=0.34,
        batch_size=8,
        n_iterations=2,
        warm_up=1,
        validate_every=2,
        save_every=2,
        bf16=False,
        compile=False,
        autoencoder=None,
        autoencoder_iterations=2,
        autoencoder_batch=4,
    )


def _spec(spec: EvalSpec, out: Path) -> EvalSpec:
    tasks = tuple(dict.fromkeys((spec.tasks[0], spec.tasks[-1])))
    place = spec.pool or spec.suite.default_pool
    pool = None if place is None else _pools(place, out)
    return replace(spec, tasks=tasks, seeds=spec.seeds[:1], max_steps=MAX_STEPS, pool=pool)


def _collection(spec: CollectSpec | Selection) -> CollectSpec | Selection:
    if isinstance(spec, Selection):
        return replace(spec, n=min(spec.n, N_EACH) or N_EACH)
    angles = tuple(dict.fromkeys((spec.angles[0], spec.angles[-1])))
    return replace(spec, angles=angles, per_angle=min(spec.per_angle, N_EACH))


def _pools(names: str, out: Path) -> str:
    return ",".join(_toy_pool(name.strip(), out) for name in names.split(","))


def _toy_pool(name: str, out: Path) -> str:
    """The first frames of a few demonstrations; pools collected by the sweep are already small."""
    if name.startswith(str(out)):
        return name
    file = out / POOLS / f"toy-{hashlib.sha256(name.encode()).hexdigest()[:8]}.safetensors"
    if not file.exists():
        view = open_pool(name).view()
        by_goal: dict[float, list[Episode]] = defaultdict(list)
        for episode_id in view.episode_ids:
            episode = view.episode(episode_id)
            key = 0.0 if episode.goal is None else round(float(episode.goal[2]), 3)
            by_goal[key].append(episode)
        pack([_cut(e) for episodes in by_goal.values() for e in episodes[:N_EACH]], file)
    return str(file)


def _cut(episode: Episode) -> Episode:
    n = min(N_FRAMES, len(episode))
    return replace(
        episode,
        timestamps=np.asarray(episode.timestamps[:n]),
        proprio=episode.proprio[:n],
        actions=episode.actions[:n],
        objects={name: poses[:n] for name, poses in episode.objects.items()},
        images={},
    )
