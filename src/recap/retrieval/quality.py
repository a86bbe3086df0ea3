"""How well each term of a retrieval separates tasks, scenes and moments between two embodiments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig, with_scales
from recap.retrieval.index import make_layout, squared_distances
from recap.retrieval.paths import PATH, Paths, path_of
from recap.types import F32, F64, Descriptors, Episode

WHOLE = "all"  # every term, weighted as in the retrieval
N_MOMENTS = 16  # query frames of each target demonstration


class Estimate(NamedTuple):
    """A mean over target demonstrations with its 95 % interval; nan if nothing could be measured."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class TermQuality:
    """The quality of one term alone, or of all terms.

    The twin is the pool's demonstration of the query's scene. It is left out when tasks are ranked. Phases
    are compared with the twin's. A term without information has the rank of chance.
    """

    term: str
    task_rank: Estimate  # of the right task by its nearest moment, 1 is best; nan with one task only
    scene_rank: Estimate  # of the twin among its task's first frames, from 0 (nearest) to 1
    path_error: Estimate  # path error of the nearest scene but the twin, over the task's mean; chance: 1
    phase_error: Estimate  # |phase of the twin's nearest moment − phase of the query|, 0 to 1; chance: 1/3


@dataclass(frozen=True)
class Quality:
    """The quality of all terms together, then of each term."""

    rows: tuple[TermQuality, ...]
    n_tasks: int
    n_episodes: int  # of the target that were used as queries
    n_paired: int  # of these, how many have a twin

    def to_json(self) -> dict[str, Any]:
        """Plain values; null if nothing could be measured."""
        names = ("task_rank", "scene_rank", "path_error", "phase_error")
        rows = [{"term": row.term} | {n: _plain(getattr(row, n)) for n in names} for row in self.rows]
        return {"n_tasks": self.n_tasks, "n_episodes": self.n_episodes, "n_paired": self.n_paired} | {
            "rows": rows
        }


def descriptor_quality(
    target: PoolView, pool: PoolView, spec: tuple[TermDescriber, RetrievalConfig]
) -> Quality:
    """Query the pool with moments of the target's demonstrations, by all terms and by each term alone.

    Args:
        target: demonstrations of the robot.
        pool: of the other embodiment; demonstrations of the same scene are twins.
        spec: a retrieval: describer and config.
    """
    describer, config = spec
    described = pool.descriptors(describer)
    config = with_scales(config, described) if config.auto_scale else config
    queries = target.descriptors(describer)
    if not described.starts[-1] or not queries.starts[-1]:
        side = "the target" if described.starts[-1] else "the pool"
        raise InputError(f"retrieval '{config.name}' can describe no demonstration of {side}")
    dims = {name: rows.shape[1] for name, rows in described.terms.items()}
    weighted = [n for n in described.terms if config.weights.get(n, 0) or config.scene_weights.get(n, 0)]
    weightings = [({name: 1.0}, {name: 1.0}, name) for name in weighted]
    weightings.insert(0, (dict(config.weights), dict(config.scene_weights), WHOLE))
    rows, n_paired, n_queries, n_tasks = [], 0, 0, 0
    for weights, scene_weights, name in weightings:
        layouts = [make_layout(w, config.scales, dims) for w in (weights, scene_weights or weights)]
        moments, scenes = (layout.lay_out(described.terms) for layout in layouts)
        table = _Table(pool, described, moments, scenes, scene_weights.get(PATH, 0.0))
        laid_out = [layout.lay_out(queries.terms) for layout in layouts]
        values = [
            table.evaluate(target.episode(i), laid_out[0][a:b], laid_out[1][a])
            for i, a, b in zip(queries.episode_ids, queries.starts[:-1], queries.starts[1:], strict=True)
            if b > a
        ]
        n_queries, n_tasks = len(values), len(table.tasks)
        n_paired = sum(not math.isnan(phase) for *_, phase in values)
        rows.append(TermQuality(name, *(estimate(np.array(part)) for part in zip(*values, strict=True))))
    return Quality(tuple(rows), n_tasks, n_queries, n_paired)


class _Table:
    """The pool's descriptors under one set of weights."""

    def __init__(
        self, pool: PoolView, descriptors: Descriptors, moments: F32, scenes: F32, path_weight: float
    ) -> None:
        self.starts, self.moments, self.path_weight = descriptors.starts, moments, path_weight
        self.episodes = [pool.episode(name) for name in descriptors.episode_ids]
        self.tasks = sorted({episode.task for episode in self.episodes})
        self.task_of = np.array([self.tasks.index(episode.task) for episode in self.episodes])
        self.known = np.diff(descriptors.starts) > 0
        first = np.where(self.known, self.starts[:-1], 0)
        self.paths = Paths(self.episodes, np.ascontiguousarray(scenes[first]))

    def evaluate(self, query: Episode, moments: F32, scene: F32) -> tuple[float, ...]:
        """The values of `TermQuality` for one target demonstration; nan where undefined."""
        usable = self.known & np.array([e.id != query.id for e in self.episodes])
        same = usable & np.array([e.task == query.task for e in self.episodes])
        twins = same & np.array([e.scene_id == query.scene_id for e in self.episodes])
        times = np.unique(((np.arange(N_MOMENTS) + 0.5) * len(moments) / N_MOMENTS).astype(int))
        ranks, errors = [], []
        for t in times:
            distances = squared_distances(self.moments, moments[t])
            nearest = np.full(len(usable), np.inf)
            nearest[self.known] = np.minimum.reduceat(distances, self.starts[:-1][self.known])
            ranks.append(self._task_rank(np.where(usable & ~twins, nearest, np.inf), query.task))
            phase = t / max(len(moments) - 1, 1)
            errors += [abs(self._phase(distances, int(e)) - phase) for e in np.flatnonzero(twins)]
        gaps = self._scenes(scene, twins)
        others = same & ~twins
        scene_rank, path_error = (_rank(gaps, twins, others), self._path(query, gaps, others))
        return _mean(ranks), scene_rank, path_error, _mean(errors)

    def _phase(self, distances: F32, e: int) -> float:
        a, b = self.starts[e], self.starts[e + 1]
        least = np.flatnonzero(distances[a:b] == distances[a:b].min())
        return float(least.mean()) / max(int(b - a) - 1, 1)  # ties: the mean frame

    def _task_rank(self, nearest: F64, task: str) -> float:
        best = np.full(len(self.tasks), np.inf)
        np.minimum.at(best, self.task_of, nearest)
        if len(best) < 2 or task not in self.tasks or np.isinf(best[self.tasks.index(task)]):
            return math.nan
        own = best[self.tasks.index(task)]
        return 0.5 + float((best < own).sum() + 0.5 * (best == own).sum())  # own is tied with itself

    def _scenes(self, scene: F32, twins: NDArray[np.bool_]) -> F64:
        """(e,) distance of each episode's first scene."""
        costs: F64 = squared_distances(self.paths.rows, scene).astype(np.float64)
        if self.path_weight:  # the twin must not contribute to the prediction of its own path
            costs += self.path_weight * self.paths.costs(scene, np.flatnonzero(twins | ~self.known).tolist())
        return costs

    def _path(self, query: Episode, distances: F64, others: NDArray[np.bool_]) -> float:
        """Path error of the nearest scene's demonstration, relative to its task's other demonstrations."""
        width = query.proprio.shape[1]
        comparable = [e for e in np.flatnonzero(others) if self.episodes[e].proprio.shape[1] == width]
        if len(comparable) < 2:
            return math.nan
        path_errors = [float(np.linalg.norm(path_of(self.episodes[e]) - path_of(query))) for e in comparable]
        nearest = distances[comparable] == distances[comparable].min()  # all ties
        return float(np.mean(np.array(path_errors)[nearest]) / max(np.mean(path_errors), 1e-12))


def _rank(distances: F64, twins: NDArray[np.bool_], others: NDArray[np.bool_]) -> float:
    if not twins.any() or not others.any():
        return math.nan
    twin = distances[twins].min()
    return float(((distances[others] < twin) + 0.5 * (distances[others] == twin)).mean())


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def estimate(values: F64) -> Estimate:
    """The mean over known values, with a bootstrap interval over demonstrations."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Estimate(math.nan, math.nan, math.nan)
    drawn = np.random.default_rng(0).integers(len(known), size=(2000, len(known)))
    low, high = np.percentile(known[drawn].mean(axis=1), (2.5, 97.5))
    return Estimate(float(known.mean()), float(low), float(high))


def _plain(estimate: Estimate) -> list[float] | None:
    return None if math.isnan(estimate.mean) else list(estimate)
