"""From demonstrations to arrays: every moment of the target with the moments of the pool that fit it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.policies.canonical import canonical_image
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout, frame_offsets
from recap.policies.policy import RetrievalStamp, Statistics
from recap.policies.vectors import kinds_of, moment_of, targets_of
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.view import PoolView
from recap.retrieval.conditioning import build_conditioning, into, pose_into
from recap.retrieval.pairs import Pairs, find_pairs, training_preset
from recap.retrieval.presets import preset as retrieval_preset
from recap.retrieval.retriever import Retriever
from recap.run_directory import whole_file
from recap.standard_pools import open_pool
from recap.training.config import PairsConfig, TrainConfig
from recap.types import F32, F64, U8, Conditioning, Episode, FrameRef

I64 = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Samples:
    """Moments of the target as raw numbers; k matches each, n moments."""

    fixed: dict[str, F32]  # slot -> (n, width): what does not depend on the match
    matched: dict[str, F32]  # slot -> (n, k, width)
    actions: F32  # (n, H * a) of the demonstration, canonical
    base: F32  # (n, k, H * a) what the residual is added to
    valid: F32  # (n, H * a) 1 where the demonstration had that action
    weight: F32  # (n, k) to draw a match by; a row of zeros has none
    images: dict[str, I64]  # image slot -> (n,) or (n, k) numbers of pictures
    tasks: tuple[str, ...]  # the instructions
    task: I64  # (n,) which one

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class TrainingData:
    """All that training reads."""

    train: Samples
    held_out: Samples
    pictures: U8  # (m, size, size, 3) canonical images, numbered
    statistics: Statistics
    stamp: RetrievalStamp
    n_episodes: tuple[int, int, int]  # train, held out, pool


def load_data(config: TrainConfig, progress: Progress | None = None) -> TrainingData:
    """Demonstrations, pairs and canonical images of a training run."""
    target = _views(open_pool(config.target).view(), (), config.n_demonstrations)
    pool = _views(open_pool(config.pool).view(), config.pool_angles, 0)
    return build_data(target, pool, config, progress)


def build_data(
    target: Sequence[Episode], pool: Sequence[Episode], config: TrainConfig, progress: Progress | None = None
) -> TrainingData:
    """The arrays of these demonstrations."""
    if not target:
        raise InputError(f"target '{config.target}' holds no demonstration: there is nothing to learn")
    if config.policy.retrieval and not pool:
        raise InputError(f"pool '{config.pool}' holds no demonstration of goals {config.pool_angles}")
    train, held_out = split(target, config.held_out)
    name = f"pusht-{config.policy.mode}"
    describer, retrieval = retrieval_preset(name, config.pairs.n_candidates)
    retrieval = replace(retrieval, chunk_size=config.policy.chunk_size)
    if config.policy.action_dim != target[0].actions.shape[1]:
        raise InputError(
            f"target '{config.target}' has {target[0].actions.shape[1]}-D actions, the policy "
            f"{config.policy.action_dim}-D: set policy.action_dim"
        )
    stamp = RetrievalStamp(name, describer.fingerprint, retrieval.metric_fingerprint, retrieval.object_name)
    views = MemoryView(train), MemoryView(held_out), MemoryView(pool)
    album = _Album(config.policy)
    parts: list[Samples] = []
    total = sum(map(len, target))
    done = 0
    for view, for_training in ((views[0], True), (views[1], False)):
        pairs = pairs_for(view, views[2], config, for_training) if config.policy.retrieval else None
        builder = _Builder(view, views[2], pairs, config.policy, album)
        for episode_id in view.episode_ids:
            builder.add(episode_id)
            done += len(view.episode(episode_id))
            if progress is not None:
                progress(done, total)
        parts.append(builder.samples())
    pictures = album.develop()
    statistics = _statistics(parts[0], config.policy)
    return TrainingData(
        parts[0], parts[1], pictures, statistics, stamp, (len(train), len(held_out), len(pool))
    )


def split(target: Sequence[Episode], held_out: float) -> tuple[list[Episode], list[Episode]]:
    """Demonstrations to learn from and to judge by, spread evenly; a scene is on one side only."""
    scenes = list(dict.fromkeys(episode.scene_id for episode in target))
    n = round(held_out * len(scenes))
    if n == 0 or len(scenes) < 2:
        raise InputError(f"held_out {held_out} of {len(scenes)} scenes leaves none to judge by: give more")
    chosen = {scenes[int((i + 0.5) * len(scenes) / n)] for i in range(n)}
    train = [episode for episode in target if episode.scene_id not in chosen]
    return train, [episode for episode in target if episode.scene_id in chosen]


def pairs_for(target: PoolView, pool: PoolView, config: TrainConfig, for_training: bool) -> Pairs:
    """The pairs, found once and kept under a fingerprint of all that they depend on.

    Those that judge are found as at test time: without the action term, and never the same scene.
    """
    name = f"pusht-{config.policy.mode}"
    chosen = config.pairs if for_training else PairsConfig(1, 0.0, False, config.pairs.n_candidates)
    if for_training and chosen.action_weight > 0:
        describer, retrieval = training_preset(
            name, chosen.n_candidates, chosen.action_weight, config.policy.chunk_size
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
    from safetensors.numpy import save_file

    try:
        with whole_file(file) as partial:
            save_file({"target": pairs.target, "match": pairs.match, "weight": pairs.weight}, partial)
    except OSError:
        return  # it is only a cache


def _views(view: PoolView, angles: Sequence[float], n: int) -> list[Episode]:
    """The view's demonstrations of these goals (all without any), spread evenly if fewer are wanted."""
    episodes = [view.episode(episode_id) for episode_id in view.episode_ids]
    if angles:
        episodes = [e for e in episodes if any(abs(_angle(e) - a) < 0.5 for a in angles)]
    if n and n < len(episodes):
        episodes = [episodes[int((i + 0.5) * len(episodes) / n)] for i in range(n)]
    return episodes


def _angle(episode: Episode) -> float:
    return float("nan") if episode.goal is None else float(np.degrees(episode.goal[2]))


class _Album:
    """Canonical images by what they show, each drawn once."""

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self._numbers: dict[tuple[str, int, str, int], int] = {}
        self._taken: list[U8] = []

    def number(self, episode: Episode, t: int, camera: str, frame: F64, frame_t: int) -> int:
        """Of the picture of frame t in the canonical frame of frame_t; made when it is new."""
        aligned = self.config.mode == "aligned"
        key = (episode.id, t, camera, frame_t if aligned else -1)
        if key not in self._numbers:
            image = episode.images[camera][t]
            self._numbers[key] = len(self._taken)
            self._taken.append(canonical_image(image, frame, self.config.image, aligned))
        return self._numbers[key]

    def develop(self) -> U8:
        """All of them: (m, size, size, 3)."""
        size = self.config.image.size
        return np.stack(self._taken) if self._taken else np.zeros((0, size, size, 3), np.uint8)


class _Builder:
    """Collects the samples of one side of the split."""

    def __init__(
        self, target: PoolView, pool: PoolView, pairs: Pairs | None, config: PolicyConfig, album: _Album
    ) -> None:
        self.target, self.pool, self.pairs, self.config, self.album = target, pool, pairs, config, album
        self.retrieval = replace(retrieval_preset(f"pusht-{config.mode}")[1], chunk_size=config.chunk_size)
        self.k = 1 if pairs is None else pairs.match.shape[1]
        self.retrieved = [slot for slot in build_layout(config).vectors if slot.retrieved]
        self.rows: dict[str, list[F32]] = {}
        self.pictures: dict[str, list[int]] = {}
        self.tasks: dict[str, int] = {}
        self.task: list[int] = []
        self._row = 0

    def add(self, episode_id: str) -> None:
        """Every moment of one demonstration."""
        episode = self.target.episode(episode_id)
        for t in range(len(episode)):
            refs = [] if self.pairs is None else self.pairs.refs(self._row)
            self._add_moment(episode, t, refs)
            self._row += 1

    def _add_moment(self, episode: Episode, t: int, refs: list[FrameRef]) -> None:
        config = self.config
        horizon = config.chunk_size
        ahead = t + np.arange(horizon)
        valid = (ahead < len(episode)).astype(np.float32)
        ahead = np.minimum(ahead, len(episode) - 1)
        end = min(t + horizon, len(episode) - 1)
        given: list[Conditioning] = [
            build_conditioning(self.pool, [ref], episode, t, self.retrieval, config.action_dim)
            for ref in refs
        ] or [build_conditioning(self.pool, [], episode, t, self.retrieval, config.action_dim)]
        frame = given[0].frame
        actions = self._into(frame, episode.actions[ahead].astype(np.float64))
        proprio = self._into(frame, episode.proprio[end].astype(np.float64))
        thing = np.zeros(0)
        if config.measures:
            pose = np.asarray(episode.objects[self.retrieval.object_name][end], np.float64)
            thing = pose if self.retrieval.align == "off" else pose_into(frame, pose)
        moments = [moment_of(one, config) for one in given]
        row: dict[str, F32] = {
            "proprio": moments[0].vectors["proprio"],
            "future_proprio": targets_of(actions, proprio, thing, moments[0].base, config)["future_proprio"],
            "actions": actions.ravel().astype(np.float32),
            "valid": np.repeat(valid, config.action_dim),
        }
        weight = np.zeros(self.k, np.float32)
        if self.pairs is not None:
            weight = self.pairs.weight[self._row]
        row["weight"] = weight
        for slot in self.retrieved:
            # A moment without a match is never shown one: what stands in its place does not matter.
            found = [m.vectors[slot.name] for m in moments if slot.name in m.vectors]
            row[slot.name] = self._padded(found or [np.zeros(slot.width, np.float32)])
        row["base"] = self._padded([m.base.ravel() for m in moments])
        for key, value in row.items():
            self.rows.setdefault(key, []).append(value)
        self.task.append(self.tasks.setdefault(episode.task, len(self.tasks)))
        if config.sees:
            self._add_pictures(episode, t, end, frame, given)

    def _add_pictures(
        self, episode: Episode, t: int, end: int, frame: F64, given: list[Conditioning]
    ) -> None:
        for camera in self.config.image.cameras:
            self._picture(f"frame/{camera}", self.album.number(episode, t, camera, frame, t))
            if self.config.future_image:
                self._picture(f"future_frame/{camera}", self.album.number(episode, end, camera, frame, t))
            if not self.config.retrieval:
                continue
            for i, offset in enumerate(frame_offsets(self.config)):
                numbers = []
                for one in given:
                    if one.is_empty:
                        numbers.append(0)  # any picture, never shown
                        continue
                    shown = self.pool.episode(one.refs[0].episode_id)
                    begin = one.refs[0].t
                    at = min(begin + offset, len(shown) - 1)
                    numbers.append(self.album.number(shown, at, camera, one.frames[0], begin))
                numbers += numbers[:1] * (self.k - len(numbers))
                for number in numbers:
                    self._picture(f"retrieved_frame_{i}/{camera}", number)

    def _picture(self, slot: str, number: int) -> None:
        self.pictures.setdefault(slot, []).append(number)

    def _into(self, frame: F64, values: F64) -> F64:
        return values if self.retrieval.align == "off" else into(frame, values)

    def _padded(self, values: list[F32]) -> F32:
        """(k, width), the first repeated where there are fewer matches."""
        return np.stack([*values, *values[:1] * (self.k - len(values))])

    def samples(self) -> Samples:
        """What was collected."""
        stacked = {key: np.stack(values) for key, values in self.rows.items()}
        n = len(self.task)
        images = {}
        for slot, numbers in self.pictures.items():
            flat = np.array(numbers, np.int64)
            images[slot] = flat.reshape(n, self.k) if slot.startswith("retrieved") else flat
        fixed = {"proprio": stacked["proprio"], "future_proprio": stacked["future_proprio"]}
        matched = {slot.name: stacked[slot.name] for slot in self.retrieved}
        return Samples(
            fixed,
            matched,
            stacked["actions"],
            stacked["base"],
            stacked["valid"],
            stacked["weight"],
            images,
            tuple(self.tasks),
            np.array(self.task, np.int64),
        )


def _statistics(samples: Samples, config: PolicyConfig) -> Statistics:
    """Of every number; one that never varies keeps its scale. A mirror leaves means of x at its axis."""
    tables: dict[str, F32] = {**samples.fixed}
    for name, values in samples.matched.items():
        tables[name] = values.reshape(-1, values.shape[-1])
    action = samples.actions[:, None] - samples.base if config.residual else samples.actions[:, None]
    tables["action"] = action.reshape(-1, action.shape[-1])
    mean: dict[str, F32] = {}
    std: dict[str, F32] = {}
    for name, values in tables.items():
        mean[name] = values.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = values.std(axis=0, dtype=np.float64)
        std[name] = np.where(spread > 1e-3, spread, 1.0).astype(np.float32)
        assert len(mean[name]) == len(kinds_of(config)[name]), name
    return Statistics(mean, std)
