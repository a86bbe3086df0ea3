"""What the goldens hold, computed anew: one function a group, each returning name -> array or text.

Everything that is imported from the package is imported here, so that after a move only this file changes.
A name that ends in `#sha256` holds the hash of what is too large to keep, or has no numbers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import h5py  # type: ignore[import-untyped]
import numpy as np
import pyarrow.parquet as pq
import torch
from aiohttp.test_utils import TestClient, TestServer
from numpy.typing import NDArray
from safetensors.torch import load_file

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, assemble_agent, load_policy
from recap.evaluation.agents import Agent, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.features.describer import TermDescriber
from recap.policies.checkpoint import from_pretrained
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.packed import write_packed
from recap.pool.robotwin_write import LAYOUTS, write_robotwin
from recap.pool.view import PoolSource
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import SubtrajectoryPool
from recap.serving.app import build_app
from recap.serving.service import ServeSpec, Service
from recap.training.batches import BatchSource
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, build_data, pairs_for, split, training_retrieval
from recap.training.presets import preset as training_preset
from recap.training.records import read_metrics
from recap.training.samples import Samples
from recap.training.trainer import train
from recap.types import Conditioning, Episode, FrameRef, Match, Observation, Retrieval
from recap.types import Moment as Observed
from recap_client.wire import decode_map, encode
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.collecting import CollectSpec
from recap_worlds.pusht.collecting import demonstrations as pusht_demonstrations
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.suite import context_of

Golden: TypeAlias = dict[str, NDArray[Any] | str]
Moment: TypeAlias = tuple[Episode, int]

SHA = "#sha256"
N_WHOLE = 4096  # numbers up to which an array is kept whole
N_SOME = 64  # numbers that are kept of a larger one, spread evenly
N_MATCHES = 3
N_STEPS = 8  # between two looks of an agent
MAX_STEPS = 150  # of an episode
PX = 96
ANGLES, PER_ANGLE = (-45.0, 0.0, 45.0), 4
ARM_TASKS = ("click_bell", "lift_pot", "move_can_pot")
PER_TASK = 4
FIRST_SEED = 100_000
POLICIES = {"pusht-nano": "pusht", "pusht-small": "pusht", "dualarm-small": "dualarm"}
PRESETS = {
    "pusht-single": "pusht",
    "pusht-oracle": "pusht",
    "pusht-published": "pusht",
    "pusht-aligned": "pusht",
    "pusht-contact": "pusht",
    "dualarm-single": "dualarm",
    "dualarm-aligned": "dualarm",
    "robotwin-blind": "dualarm",
    "robotwin-single": "dualarm",
}
HINDSIGHT = ("pusht-contact", "pusht-oracle")
ROBOTS = {"pusht": PUSHT, "dualarm": TWO_ARMS}
# What retrievals are called since the move; the goldens keep the names of before.
RENAMED = {
    "pusht-single": "pusht-world",
    "pusht-oracle": "pusht-world-oracle",
    "pusht-aligned": "pusht-object",
    "dualarm-single": "dualarm-world",
    "dualarm-aligned": "dualarm-parts",
    "robotwin-single": "robotwin-world",
}


@contextmanager
def settled(work: Path) -> Iterator[None]:
    """One thread, and a cache that is empty: what was kept by another version must not be read."""
    threads, before = torch.get_num_threads(), os.environ.get("XDG_CACHE_HOME")
    torch.set_num_threads(1)
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def compute(group: str, work: Path) -> Golden:
    """A group by name; `work` is an empty folder."""
    with settled(work):
        return (BITS | NEAR)[group](work)


# How values are kept.


def sha256(data: bytes) -> str:
    """Hash of the bytes."""
    return hashlib.sha256(data).hexdigest()


def array_sha256(values: NDArray[Any]) -> str:
    """Hash of an array's type, shape and numbers."""
    whole = np.ascontiguousarray(values)
    return sha256(f"{whole.dtype.str} {whole.shape} ".encode() + whole.tobytes())


def some_of(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers of a large array, spread evenly."""
    rows = np.linspace(0, values.size - 1, N_SOME).astype(int)
    return np.take(values, rows)


def put(out: Golden, name: str, values: Any) -> None:
    """Keep an array whole, or where it is large its hash and some of its numbers."""
    array = np.asarray(values)
    if array.size <= N_WHOLE:
        out[name] = array
    else:
        out[f"{name}{SHA}"] = array_sha256(array)
        out[f"{name}#some"] = some_of(array)


def put_near(out: Golden, name: str, values: Any) -> None:
    """Keep an array whole, or where it is large its norm and some of its numbers; never a hash."""
    array = np.asarray(values)
    if array.size <= N_WHOLE:
        out[name] = array
    else:
        out[f"{name}#norm"] = np.array(np.linalg.norm(array.astype(np.float64)))
        out[f"{name}#some"] = some_of(array)


def lines(values: Sequence[object]) -> str:
    """One line a value."""
    return "\n".join(map(str, values))


def named(prefix: str, values: Golden) -> Golden:
    """The same under a prefix."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


# What the goldens are computed from: demonstrations of the scripted experts.


@cache
def pusht_episodes() -> tuple[tuple[Episode, ...], tuple[Episode, ...], tuple[Episode, ...]]:
    """Of the disc, of the triangle in the same scenes, and three of a block that looks alike when turned."""
    spec = CollectSpec("disc", ANGLES, PER_ANGLE, image_size=PX)
    other = replace(spec, angles=(30.0,), per_angle=2, block="zed")
    sides = [
        spec,
        replace(spec, pusher="triangle"),
        other,
        replace(other, pusher="triangle", per_angle=1, first_seed=FIRST_SEED + 50),
    ]
    disc, triangle, zed, turned = (
        tuple(episode for _, episode in pusht_demonstrations(side, iter(side.demos()))) for side in sides
    )
    return disc, triangle, (*zed, *turned)


def held_out(episodes: Sequence[Episode], n: int) -> tuple[Episode, ...]:
    """The last of every n demonstrations: one of each goal or task."""
    return tuple(episodes[n - 1 :: n])


@cache
def pusht_pool() -> MemoryPool:
    """The disc's demonstrations, the triangle's without those held out, and two of the other block."""
    disc, triangle, zed = pusht_episodes()
    judging = {episode.id for episode in held_out(triangle, PER_ANGLE)}
    return MemoryPool([*disc, *(e for e in triangle if e.id not in judging), *zed[:2]])


def filmed(episode: Episode, seed: int) -> Episode:
    """With made pictures: those of the simulator depend on how a machine draws."""
    rng = np.random.default_rng(seed)
    images: dict[str, Sequence[NDArray[np.uint8]]] = {}
    for camera in ("head", "left_wrist", "right_wrist"):
        path = rng.uniform(60, 200, (8, 8, 3)) + np.cumsum(rng.normal(0, 2, (len(episode), 8, 8, 3)), axis=0)
        images[camera] = np.clip(path, 0, 255).astype(np.uint8).repeat(4, 1).repeat(4, 2)  # type: ignore[assignment]
    return replace(episode, images=images)


@cache
def arms_episodes() -> tuple[tuple[Episode, ...], tuple[Episode, ...]]:
    """Of two robots in the same scenes, several of each task."""
    ur5e, viperx = (
        tuple(
            filmed(demonstrate(task, robot, FIRST_SEED + i, 0, "clean"), 10 * number + i)
            for number, task in enumerate(ARM_TASKS)
            for i in range(PER_TASK)
        )
        for robot in ("ur5e", "viperx")
    )
    return ur5e, viperx


@cache
def arms_pool() -> MemoryPool:
    """Everything of one robot, and what is not held out of the other: enough to tell a confidence."""
    ur5e, viperx = arms_episodes()
    judging = {episode.id for episode in held_out(viperx, PER_TASK)}
    return MemoryPool([*ur5e, *(e for e in viperx if e.id not in judging)])


def pool_of(env: str) -> MemoryPool:
    """The pool of an environment."""
    return pusht_pool() if env == "pusht" else arms_pool()


def moments_of(env: str) -> list[Moment]:
    """Moments of demonstrations that are not in the pool."""
    if env == "dualarm":
        _, viperx = arms_episodes()
        chosen = [(e, share) for e in held_out(viperx, PER_TASK) for share in (0.0, 0.3, 0.55, 0.8)]
    else:
        _, triangle, zed = pusht_episodes()
        chosen = [(e, share) for e in held_out(triangle, PER_ANGLE) for share in (0.0, 0.2, 0.5, 0.85)]
        chosen += [(zed[2], share) for share in (0.1, 0.6)]
    return [(episode, int(share * len(episode))) for episode, share in chosen]


def cut(episode: Episode, first: int, n: int) -> Episode:
    """Some frames of it."""
    part = slice(first, first + n)
    return replace(
        episode,
        timestamps=episode.timestamps[part] - episode.timestamps[first],
        proprio=episode.proprio[part],
        actions=episode.actions[part],
        objects={name: poses[part] for name, poses in episode.objects.items()},
        images={camera: list(frames[part]) for camera, frames in episode.images.items()},
    )


# Retrieval.


def conditioning_values(given: Sequence[Conditioning]) -> Golden:
    """What policies are given at several moments."""
    out: Golden = {}
    fields = ("frame", "now", "object_now", "goal_now", "actions", "proprio", "objects", "goals", "frames")
    for field in (*fields, "valid"):
        parts = [np.asarray(getattr(one, field)) for one in given]
        put(out, field, np.concatenate([part.ravel() for part in parts]))
        out[f"{field}/shapes"] = lines([f"{part.dtype} {part.shape}" for part in parts])
    out["refs"] = lines([said(ref) for one in given for ref in one.refs])
    out["last_refs"] = lines([said(ref) for one in given for ref in one.last_refs])
    return out


def said(ref: FrameRef) -> str:
    """A moment as text."""
    return f"{ref.episode_id} {ref.t}"


def match_values(found: Sequence[Retrieval]) -> Golden:
    """The matches of several moments."""
    matches: list[Match] = [match for one in found for match in one.matches]
    return {
        "n_matches": np.array([len(one.matches) for one in found]),
        "refs": lines([said(match.ref) for match in matches]),
        "distances": np.array([match.distance for match in matches]),
        "costs": np.array([[match.costs[name] for name in sorted(match.costs)] for match in matches]),
        "terms": lines(sorted(matches[0].costs)),
        "symmetry_index": np.array([match.symmetry_index for match in matches]),
        "confidence": np.array([one.confidence for one in found]),
        "candidates": lines([" | ".join(one.candidates) for one in found]),
    }


def retrieved_values(retriever: Retriever, env: str) -> Golden:
    """For each moment: the matches, what they condition on, and the matches of the look after it."""
    first: list[Retrieval] = []
    later: list[Retrieval] = []
    given: list[Conditioning] = []
    for episode, t in moments_of(env):
        query = query_at(episode, t, frozenset((episode.id, episode.scene_id)))
        found = retriever.retrieve(query, n_matches=N_MATCHES)
        ref = found.matches[0].ref
        again = replace(query, avoid=((ref, 6.0),), follow=FrameRef(ref.episode_id, ref.t + N_STEPS))
        first.append(found)
        later.append(retriever.retrieve(again, found, n_matches=N_MATCHES))
        index = found.matches[0].symmetry_index
        seen = Observed.of((query.first, query.window[-1]), query.context, index)
        refs = [match.ref for match in found.matches]
        view = retriever.view_of(found)
        given.append(build_conditioning(view, refs, seen, 1, retriever.config, ROBOTS[env]))
    return (
        named("matches", match_values(first))
        | named("matches_after", match_values(later))
        | named("conditioning", conditioning_values(given))
        | fingerprints(retriever.describer, retriever.config)
    )


def fingerprints(describer: Any, config: RetrievalConfig) -> Golden:
    """By which checkpoints know how they were trained to choose."""
    return {"describer": describer.fingerprint, "metric": config.metric_fingerprint}


@cache
def policy_agent(name: str) -> RetrievalAgent:
    """A shipped policy over its environment's pool."""
    config = AgentConfig(name)
    context = context_of("tee", "triangle")
    return assemble_agent(config, pool_of(POLICIES[name]), load_policy(config), context=context)


def retrieved_by_policy(name: str, work: Path) -> Golden:
    """Retrieval as a shipped policy has it."""
    return retrieved_values(policy_agent(name).retriever, POLICIES[name])


def retrieval_named(name: str) -> tuple[TermDescriber, RetrievalConfig]:
    """Describer and config, by the name of before the move."""
    return find_retrieval(RENAMED.get(name, name))


def retrieved_by_preset(name: str, work: Path) -> Golden:
    """Retrieval of a preset, without a policy."""
    return retrieved_values(Retriever(pool_of(PRESETS[name]), *retrieval_named(name)), PRESETS[name])


def retrieved_in_hindsight(name: str, work: Path) -> Golden:
    """Retrieval of a preset over demonstrations and their parts."""
    describer, config = retrieval_named(name)
    assert config.subtrajectories is not None
    source = SubtrajectoryPool(pool_of(PRESETS[name]), config.subtrajectories)
    out = retrieved_values(Retriever(source, describer, config), PRESETS[name])
    return {"episode_ids": lines(source.view().episode_ids), **out}


# Episodes.


class Recorded:
    """An agent whose observations and actions are kept, by slot."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.image_size = agent, agent.image_size
        self.proprio: dict[int, list[NDArray[Any]]] = {}
        self.actions: dict[int, list[NDArray[Any]]] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """A new episode begins in that slot."""
        self.proprio[slot], self.actions[slot] = [], []
        self.agent.reset(slot, trial)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """What the agent does."""
        actions = self.agent.act(slots, observations)
        for slot, observation, action in zip(slots, observations, actions, strict=True):
            self.proprio[slot].append(np.asarray(observation.proprio))
            self.actions[slot].append(np.asarray(action))
        return actions


def rollout_values(agent: Agent, spec: EvalSpec) -> Golden:
    """The spec's trials, one after the other."""
    out: Golden = {}
    for trial in spec.trials():
        recorded = Recorded(agent)
        (result,) = run_trials(recorded, spec, [trial], 1)
        assert result.outcome != "error", result.error
        one: Golden = {
            "outcome": result.outcome,
            "steps": np.array(result.steps),
            "max_coverage": np.array(max(result.metrics.values())),
            "first_step": json.dumps(dict(result.first_step), sort_keys=True),
        }
        put(one, "proprio", recorded.proprio[0])
        put(one, "actions", recorded.actions[0])
        out |= named(f"{trial.task}/{trial.seed}", one)
    return out


def replay_episodes(work: Path) -> Golden:
    """Replay of what is retrieved, actions of every step."""
    out: Golden = {}
    for mode in ("single", "aligned", "contact"):
        config = AgentConfig(retrieval=RENAMED.get(f"pusht-{mode}", f"pusht-{mode}"))
        options = {"pusher": "triangle"}
        spec = EvalSpec(config, "pusht", options, tasks=("0",), seeds=(500, 501), max_steps=MAX_STEPS)
        context = context_of("tee", "triangle")
        agent = assemble_agent(config, pusht_pool(), robot=PUSHT, context=context)
        out |= named(f"pusht-{mode}", rollout_values(agent, spec))
    config = AgentConfig(retrieval="dualarm-parts")
    spec = EvalSpec(config, "dualarm", tasks=ARM_TASKS[:2], seeds=(500,))
    agent = assemble_agent(config, arms_pool(), robot=TWO_ARMS)
    return out | named("dualarm-aligned", rollout_values(agent, spec))


def expert_episodes(work: Path) -> Golden:
    """The scripted experts: in trials, and the demonstrations that the other groups begin from."""
    out: Golden = {}
    for pusher in ("disc", "triangle"):
        options = {"pusher": pusher}
        expert = AgentConfig("expert")
        spec = EvalSpec(expert, "pusht", options, tasks=("20",), seeds=(500, 501), max_steps=MAX_STEPS)
        out |= named(f"pusht-{pusher}", rollout_values(make_agent(spec), spec))
    spec = EvalSpec(AgentConfig("expert"), "dualarm", tasks=("lift_pot",), seeds=(500,))
    out |= named("dualarm", rollout_values(make_agent(spec), spec))
    for episodes in (*pusht_episodes(), *arms_episodes()):
        for episode in episodes:
            out |= named(f"demonstrations/{episode.id}", episode_values(episode))
    return out


def episode_values(episode: Episode) -> Golden:
    """A demonstration as hashes, with some of its numbers."""
    meta = {
        "scene_id": episode.scene_id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "fps": episode.fps,
        "action_space": episode.action_space,
        "success": episode.success,
        "source": episode.source,
        "attributes": dict(episode.attributes),
        "objects": list(episode.objects),
        "n": len(episode),
    }
    arrays: list[NDArray[Any]] = [
        episode.timestamps,
        episode.proprio,
        episode.actions,
        *episode.objects.values(),
    ]
    arrays += [] if episode.goal is None else [episode.goal]
    pictures = [np.stack(list(frames)) for frames in episode.images.values()]
    return {
        "meta": json.dumps(meta, sort_keys=True),
        f"arrays{SHA}": sha256("".join(array_sha256(values) for values in arrays).encode()),
        f"pictures{SHA}": sha256("".join(array_sha256(film) for film in pictures).encode()),
        "some_actions": some_of(episode.actions)[::4],
    }


# Training.


def pusht_training(mode: str, *changes: str) -> tuple[TrainConfig, list[Episode], list[Episode]]:
    """Config, target and pool of a small training with images."""
    disc, triangle, _ = pusht_episodes()
    name = RENAMED.get(f"pusht-{mode}", f"pusht-{mode}")
    config = training_preset(
        "debug",
        [f"policy.retrieval_name={name}", "policy.embodiment=triangle", "batch_size=4", "seed=3", *changes],
    )
    target = [cut(episode, 20, 24) for episode in triangle[::2]]
    return config, target, [cut(episode, 15, 36) for episode in disc]


def arms_training(*changes: str) -> tuple[TrainConfig, list[Episode], list[Episode]]:
    """Config, target and pool of a small training with two arms and poses alone."""
    ur5e, viperx = arms_episodes()
    config = training_preset("debug-dualarm", ["policy.inputs=S", "batch_size=4", "seed=3", *changes])
    return config, list(viperx[::2]), list(ur5e)


def made_latents(pictures: NDArray[np.uint8], config: TrainConfig) -> torch.Tensor:
    """Numbers of the pictures in the shape of latents: no network, so that bits can be compared."""
    image = config.policy.image
    side = image.size // image.scale
    shape = (len(pictures), side, image.scale, side, image.scale, 3)
    sums = [view.reshape(shape).sum(axis=(2, 4, 5)) for view in (pictures, pictures[:, :, ::-1])]
    both = np.stack(sums, axis=1)[:, :, None].astype(np.float32) / 10_000
    return torch.from_numpy(both + 0.1 * np.arange(image.channels, dtype=np.float32)[:, None, None])


def sample_values(samples: Samples) -> Golden:
    """All moments of one side."""
    out: Golden = {"tasks": lines(samples.tasks)}
    for name in ("actions", "base", "valid", "weight", "task"):
        put(out, name, getattr(samples, name))
    for table in ("fixed", "matched", "images"):
        for name, values in getattr(samples, table).items():
            put(out, f"{table}/{name}", values)
    return out


def data_values(config: TrainConfig, target: list[Episode], pool: list[Episode]) -> Golden:
    """Pairs, samples and the first three batches."""
    out: Golden = {}
    around, retrieval = MemoryView(pool), training_retrieval(config, pool)
    for side, episodes in zip(("train", "held_out"), split(target, config.held_out), strict=True):
        pairs = pairs_for(MemoryView(episodes), around, config, side == "train", retrieval)
        out[f"{side}/ids"] = lines([*pairs.target_ids, "", *pairs.pool_ids])
        for name in ("target", "match", "weight"):
            put(out, f"{side}/pairs/{name}", getattr(pairs, name))
    data = build_data(target, pool, config)
    out |= named("train", sample_values(data.train)) | named("held_out", sample_values(data.held_out))
    out["left_out"], out["n_episodes"] = lines(data.left_out), np.array(data.n_episodes)
    put(out, "pictures", data.pictures)
    for name in data.statistics.mean:
        put(out, f"mean/{name}", data.statistics.mean[name])
        put(out, f"std/{name}", data.statistics.std[name])
    return out | batch_values(config, data)


def batch_values(config: TrainConfig, data: TrainingData) -> Golden:
    """The first three batches, drawn as the trainer draws them."""
    out: Golden = {}
    latents = made_latents(data.pictures, config) if config.policy.sees else torch.zeros(0)
    source = BatchSource(data.train, latents, data.statistics, config.policy, torch.device("cpu"))
    for step in range(3):
        draw = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
        batch = source.draw(config.batch_size, config.augment, draw)
        for name, values in batch.values.items():
            put(out, f"batch{step}/{name}", values.numpy())
        put(out, f"batch{step}/present", batch.present.numpy())
        put(out, f"batch{step}/text", batch.text.numpy())
        assert batch.weight is not None
        put(out, f"batch{step}/weight", batch.weight.numpy())
    return out


def training_pairs(work: Path) -> Golden:
    """What training learns from, of three configs."""
    return (
        named("pusht-aligned", data_values(*pusht_training("aligned")))
        | named("pusht-contact", data_values(*pusht_training("contact")))
        | named("dualarm", data_values(*arms_training()))
    )


def weight_values(tensors: Mapping[str, torch.Tensor]) -> Golden:
    """Norm, sum over the root of how many there are, and the first 16 numbers of each tensor."""
    rows = []
    for name in sorted(tensors):
        flat = tensors[name].double().ravel()
        head = torch.zeros(16, dtype=torch.float64)
        head[: min(16, len(flat))] = flat[:16]
        rows.append(torch.cat([flat.norm()[None], flat.sum()[None] / len(flat) ** 0.5, head]))
    return {"names": lines(sorted(tensors)), "digest": torch.stack(rows).numpy()}


def run_values(out: Path) -> Golden:
    """Losses and weights of a run."""
    values: Golden = {}
    for row in read_metrics(out):
        for name, value in row.items():
            if name not in ("iteration", "samples_per_s"):
                values[f"{name}/{row['iteration']}"] = np.array(value)
    values |= named("last", weight_values(from_pretrained(out / "last").model.state_dict()))
    return values | named("state", weight_values(load_file(out / "state.safetensors")))


def short_training(work: Path) -> Golden:
    """Twenty steps of the smallest network, straight and after a stop at ten, with images and without."""
    steps = ("n_iterations=20", "validate_every=5", "save_every=10")
    sides = {
        "pusht": pusht_training("contact", *steps, "autoencoder_iterations=2"),
        "dualarm": arms_training(*steps),
    }

    def stop(what: str, done: int, total: int, note: str) -> None:
        if (what, done) == ("iterations", 10):
            raise KeyboardInterrupt

    out: Golden = {}
    for name, (config, target, pool) in sides.items():
        data = build_data(target, pool, config)
        train(config, work / name / "straight", data=data, device="cpu")
        try:
            train(config, work / name / "resumed", data=data, device="cpu", progress=stop)
        except KeyboardInterrupt:
            train(config, work / name / "resumed", data=data, device="cpu")
        for run in ("straight", "resumed"):
            out |= named(f"{name}/{run}", run_values(work / name / run))
    return out


# Exports.


def file_values(root: Path) -> Golden:
    """Every file below a folder: tables and datasets by what they hold, others byte by byte."""
    out: Golden = {}
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = f"{file.relative_to(root)}{SHA}"
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            content = [f"{field.name}: {field.type}" for field in table.schema]
            content += [repr(table.column(i).to_pylist()) for i in range(table.num_columns)]
            out[name] = sha256(lines(content).encode())
        elif file.suffix == ".hdf5":
            out |= named(str(file.relative_to(root)), dataset_values(file))
        else:
            out[name] = sha256(file.read_bytes())
    return out


def dataset_values(file: Path) -> Golden:
    """The datasets of an HDF5 file by name."""
    out: Golden = {}
    order: list[str] = []

    def visit(name: str, item: Any) -> None:
        order.append(f"{name} {dict(item.attrs)}")
        if isinstance(item, h5py.Dataset):
            out[f"{name}{SHA}"] = array_sha256(np.asarray(item[()]))

    with h5py.File(file) as opened:
        opened.visititems(visit)
    return out | {"datasets": lines(order)}


def exported_files(work: Path) -> Golden:
    """LeRobot's format, RoboTwin's in both layouts, and packed pools."""
    disc, triangle, _ = pusht_episodes()
    pushes = [cut(episode, 10, 30) for episode in (disc[0], disc[5], triangle[9])]
    arms = [cut(episode, 0, 30) for episode in arms_episodes()[0][PER_TASK : PER_TASK + 2]]
    out: Golden = {}
    for name, episodes in (("lerobot-pusht", pushes), ("lerobot-dualarm", arms)):
        for index, episode in enumerate(episodes):
            stage_episode(work / f"{name}-staged", index, episode)
        assemble(work / f"{name}-staged", len(episodes), work / name)
        out |= named(name, file_values(work / name))
    for layout in LAYOUTS:
        folder = write_robotwin(arms, work / "robotwin", "lift_pot", f"ur5e_{layout}", layout=layout)  # type: ignore[arg-type]
        out |= named(f"robotwin-{layout}", file_values(folder))
    describers: list[TermDescriber] = [retrieval_named("pusht-contact")[0]]
    packed: Mapping[str, Callable[[Path], None]] = {
        "films": partial(write_packed, MemoryView(pushes)),
        "frames": partial(write_packed, MemoryView(pushes), films=False),
        "poses": partial(write_packed, MemoryView(pushes), describers=describers, images=False),
        "dualarm": partial(write_packed, MemoryView(arms), films=False),
    }
    for name, write in packed.items():
        write(path := work / f"{name}.safetensors")
        out[f"packed/{name}{SHA}"] = sha256(path.read_bytes())
    return out


# What policies predict.


def predicted_chunks(name: str, work: Path) -> Golden:
    """Chunks of a shipped policy, two episodes side by side, looked at again every few steps."""
    env, agent = POLICIES[name], policy_agent(name)
    sides = (pusht_episodes()[1], PER_ANGLE) if env == "pusht" else (arms_episodes()[1], PER_TASK)
    episodes = held_out(*sides)[:2]
    for slot in range(2):
        agent.reset(slot, Trial("", 500 + slot))
    out: Golden = {}
    for number, t in enumerate((0, 8, 16, 19, 27)):
        seen = [query_at(episode, t).window[-1] for episode in episodes]
        chunks = agent.replan((0, 1), seen, None if t == 0 else (3, 3) if t == 19 else (8, 8))
        for slot, chunk in enumerate(chunks):
            plan = agent.plan(slot)
            assert chunk is not None
            assert plan is not None
            one: Golden = {"chunk": chunk, "refs": said(plan.conditioning.refs[0])}
            one["distance"] = np.array(plan.retrieval.matches[0].distance)
            for field in ("predicted_state", "predicted_latents"):
                if getattr(plan.chunk, field) is not None:
                    put_near(one, field, getattr(plan.chunk, field))
            out |= named(f"{number}/{slot}", one)
    return out


def wire_messages() -> list[dict[str, Any]]:
    """Twenty observations of two episodes: of one with poses, of the other with pictures alone."""
    messages: list[dict[str, Any]] = []
    for number, episode in enumerate(held_out(pusht_episodes()[1], PER_ANGLE)[:2]):
        for look in range(10):
            seen = query_at(episode, min(N_STEPS * look, len(episode) - 1)).window[-1]
            message: dict[str, Any] = {"observation/state": seen.proprio, "prompt": seen.task}
            if number:
                message["observation/image"] = seen.images["top"]
            else:
                message |= {f"observation/objects/{name}": pose for name, pose in seen.objects.items()}
                message["observation/goal"] = np.asarray(seen.goal)
            if look == 0:
                message |= {"reset": True, "seed": 500 + number}
            elif look % 3 == 2:
                message["executed"] = 5
            messages.append(message)
    return messages


async def ask_server(service: Service, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the server says of itself, then its replies, over a socket."""
    limit = 2**24
    async with (
        TestClient(TestServer(build_app(service))) as client,
        client.ws_connect("/", headers={"Host": "127.0.0.1"}) as socket,
    ):
        replies = [decode_map(await socket.receive_bytes(), limit)]
        for message in messages:
            await socket.send_bytes(encode(dict(message)))
            replies.append(decode_map(await socket.receive_bytes(), limit))
    return replies


def wire_replies(work: Path) -> Golden:
    """What the policy server replies to observations, without timings."""
    spec = ServeSpec(AgentConfig("pusht-small"), port=0)
    source: PoolSource = pusht_pool()
    service = Service(spec, source, load_policy(spec.agent))
    metadata, *replies = asyncio.run(ask_server(service, wire_messages()))
    told = {key: value for key, value in metadata.items() if key != "server"}  # which has the version
    found = [reply["retrieval"] or {"episode_id": "", "t": -1, "distance": np.nan} for reply in replies]
    return {
        "metadata": json.dumps(told, sort_keys=True),
        "keys": lines([" ".join(sorted(reply)) for reply in replies]),
        "actions": np.stack([reply["actions"] for reply in replies]),
        "confidence": np.array([reply["confidence"] for reply in replies]),
        "held": np.array([reply["held"] for reply in replies]),
        "pool_version": np.array([reply["pool_version"] for reply in replies]),
        "policy": lines([reply["policy"] for reply in replies]),
        "refs": lines([f"{one['episode_id']} {one['t']}" for one in found]),
        "distance": np.array([one["distance"] for one in found]),
    }


Compute: TypeAlias = Callable[[Path], Golden]
# Equal to the last bit on the machine that they were made on.
BITS: dict[str, Compute] = {
    **{f"retrieved/{name}": partial(retrieved_by_policy, name) for name in POLICIES},
    **{f"retrieved/{name}": partial(retrieved_by_preset, name) for name in PRESETS},
    **{f"retrieved/hindsight-{name}": partial(retrieved_in_hindsight, name) for name in HINDSIGHT},
    "episodes/replay": replay_episodes,
    "episodes/expert": expert_episodes,
    "pairs": training_pairs,
    "exports": exported_files,
}
# Equal to 1e-5.
NEAR: dict[str, Compute] = {
    **{f"chunks/{name}": partial(predicted_chunks, name) for name in POLICIES},
    "training": short_training,
    "wire": wire_replies,
}
