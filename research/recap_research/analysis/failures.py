"""Failures on PushT: behaviour, retrieval and attention, and the effect of better matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.evaluation.agents import Trial, inner_agent, make_agent
from recap.evaluation.run_directory import Key
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.summary import succeeded
from recap.geometry import wrap_angle
from recap.retrieval.retriever import Retriever
from recap.types import F64, EpisodeResult, Match, Observation, Query, Retrieval
from recap_research.analysis.attention import FIRST, LAST, by_layer
from recap_research.analysis.bootstrap import bootstrap_mean
from recap_research.analysis.traces import Look, Trace
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.tasks import FPS, INSTRUCTION

Cluster: TypeAlias = Literal["success", "moves", "never engages"]
CLUSTERS: tuple[Cluster, ...] = ("success", "moves", "never engages")
ENGAGED = 0.10  # coverage gained: the paper's limit (appendix C)
ARM = 60.0  # px: a rotation counts as the motion of a point at this distance
PROGRESS_PX = 1.0  # smaller changes are neither progress nor harm


def cluster_of(result: EpisodeResult, start_coverage: float, threshold: str) -> Cluster:
    """A success, a failure that moved the block towards the goal, or one that hardly touched it."""
    if succeeded(result, threshold):
        return "success"
    gained = result.metrics["coverage"] - start_coverage
    return "moves" if gained >= ENGAGED - 1e-9 else "never engages"


@dataclass(frozen=True)
class Failure:
    """One episode with its trace and cluster."""

    result: EpisodeResult
    trace: Trace
    cluster: Cluster


def label(results: Sequence[EpisodeResult], traces: Mapping[Key, Trace], threshold: float) -> list[Failure]:
    """Every episode without an error, with its cluster."""
    key = threshold_key(threshold)
    found = []
    for result in results:
        looks = traces[result.task, result.seed].looks
        if result.outcome != "error" and looks and result.first_step[key] != 0:
            cluster = cluster_of(result, looks[0].coverage, key)
            found.append(Failure(result, traces[result.task, result.seed], cluster))
    if not found:
        raise InputError("there are no episodes to analyse: all were errors, or began beyond the threshold")
    return found


def analyse_failures(
    results: Sequence[EpisodeResult],
    traces: Mapping[Key, Trace],
    threshold: float,
    layers: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Clusters by angle, retrieval by cluster, and anchoring and commit at the given layers.

    Args:
        layers: `intake` and `commit`, as found by the probe.
    """
    episodes = label(results, traces, threshold)
    tasks = list(dict.fromkeys(e.result.task for e in episodes))
    clusters = {
        task: {c: sum(e.cluster == c and e.result.task == task for e in episodes) for c in CLUSTERS}
        for task in tasks
    }
    found: dict[str, Any] = {
        "kind": "failures",
        "threshold": threshold_key(threshold),
        "engaged_from": ENGAGED,
        "clusters": clusters,
        "total": {c: sum(row[c] for row in clusters.values()) for c in CLUSTERS},
        "retrieval": {c: _retrieval([e for e in episodes if e.cluster == c]) for c in CLUSTERS},
        "episodes": [
            {
                "angle": e.result.task,
                "seed": e.result.seed,
                "cluster": e.cluster,
                "gained": round(e.result.metrics["coverage"] - e.trace.looks[0].coverage, 4),
                "max_coverage": round(e.result.metrics["coverage"], 4),
                "confidence": _median([look.confidence for look in e.trace.looks]),
            }
            for e in episodes
            if e.cluster != "success"
        ],
    }
    if layers:
        keys = {"anchoring": (f"{FIRST}>t_block", "intake"), "commit": (f"{LAST}>predicted_end", "commit")}
        found["attention"] = {
            name: {"ratio": key, "layer": layers[axis], "angles": _by_outcome(episodes, key, layers[axis])}
            for name, (key, axis) in keys.items()
            if axis in layers
        }
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(float(np.median(known)), 4) if known else None


def _retrieval(episodes: Sequence[Failure]) -> dict[str, Any]:
    """Distance and confidence: the median and last look of an episode, and the share of unsure looks."""
    looks: list[tuple[Look, ...]] = [e.trace.looks for e in episodes]
    unsure = [
        float(np.mean([look.confidence is None or look.confidence < 0.05 for look in x])) for x in looks
    ]
    return {
        "episodes": len(episodes),
        "distance": _median([_median([look.distance for look in x]) for x in looks]),
        "last_distance": _median([x[-1].distance for x in looks]),
        "confidence": _median([_median([look.confidence for look in x]) for x in looks]),
        "last_confidence": _median([x[-1].confidence for x in looks]),
        "unsure_looks": float(np.mean(unsure)) if unsure else None,
        "different_matches": _median([float(len({look.match for look in x}) / len(x)) for x in looks]),
    }


def _by_outcome(episodes: Sequence[Failure], key: str, layer: int) -> dict[str, Any]:
    """A ratio at a layer for successes and failures, by angle and overall, with the difference's interval."""
    found: dict[str, Any] = {}
    tasks = [*dict.fromkeys(e.result.task for e in episodes), "all"]
    for task in tasks:
        values: dict[bool, F64] = {}
        for won in (True, False):
            figures = [
                e.trace.figures
                for e in episodes
                if e.trace.figures is not None
                and (e.cluster == "success") == won
                and task in (e.result.task, "all")
            ]
            course = by_layer(figures, key)
            values[won] = course[:, layer] if len(course) else np.zeros(0)
        means = {won: float(v.mean()) if len(v) else None for won, v in values.items()}
        a, b = means[True], means[False]
        found[task] = {
            "success": a,
            "failure": b,
            "n": [len(values[True]), len(values[False])],
            "difference": None if a is None or b is None else b - a,  # failure minus success
            "interval": _difference(values[True], values[False]),
        }
    return found


def _difference(a: F64, b: F64) -> list[float] | None:
    """The 95 % interval of mean b minus mean a, both resampled; None for fewer than two values each."""
    if min(len(a), len(b)) < 2:
        return None
    draw = np.random.default_rng(0)
    means = [x[draw.integers(len(x), size=(4000, len(x)))].mean(axis=1) for x in (a, b)]
    low, high = np.percentile(means[1] - means[0], (2.5, 97.5))
    return [float(low), float(high)]


# The oracle: at states of a rollout, each of the nearest matches is tried.


def distance_to_goal(state: F64) -> float:
    """The block's distance to the goal in px; a rotation counts as the motion of a point 60 px away."""
    turn = wrap_angle(float(state[4] - state[7]))
    return float(np.hypot(np.hypot(state[2] - state[5], state[3] - state[6]), ARM * turn))


def observe(state: F64, step: int, spec: EvalSpec, image_size: int | None) -> tuple[PushTEnv, Observation]:
    """A board at rest in this state, and the agent's observation of it."""
    pusher, block = (str(spec.options[name]) for name in ("pusher", "block"))
    env = PushTEnv(pusher, float(np.degrees(state[7])), block=block, success_threshold=0.99)
    env.reset(seed=0, options={"reset_to_state": state[:5]})
    seen = env.observe(image_size)
    return env, Observation(seen.proprio, INSTRUCTION, step / FPS, seen.images, seen.objects, seen.goal)


class _Chooser:
    """A retriever that returns a given match; everything else is passed to the inner retriever."""

    def __init__(self, retriever: Retriever) -> None:
        self.inner = retriever
        self.chosen: Retrieval | None = None

    def retrieve(self, query: Query, previous: Retrieval | None = None, n_matches: int = 1) -> Retrieval:
        """The given match, if there is one."""
        if self.chosen is not None:
            return self.chosen
        return self.inner.retrieve(query, previous, n_matches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def try_matches(
    agent: RetrievalAgent, spec: EvalSpec, state: F64, step: int, n_matches: int
) -> tuple[F64, F64]:
    """Progress to the goal in px with chunks from the n nearest matches, nearest first.

    Also with n chunks from the nearest match with other noise, since the best of n is better by chance alone.
    """
    _, seen = observe(state, step, spec, agent.image_size)
    found = agent.retriever.retrieve(Query((seen,), seen, agent.context), n_matches=n_matches)
    chooser: Any = _Chooser(agent.retriever)
    body = agent.robot().act

    def progress(match: Match, seed: int) -> float:
        chooser.chosen = replace(found, matches=(match,))
        agent.reset(0, Trial("", seed))
        agent.act([0], [seen])
        plan = agent.plan(0)
        assert plan is not None
        env, _ = observe(state, step, spec, None)
        before = distance_to_goal(env.state())
        actions = body.out_of(plan.conditioning.frame, plan.chunk.actions.astype(np.float64))
        for action in np.clip(actions, *body.bounds):
            env.step(action)
        return before - distance_to_goal(env.state())

    agent.retriever = chooser
    try:
        several = [progress(match, step) for match in found.matches]
        again = [progress(found.matches[0], step + 1000 * i) for i in range(1, len(several))]
    finally:
        agent.retriever = chooser.inner
    return np.array(several), np.array([*several[:1], *again])


def oracle_matches(
    spec: EvalSpec,
    episodes: Sequence[Failure],
    *,
    n_matches: int = 8,
    every: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Would another of the nearest matches have helped? Tried on states of the episodes, by cluster.

    The oracle looks one chunk ahead: it knows which match moves the block closest to the goal. States are
    taken at rest, at every `every`-th look of an episode.
    """
    agent = inner_agent(make_agent(spec))
    assert isinstance(agent, RetrievalAgent)
    tried: dict[str, list[tuple[F64, F64]]] = {c: [] for c in CLUSTERS}
    for done, episode in enumerate(episodes):
        for look in episode.trace.looks[::every]:
            tried[episode.cluster].append(
                try_matches(agent, spec, np.array(look.state), look.step, n_matches)
            )
        if progress is not None:
            progress(done + 1, len(episodes))
    return {
        "n_matches": n_matches,
        "every": every,
        "clusters": {c: _oracle_row(rows) for c, rows in tried.items() if rows},
    }


def _oracle_row(rows: Sequence[tuple[F64, F64]]) -> dict[str, Any]:
    known = [row for row in rows if len(row[0])]
    if not known:
        return {"states": 0}
    nearest = np.array([matches[0] for matches, _ in known])
    best = np.array([matches.max() for matches, _ in known])
    lucky = np.array([again.max() for _, again in known])
    harmful, stuck = nearest < -PROGRESS_PX, np.abs(nearest) <= PROGRESS_PX
    return {
        "states": len(known),
        "nearest_px": float(nearest.mean()),
        "other_noise_px": float(lucky.mean()),
        "oracle_px": float(best.mean()),
        "gain_px": float((best - lucky).mean()),  # beyond chance
        "gain_interval_px": list(bootstrap_mean((best - lucky)[:, None])),
        "harmful": float(harmful.mean()),
        "harm_avoidable": float((harmful & (best > PROGRESS_PX)).mean()),
        "harm_avoidable_by_noise": float((harmful & (lucky > PROGRESS_PX)).mean()),
        "stuck": float(stuck.mean()),
        "stuck_avoidable": float((stuck & (best > PROGRESS_PX)).mean()),
        "stuck_avoidable_by_noise": float((stuck & (lucky > PROGRESS_PX)).mean()),
    }
