"""How close a policy's chunks are to the recorded actions of demonstrations, without a simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, assemble_agent, load_policy, suite_of
from recap.body import Body, Feature
from recap.compatible import refuse_other_robot
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.features.describer import TermDescriber
from recap.geometry3 import rotation6_to_matrix
from recap.kinematics import tool_space
from recap.pool.content import content_id
from recap.pool.importers.pairing import SCENE, paired
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.opening import open_demonstrations, open_pool
from recap.pool.view import PoolView
from recap.retrieval.explain import observation_at
from recap.retrieval.quality import Estimate, descriptor_quality, estimate
from recap.robot import RobotSpec
from recap.running_episode import Plan
from recap.types import F64, Episode, Observation, Requires, Retrieval

METHODS = POLICY, REPLAYED, ALONE, HOLD, MEAN = "policy", "replay", "no retrieval", "hold", "mean action"
N_TOGETHER = 8  # demonstrations per batch of the policy
MIN_TRUSTED = 5  # demonstrations; with fewer, an interval is not reliable
EDGES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the confidence bins


@dataclass(frozen=True)
class OfflineQuery:
    """One queried frame of a demonstration, and each method's chunk from there."""

    number: int  # of the demonstration, among those evaluated
    t: int
    retrieval: Retrieval | None
    plan: Plan | None  # None if nothing was retrieved and there is no policy, or if it was dropped
    chunks: Mapping[str, F64]  # method -> (H, a); cut at the end of the demonstration
    errors: Mapping[str, float]  # method -> RMS error of its chunk, each number divided by its deviation
    features: Mapping[str, F64]  # method -> (n features,) mean error in the feature's unit


@dataclass(frozen=True)
class Watched:
    """A demonstration with all its queries, for a film or an export."""

    number: int  # of the demonstration in the target
    episode: Episode
    looks: Sequence[OfflineQuery]
    agent: RetrievalAgent


@dataclass(frozen=True)
class Offline:
    """The results of one policy; estimates are means over demonstrations."""

    policy: str
    target: str
    pool: str
    retrieval: str
    numbers: tuple[int, ...]  # of the evaluated demonstrations in the target
    episodes: tuple[str, ...]  # their ids
    n_moments: int
    chunk_size: int
    every: int  # frames from one query to the next
    units: Mapping[str, str]  # feature -> unit of its error
    errors: Mapping[str, Estimate]  # method -> RMS error of a chunk, each number divided by its deviation
    features: Mapping[str, Mapping[str, Estimate]]  # method -> feature -> error in its unit
    difference: Estimate | None  # of errors, policy minus replay, on the same frames
    same_task: Estimate | None  # share of frames with a match of the demonstration's task
    phase_error: Estimate | None  # difference in phase to those matches, as a share of a demonstration
    confidence: tuple[Mapping[str, Any], ...]  # bins: low, high, n, share of moments, errors by method
    descriptors: Mapping[str, Any] | None  # of retrieval, see `recap.retrieval.quality.Quality`
    notes: tuple[str, ...]


def evaluate_offline(
    config: AgentConfig,
    target: str,
    pool: str,
    *,
    episodes: Sequence[int] | None = None,
    n_watched: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Offline, list[Watched]]:
    """Query the agent with demonstrations as at run time, and compare its chunks with the recorded actions.

    A query sees the recorded past. Demonstrations of the same scene are never retrieved.

    Args:
        episodes: numbers in the target; empty: all; None: see `held_out_episodes`.
        n_watched: number of demonstrations to return with all their queries.
    """
    policy = load_policy(config)
    training: Mapping[str, Any] = {}
    sides: Mapping[str, frozenset[str]] = {}
    if policy is not None or config.settings_of is not None:  # replay at its settings: the same held-out side
        from recap.policies.checkpoint import read_training

        training, sides = read_training(config.settings_of or config.policy)
    source = open_pool(pool, None if policy is None else policy.config.robot)
    pair_by = training.get("pair_by", SCENE)
    if pair_by.endswith(".csv") and not Path(pair_by).exists():
        pair_by = SCENE
    if pair_by != SCENE:
        shown = source.view()
        source = MemoryPool(list(paired(map(shown.episode, shown.episode_ids), pair_by)))
    acting = replace(config, reaction="ignore")  # at any confidence
    agent = assemble_agent(acting, source, policy, suite=suite_of(config))
    robot, retriever = agent.robot(), agent.retriever
    view = open_demonstrations(target, None, tool_space(robot), pair_by)
    if not view.episode_ids:
        raise InputError(f"target '{target}' contains no demonstrations to compare with")
    refuse_other_robot(robot, view, "target")
    retrieves = policy is None or policy.config.retrieval
    if retrieves and not retriever.index().episode_ids:
        raise InputError(f"pool '{pool}' has nothing that retrieval '{retriever.config.name}' can use")
    n = len(view.episode_ids)
    numbers = held_out_episodes(view, sides) if episodes is None else list(episodes or range(n))
    if max(numbers) >= n:
        raise InputError(f"target '{target}' has no demonstration {max(numbers)}: it has {n}")
    demos = [view.episode(view.episode_ids[i]) for i in numbers]
    for demo in demos:
        _refuse_lacking(demo, agent.requires)
    n_learned = sum(content_id(demo) in sides.get("train", ()) for demo in demos)
    alone = policy is not None and retrieves and training.get("retrieval_dropout") != 0
    fps, hz = demos[0].fps, robot.control_hz
    notes = {
        f"The policy learned from {n_learned} of these {len(demos)} demonstrations.": n_learned,
        "The checkpoint does not say what it learned from: it may be these.": policy and not sides,
        f"The target has {fps:g} frames a second, the robot {hz:g} actions.": abs(fps - hz) > 0.01 * hz,
        f"Fewer than {MIN_TRUSTED} demonstrations: intervals say little.": len(demos) < MIN_TRUSTED,
        "The policy does not retrieve: there is no replay beside it.": not retrieves,
        "'hold' is left out: not every action is named like a measurement.": not _can_hold(robot),
        "'no retrieval' is left out: the policy never learned to act so.": policy and retrieves and not alone,
    }
    rest = sorted(set(range(n)) - set(numbers)) or numbers
    others = np.concatenate([view.episode(view.episode_ids[i]).actions for i in rest]).astype(np.float64)
    looks: list[OfflineQuery] = []
    watched: list[Watched] = []
    for first in range(0, len(demos), N_TOGETHER):
        some = demos[first : first + N_TOGETHER]
        found = list(_query_all(agent, some, first, others.mean(axis=0), others.std(axis=0), alone))
        for i, demo in enumerate(some[: max(0, n_watched - first)], first):
            watched.append(Watched(numbers[i], demo, [look for look in found if look.number == i], agent))
        looks += [replace(look, plan=None) for look in found]  # drop pictures and latents
        if progress is not None:
            progress(first + len(some), len(demos))
    descriptors = None
    if retrieves:
        assert isinstance(retriever.describer, TermDescriber)
        spec = (retriever.describer, retriever.config)
        descriptors = descriptor_quality(MemoryView(demos), retriever.source.view(), spec).to_json()
    result = Offline(
        config.policy,
        target,
        pool,
        retriever.config.name,
        tuple(numbers),
        tuple(demo.id for demo in demos),
        len(looks),
        retriever.config.chunk_size,
        agent.n_action_steps,
        {f.name: "°" if f.kind == "rotation6d" else f.unit for f in robot.action},
        **_summary(looks, demos, retriever.source.view(), list(robot.act.features)),
        descriptors=descriptors,
        notes=tuple(note for note, holds in notes.items() if holds),
    )
    return result, watched


def _refuse_lacking(demo: Episode, requires: Requires) -> None:
    lacking = requires.missing(demo.objects, demo.goal)
    lacking = lacking or next((f"camera '{c}'" for c in requires.cameras if c not in demo.images), None)
    if lacking is not None:
        raise InputError(f"demonstration {demo.id} of the target has no {lacking}, which the agent needs")


def held_out_episodes(view: PoolView, sides: Mapping[str, frozenset[str]]) -> list[int]:
    """Numbers of held-out demonstrations; without any, of those not trained on; otherwise of all."""
    contents = [content_id(view.episode(i)) for i in view.episode_ids]
    held_out = [i for i, content in enumerate(contents) if content in sides.get("held_out", ())]
    new = [i for i, content in enumerate(contents) if content not in sides.get("train", ())]
    return held_out or new or list(range(len(contents)))


def _query_all(
    agent: RetrievalAgent, demos: Sequence[Episode], first: int, mean: F64, spread: F64, alone: bool
) -> Iterator[OfflineQuery]:
    """Query the agent along these demonstrations, which are processed in parallel."""
    robot, every, horizon = agent.robot(), agent.n_action_steps, agent.retriever.config.chunk_size
    # A constant number keeps its unit, and does not lower the error averaged over the others.
    scale, n_varying = np.where(spread > 1e-3, spread, 1.0), max(int((spread > 1e-3).sum()), 1)
    for slot, demo in enumerate(demos):
        agent.reset(slot, Trial("", first + slot), demo.context, frozenset((demo.id, demo.scene_id)))
    for t in range(max(map(len, demos))):
        slots = [slot for slot, demo in enumerate(demos) if t < len(demo)]
        cameras = (agent.retriever if t % every else agent).requires.cameras
        observations = [observation_at(_with_cameras(demos[slot], cameras), t) for slot in slots]
        if t % every:
            for slot, observation in zip(slots, observations, strict=True):
                agent.observe(slot, observation)
            continue
        planned = agent.replan(slots, observations, [every] * len(slots))
        plans = [None if c is None else agent.plan(s) for s, c in zip(slots, planned, strict=True)]
        without_match = _without_match(agent, observations, plans, first) if alone else {}
        for i, slot in enumerate(slots):
            chunk, plan = planned[i], plans[i]
            true = demos[slot].actions[t : t + horizon].astype(np.float64)
            still = np.repeat(robot.hold(observations[i].proprio)[None], horizon, axis=0)
            chunks = {MEAN: np.repeat(mean[None], horizon, axis=0)}
            chunks |= {HOLD: still} if _can_hold(robot) else {}
            if agent.policy is not None:
                chunks[POLICY] = still if chunk is None else chunk
            if agent.policy is None or agent.policy.config.retrieval:
                inputs = None if plan is None or plan.conditioning.is_empty else plan.conditioning
                chunks[REPLAYED] = still if inputs is None else agent.to_world(inputs, inputs.actions[0])
            chunks |= {ALONE: without_match[i]} if i in without_match else {}
            chunks = {method: chunks[method][: len(true)] for method in METHODS if method in chunks}
            squares = {m: np.square((c - true) / scale).sum(axis=1) / n_varying for m, c in chunks.items()}
            errors = {m: float(np.sqrt(square.mean())) for m, square in squares.items()}
            features = {m: feature_errors(robot.act, c, true).mean(axis=0) for m, c in chunks.items()}
            yield OfflineQuery(first + slot, t, agent.retrieval(slot), plan, chunks, errors, features)


def _can_hold(robot: RobotSpec) -> bool:
    """True if it is known which action keeps the robot where it is."""
    return robot.action_mode == "delta" or bool((robot.measured >= 0).all())


def _with_cameras(demo: Episode, cameras: Sequence[str]) -> Episode:
    """The demonstration with the images of these cameras only."""
    return replace(demo, images={name: demo.images[name] for name in cameras if name in demo.images})


def _without_match(
    agent: RetrievalAgent, seen: Sequence[Observation], plans: Sequence[Plan | None], first: int
) -> dict[int, F64]:
    """The policy's chunks without retrieval, by index into `seen`: (H, a)."""
    import torch

    assert agent.policy is not None
    made = {i: plan.conditioning for i, plan in enumerate(plans) if plan is not None}
    inputs = {
        i: replace(c, refs=(), last_refs=(), valid=np.zeros_like(c.valid), latents=None)
        for i, c in made.items()
    }
    generators = [torch.Generator().manual_seed(first + i) for i in inputs]
    chunks = agent.policy.predict_action_chunk([seen[i] for i in inputs], list(inputs.values()), generators)
    return {i: agent.to_world(inputs[i], chunk.actions) for i, chunk in zip(inputs, chunks, strict=True)}


def feature_errors(body: Body, guess: F64, true: F64) -> F64:
    """(H, features): distances of positions, degrees between rotations, otherwise RMS over the numbers."""
    found = []
    for feature, at in body.spans:
        apart = guess[:, at] - true[:, at]
        if feature.kind == "rotation6d":
            one, other = rotation6_to_matrix(guess[:, at]), rotation6_to_matrix(true[:, at])
            found.append(np.degrees(np.arccos(np.clip((np.einsum("tij,tij->t", one, other) - 1) / 2, -1, 1))))
        elif feature.kind == "position":
            found.append(np.linalg.norm(apart, axis=1))
        else:
            apart = (apart + np.pi) % (2 * np.pi) - np.pi if feature.kind == "angle" else apart
            found.append(np.sqrt(np.square(apart).mean(axis=1)))
    return np.stack(found, axis=1)


def _summary(
    looks: Sequence[OfflineQuery], demos: Sequence[Episode], pool: PoolView, features: Sequence[Feature]
) -> dict[str, Any]:
    """Means over demonstrations, with intervals."""
    numbers = np.array([look.number for look in looks])

    def over(values: Sequence[float] | F64) -> Estimate | None:
        """The estimate from one value per query; nan values are skipped."""
        known = ~np.isnan(values)
        means = [np.asarray(values)[known & (numbers == n)].mean() for n in np.unique(numbers[known])]
        return estimate(np.array(means)) if means else None

    methods = list(looks[0].errors)
    errors = {m: np.array([look.errors[m] for look in looks]) for m in methods}
    off = {m: np.stack([look.features[m] for look in looks]) for m in methods}  # (n, features)
    same, phase, confidence = np.full((3, len(looks)), np.nan)
    for i, look in enumerate(looks):
        if look.retrieval is not None and look.retrieval.matches:
            confidence[i], ref = look.retrieval.confidence, look.retrieval.matches[0].ref
            shown, demo = pool.episode(ref.episode_id), demos[look.number]
            same[i] = shown.task == demo.task
            apart = abs(ref.t / max(len(shown) - 1, 1) - look.t / max(len(demo) - 1, 1))
            phase[i] = apart if same[i] else np.nan
    bins = []
    n_known = int((~np.isnan(confidence)).sum())
    for low, high in pairwise(EDGES) if n_known else ():
        inside = (confidence > low) & (confidence <= high)
        n = int(inside.sum())
        means = {m: float(errors[m][inside].mean()) for m in methods if n and m in (POLICY, REPLAYED)}
        bins.append({"low": low, "high": high, "n": n, "share": n / n_known, "errors": means})
    both = POLICY in errors and REPLAYED in errors
    return {
        "errors": {m: over(values) for m, values in errors.items()},
        "features": {m: {f.name: over(off[m][:, i]) for i, f in enumerate(features)} for m in methods},
        "difference": over(errors[POLICY] - errors[REPLAYED]) if both else None,
        "same_task": over(same),
        "phase_error": over(phase),
        "confidence": tuple(bins),
    }
