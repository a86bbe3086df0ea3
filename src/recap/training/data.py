"""From demonstrations to arrays: every moment of the target with the moments of the pool that fit it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.policies.policy import RetrievalStamp, Statistics
from recap.policies.vectors import kinds_of
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.view import PoolView
from recap.retrieval.pairs import Pairs, find_pairs, training_preset
from recap.retrieval.presets import preset as retrieval_preset
from recap.retrieval.retriever import Retriever
from recap.run_directory import whole_file
from recap.shapes import LOPSIDED
from recap.standard_pools import open_pool
from recap.training.config import PairsConfig, TrainConfig
from recap.training.misalignment import leave_out, misalign
from recap.training.motion import displaced_samples
from recap.training.samples import Album, SampleBuilder, Samples, join, renumber_pictures, with_share
from recap.types import F32, F64, U8, Episode
from recap.workers import run_in_workers

Progress = Callable[[int, int], None]
Keys = tuple[tuple[str, int, str, int], ...]  # what pictures show: see `Album`
ACTION_SHARE = 0.1  # of the least deviation, for what is predicted: it may be small and matter


@dataclass(frozen=True)
class TrainingData:
    """All that training reads."""

    train: Samples
    held_out: Samples
    pictures: U8  # (m, size, size, 3) canonical images, numbered
    statistics: Statistics
    stamp: RetrievalStamp
    n_episodes: tuple[int, int, int]  # train, held out, pool
    left_out: tuple[str, ...] = ()  # of the first, for being mis-aligned


def load_data(config: TrainConfig, progress: Progress | None = None, workers: int = 1) -> TrainingData:
    """Demonstrations, pairs and canonical images of a training run.

    Several workers need demonstrations that can be sent to another process: standard pools and snapshots.
    """
    target = spread(of_tasks(demonstrations(config.target), config.target_tasks), config.n_demonstrations)
    pool = of_tasks(of_goals(demonstrations(config.pool), config.pool_angles), config.pool_tasks)
    return build_data(target, pool, config, progress, workers)


def build_data(
    target: Sequence[Episode],
    pool: Sequence[Episode],
    config: TrainConfig,
    progress: Progress | None = None,
    workers: int = 1,
) -> TrainingData:
    """The arrays of these demonstrations."""
    if not target:
        raise InputError(f"target '{config.target}' holds no demonstration: there is nothing to learn")
    if (config.policy.retrieval or config.co_training) and not pool:
        raise InputError(f"pool '{config.pool}' holds no demonstration of goals {config.pool_angles}")
    _check_mirror(target, config)
    train, held_out = split(target, config.held_out)
    name = config.policy.retrieval_preset
    describer, retrieval = retrieval_preset(name, config.pairs.n_candidates)
    retrieval = replace(retrieval, chunk_size=config.policy.chunk_size)
    for what, episodes in (("target", target), ("pool", pool)):
        width = episodes[0].actions.shape[1] if episodes else config.policy.action_dim
        if width != config.policy.action_dim:
            raise InputError(
                f"{what} '{getattr(config, what)}' has {width}-D actions, the policy "
                f"{config.policy.action_dim}-D: set policy.action_dim, or give demonstrations of domain "
                f"'{config.policy.domain}'"
            )
    stamp = RetrievalStamp(name, describer.fingerprint, retrieval.metric_fingerprint, retrieval.object_name)
    learned = [*train, *shown_by_others(pool, held_out)] if config.co_training else train
    around = pool if config.policy.retrieval else []
    parts = _parts(learned, held_out, workers)
    built: dict[int, tuple[Samples, Keys, U8]] = {}
    done, total = 0, sum(map(len, [*learned, *held_out]))
    for number, samples, keys, pictures in run_in_workers(partial(_build, around, config), parts, workers):
        built[number] = samples, keys, pictures
        done += len(samples)
        if progress is not None:
            progress(done, total)
    sides: dict[bool, list[Samples]] = {True: [], False: []}
    numbers: dict[Hashable, int] = {}
    album: list[U8] = []
    for part in parts:
        samples, keys, pictures = built[part.number]
        # What a camera saw is one picture, whichever part needs it; of a board each part has its own.
        own = config.policy.image.view == "board"
        names: Sequence[Hashable] = [(part.number, key) for key in keys] if own else keys
        new = np.array([name not in numbers for name in names], np.bool_)
        called = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        sides[part.for_training].append(renumber_pictures(samples, called))
        album.append(pictures[new])
    together = join(sides[True])
    if config.co_training:
        together = with_share(together, sum(map(len, train)), config.own_share)
    left_out: tuple[str, ...] = ()
    if config.pairs.leave_out and config.policy.retrieval:
        together, left_out = leave_out(
            together, learned, config.policy.action_dim, action_units(config.policy)
        )
    drawn = together
    if config.augment.displaces and config.policy.retrieval:
        drawn = displaced_samples(together, config.policy, config.augment)
    return TrainingData(
        together,
        join(sides[False]),
        np.concatenate(album),
        statistics_of(drawn, config.policy),
        stamp,
        (len(train), len(held_out), len(pool)),
        left_out,
    )


@dataclass(frozen=True)
class _Part:
    """Demonstrations of one side of the split, for one worker at a time."""

    number: int
    episodes: tuple[Episode, ...]
    for_training: bool


def _parts(train: Sequence[Episode], held_out: Sequence[Episode], workers: int) -> list[_Part]:
    """Each side as a whole for one worker; smaller pieces for several."""
    parts: list[_Part] = []
    for side, for_training in ((train, True), (held_out, False)):
        size = len(side) if workers == 1 else -(-len(side) // (3 * workers))
        for i in range(0, len(side), size):
            parts.append(_Part(len(parts), tuple(side[i : i + size]), for_training))
    return parts


def _build(
    pool: Sequence[Episode], config: TrainConfig, parts: Iterator[_Part]
) -> Iterator[tuple[int, Samples, Keys, U8]]:
    """The samples of each part with its pictures, and what they show."""
    around = MemoryView(pool)
    for part in parts:
        view, album = MemoryView(part.episodes), Album(config.policy)
        pairs = pairs_for(view, around, config, part.for_training) if config.policy.retrieval else None
        if pairs is not None and part.for_training and config.pairs.misaligned > 0:
            pairs = misalign(pairs, around, config.pairs.misaligned)
        builder = SampleBuilder(view, around, pairs, config.policy, album)
        for episode_id in view.episode_ids:
            builder.add(episode_id)
        yield part.number, builder.samples(), album.keys, album.develop()


def split(target: Sequence[Episode], held_out: float) -> tuple[list[Episode], list[Episode]]:
    """Demonstrations to learn from and to judge by, spread evenly; a scene is on one side only."""
    scenes = list(dict.fromkeys(episode.scene_id for episode in target))
    n = round(held_out * len(scenes))
    if n == 0 or len(scenes) < 2:
        raise InputError(f"held_out {held_out} of {len(scenes)} scenes leaves none to judge by: give more")
    chosen = {scenes[int((i + 0.5) * len(scenes) / n)] for i in range(n)}
    train = [episode for episode in target if episode.scene_id not in chosen]
    return train, [episode for episode in target if episode.scene_id in chosen]


def shown_by_others(pool: Sequence[Episode], held_out: Sequence[Episode]) -> list[Episode]:
    """The pool's demonstrations to learn from, none of a scene that judges; each says who shows it.

    It says so in its instruction. The robot's own stays as it is, as at test time.
    """
    judging = {episode.scene_id for episode in held_out}
    return [
        replace(e, task=f"{e.task}, as the {e.embodiment} does") for e in pool if e.scene_id not in judging
    ]


def pairs_for(target: PoolView, pool: PoolView, config: TrainConfig, for_training: bool) -> Pairs:
    """The pairs, found once and kept under a fingerprint of all that they depend on.

    Those that judge are found as at test time: without the action term, and never the same scene.
    """
    name = config.policy.retrieval_preset
    chosen = replace(config.pairs, misaligned=0.0, leave_out=False)  # what is done with them comes later
    if not for_training:
        chosen = PairsConfig(1, 0.0, False, config.pairs.n_candidates)
    if for_training and chosen.action_weight > 0:
        describer, retrieval = training_preset(
            name,
            chosen.n_candidates,
            chosen.action_weight,
            config.policy.chunk_size,
            config.policy.action_dim,
        )
    else:
        describer, retrieval = retrieval_preset(name, chosen.n_candidates)
    digest = hashlib.sha256()
    digest.update(json.dumps([asdict(chosen), describer.fingerprint, retrieval.fingerprint]).encode())
    for view in (target, pool):
        for episode_id in view.episode_ids:
            episode = view.episode(episode_id)
            digest.update(episode_id.encode() + episode.actions.tobytes() + episode.proprio.tobytes())
            digest.update(b"".join(value.tobytes() for value in episode.objects.values()))
    file = cache_folder() / "pairs" / f"{digest.hexdigest()[:32]}.safetensors"
    found = _read_pairs(file, target, pool)
    if found is None:
        source = MemoryPool([pool.episode(i) for i in pool.episode_ids])
        found = find_pairs(target, Retriever(source, describer, retrieval), chosen.k, chosen.allow_twin)
        _write_pairs(file, found)
    return found


def cache_folder() -> Path:
    """Where what can be computed again is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "recap"


def _read_pairs(file: Path, target: PoolView, pool: PoolView) -> Pairs | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not file.exists():
        return None
    try:
        read = load_file(file)
        return Pairs(target.episode_ids, pool.episode_ids, read["target"], read["match"], read["weight"])
    except (SafetensorError, OSError, KeyError):
        return None  # a damaged cache is no cache


def _write_pairs(file: Path, pairs: Pairs) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        with whole_file(file) as partial:
            save_file({"target": pairs.target, "match": pairs.match, "weight": pairs.weight}, partial)
    except (OSError, SafetensorError):  # the second where the disk is full
        return  # it is only a cache


def _check_mirror(target: Sequence[Episode], config: TrainConfig) -> None:
    """With a chunk to correct, a mirrored L is one more block; without, what it needs contradicts the L."""
    if not config.augment.mirror or config.policy.retrieval:
        return
    for block in sorted({str(e.attributes.get("block")) for e in target} & LOPSIDED):
        raise InputError(
            f"mirrored, demonstrations of block '{block}' are of another block: set augment.mirror=false"
        )


def demonstrations(names: str) -> list[Episode]:
    """All of the pools of these names, which commas separate."""
    views = [open_pool(name.strip()).view() for name in names.split(",")]
    return [view.episode(episode_id) for view in views for episode_id in view.episode_ids]


def of_goals(episodes: list[Episode], angles: Sequence[float]) -> list[Episode]:
    """Those of these goals; all without any."""
    return [e for e in episodes if not angles or any(abs(_angle(e) - a) < 0.5 for a in angles)]


def of_tasks(episodes: list[Episode], keys: Sequence[str]) -> list[Episode]:
    """Those of these tasks, by `task_key`; all without any."""
    return [e for e in episodes if not keys or e.attributes.get("task_key") in keys]


def spread(episodes: list[Episode], n: int) -> list[Episode]:
    """So many, spread evenly; all for 0."""
    if not n or n >= len(episodes):
        return episodes
    return [episodes[int((i + 0.5) * len(episodes) / n)] for i in range(n)]


def _angle(episode: Episode) -> float:
    return float("nan") if episode.goal is None else float(np.degrees(episode.goal[2]))


def action_units(config: PolicyConfig) -> F64 | None:
    """By what the numbers of an action are divided to be compared; None where they are of one kind."""
    units = config.world.units
    kinds = config.world.encoding.body_kinds(config.action_dim)
    return np.array([units.get(kind, 1.0) for kind in kinds]) if units else None


def statistics_of(samples: Samples, config: PolicyConfig) -> Statistics:
    """Of every number; one that never varies keeps its scale, or is divided by the least its kind may be."""
    tables: dict[str, F32] = {**samples.fixed}
    for name, values in samples.matched.items():
        tables[name] = values.reshape(-1, values.shape[-1])
    origin = config.world.encoding.origin(samples.fixed["proprio"][:, : config.action_dim])
    still = np.tile(origin, config.chunk_size)[:, None]
    action = samples.actions[:, None] - (samples.base if config.residual else still)
    tables["action"] = action.reshape(-1, action.shape[-1])
    mean: dict[str, F32] = {}
    std: dict[str, F32] = {}
    kinds, least = kinds_of(config), config.world.encoding.least
    for name, values in tables.items():
        mean[name] = values.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = values.std(axis=0, dtype=np.float64)
        assert len(spread) == len(kinds[name]), name
        if least:
            share = ACTION_SHARE if name == "action" else 1.0
            std[name] = np.maximum(spread, [share * least[kind] for kind in kinds[name]]).astype(np.float32)
        else:
            std[name] = np.where(spread > 1e-3, spread, 1.0).astype(np.float32)
    return Statistics(mean, std)
