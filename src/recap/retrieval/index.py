"""A pool laid out for search: one matrix a stage, costs as squared distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recap.compiled import compiled_reordering
from recap.errors import DatasetError
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.paths import PATH, Paths
from recap.types import F32, F64, Descriptors, Episode

I64 = NDArray[np.int64]
EACH_BEGIN = -2  # a row to follow: where each episode begins
AVOID_NONE = (np.zeros(0, np.int64), np.zeros(0), 0.0)


@dataclass(frozen=True)
class Layout:
    """Which columns of a matrix belong to which term, and how each is scaled."""

    spans: Mapping[str, tuple[int, int]]
    factors: Mapping[str, float]  # √weight / scale

    def lay_out(self, terms: Mapping[str, F32]) -> F32:
        """Rows (n, D): √weight · φ / scale of every term side by side."""
        parts = [terms[name] * np.float32(factor) for name, factor in self.factors.items()]
        return np.ascontiguousarray(np.concatenate(parts, axis=1), np.float32)

    def split(self, difference: F32) -> dict[str, float]:
        """Term -> its cost, of a difference of two rows (D,)."""
        starts = [a for a, _ in self.spans.values()]
        sums = np.add.reduceat(difference.astype(np.float64) ** 2, starts).tolist()
        return dict(zip(self.spans, sums, strict=True))


def make_layout(weights: Mapping[str, float], scales: Mapping[str, float], dims: Mapping[str, int]) -> Layout:
    """The layout of the terms with a weight above 0; the path is none."""
    spans: dict[str, tuple[int, int]] = {}
    factors: dict[str, float] = {}
    at = 0
    for name, weight in weights.items():
        if weight <= 0 or name == PATH:
            continue
        if name not in dims:
            raise DatasetError(
                f"term '{name}' is weighed but not described: the describer has {sorted(dims)}"
            )
        spans[name] = (at, at + dims[name])
        factors[name] = math.sqrt(weight) / scales.get(name, 1.0)
        at += dims[name]
    return Layout(spans, factors)


@dataclass(frozen=True)
class Index:
    """One version of a pool, ready to be searched."""

    version: int
    episode_ids: tuple[str, ...]
    scene_ids: tuple[str, ...]
    origins: tuple[str, ...]  # of a sub-trajectory, the demonstration it was cut from; else itself
    rows_of: Mapping[str, int]  # episode id -> its number
    begins: I64  # (e,) first row of each episode
    firsts: I64  # (e,) first row that may be chosen: of a correction, where the person took over
    ends: I64  # (e,) past the last row that may be chosen
    scenes: F32  # (e, D1)
    frames: F32  # (n, D2)
    goals: F64  # (e, 3), nan where there is none
    scene_layout: Layout
    frame_layout: Layout
    paths: Paths  # of its episodes
    unusable: tuple[str, ...] = ()  # episodes that lack what is described or carried over: never retrieved

    def hidden_by(self, exclude: frozenset[str]) -> list[int]:
        """Numbers of the episodes that are named, themselves or by their scene."""
        if not exclude:
            return []
        hidden: set[int] = set()
        for name in exclude:
            hidden.update(self.rows_of_origin.get(name, ()))
            hidden.update(self.rows_of_scene.get(name, ()))
            hidden.update([self.rows_of[name]] if name in self.rows_of else [])
        return sorted(hidden)

    @cached_property
    def rows_of_origin(self) -> dict[str, list[int]]:
        """Demonstration -> numbers of itself and its sub-trajectories."""
        rows: dict[str, list[int]] = {}
        for i, name in enumerate(self.origins):
            rows.setdefault(name, []).append(i)
        return rows

    @cached_property
    def rows_of_scene(self) -> dict[str, list[int]]:
        """Scene id -> numbers of its episodes."""
        rows: dict[str, list[int]] = {}
        for i, scene in enumerate(self.scene_ids):
            rows.setdefault(scene, []).append(i)
        return rows

    def lay_out_scene(self, first: Mapping[str, F32]) -> F32:
        """The terms of one first frame (1, d) as a row of `scenes`."""
        if not self.scene_layout.factors:
            return np.zeros(1, np.float32)
        return self.scene_layout.lay_out(first).ravel()

    def moment(self, row: int) -> tuple[int, int]:
        """The number of the episode that a row of `frames` is of, and its frame there."""
        number = int(np.searchsorted(self.begins, row, side="right")) - 1
        return number, row - int(self.begins[number])

    def nearest(
        self,
        asked: F32,
        candidates: I64,
        added: F64,
        n: int = 1,
        avoid: tuple[I64, F64, float] = AVOID_NONE,
        follow: tuple[int, float, float] = (-1, 0.0, 0.0),
    ) -> tuple[I64, F64]:
        """Stage 2 on a laid-out moment (D2,): the n nearest rows of the candidates, and their distances.

        Args:
            added: (c,) to the cost of each candidate.
            avoid: rows, what is added near each, and how near that is.
            follow: a row, how much nearer it counts, and how much less for each row away from it.
        """
        return nearest_frames(
            self.frames, asked, self.firsts, self.ends, candidates, added, *avoid, n, *follow
        )


def build_index(
    descriptors: Descriptors,
    config: RetrievalConfig,
    version: int,
    episodes: Sequence[Episode],
    problem: Callable[[Episode], str | None] = lambda episode: None,
) -> Index:
    """Lay the descriptors out by the config.

    Episodes that could not be described, or that cannot be used for another reason, are left out.

    Args:
        episodes: those of the descriptors, in their order.
        problem: why an episode cannot be used; None where it can.
    """
    descriptors = _usable(descriptors, episodes, problem)
    dims = {name: rows.shape[1] for name, rows in descriptors.terms.items()}
    scene_layout = make_layout(config.scene_weights, config.scales, dims)
    frame_layout = make_layout(config.weights, config.scales, dims)
    described = np.diff(descriptors.starts) > 0
    begins, past = descriptors.starts[:-1][described], descriptors.starts[1:][described]
    kept = [episode for episode, there in zip(episodes, described, strict=True) if there]
    firsts = begins + np.array([episode.first_match for episode in kept], np.int64)
    ends = np.maximum(past - config.trim, firsts + 1)  # one frame always stays
    first = {name: rows[begins] for name, rows in descriptors.terms.items()}
    goals = np.full((len(kept), 3), np.nan)
    for i, episode in enumerate(kept):
        if episode.goal is not None and len(episode.goal) == 3:
            goals[i] = episode.goal
    scenes = scene_layout.lay_out(first) if scene_layout.factors else np.zeros((len(kept), 1), np.float32)
    return Index(
        version,
        tuple(episode.id for episode in kept),
        tuple(episode.scene_id for episode in kept),
        tuple(e.id if e.cut_from is None else e.cut_from.episode_id for e in kept),
        {episode.id: i for i, episode in enumerate(kept)},
        np.ascontiguousarray(begins, np.int64),
        np.ascontiguousarray(firsts, np.int64),
        np.ascontiguousarray(np.minimum(ends, past), np.int64),
        scenes,
        frame_layout.lay_out(descriptors.terms),
        goals,
        scene_layout,
        frame_layout,
        Paths(kept, scenes),
        tuple(episode.id for episode, there in zip(episodes, described, strict=True) if not there),
    )


def _usable(
    descriptors: Descriptors, episodes: Sequence[Episode], problem: Callable[[Episode], str | None]
) -> Descriptors:
    """The descriptors without rows of episodes that cannot be used."""
    fits = np.array([problem(episode) is None for episode in episodes], np.bool_)
    if fits.all():
        return descriptors
    lengths = np.diff(descriptors.starts)
    kept = np.repeat(fits, lengths)
    starts = np.concatenate([[0], np.cumsum(lengths * fits)]).astype(np.int64)
    return replace(
        descriptors, starts=starts, terms={name: rows[kept] for name, rows in descriptors.terms.items()}
    )


@compiled_reordering
def squared_distances(rows: F32, query: F32) -> F32:
    """|row − query|² of every row: (n,)."""
    out = np.empty(rows.shape[0], np.float32)
    for i in range(rows.shape[0]):
        total = np.float32(0.0)
        for k in range(rows.shape[1]):
            d = rows[i, k] - query[k]
            total += d * d
        out[i] = total
    return out


@compiled_reordering
def nearest_frames(
    frames: F32,
    query: F32,
    firsts: I64,
    ends: I64,
    candidates: I64,
    added: F64,
    avoid_rows: I64,
    avoid_add: F64,
    radius: float,
    n: int,
    follow_row: int,
    follow_bonus: float,
    follow_fade: float,
) -> tuple[I64, F64]:
    """The n nearest rows among the candidates' episodes, and their distances with penalties, in order.

    The cost of each candidate's rows is more by what is `added` to it.
    Rows of the episode of `follow_row` are nearer by the bonus, less the fade for each row away from it; of
    every episode with EACH_BEGIN, away from its first row that may be chosen.
    """
    best_rows = np.full(n, -1, np.int64)
    best = np.full(n, np.inf)
    width = frames.shape[1]
    least_add = 0.0
    for a in range(avoid_add.shape[0]):
        least_add = min(least_add, avoid_add[a])
    least_add -= follow_bonus
    for c in range(candidates.shape[0]):
        begin = firsts[candidates[c]]
        target = begin if follow_row == EACH_BEGIN else follow_row
        followed = begin <= target and target < ends[candidates[c]]
        for i in range(begin, ends[candidates[c]]):
            total = np.float32(added[c])
            for k in range(width):
                d = frames[i, k] - query[k]
                total += d * d
            distance = math.sqrt(total)
            if followed:
                distance -= max(0.0, follow_bonus - follow_fade * abs(i - target))
            if distance + least_add >= best[n - 1]:
                continue
            for a in range(avoid_rows.shape[0]):
                apart = np.float32(0.0)
                for k in range(width):
                    d = frames[i, k] - frames[avoid_rows[a], k]
                    apart += d * d
                if apart < radius * radius:
                    distance += avoid_add[a]
            if distance >= best[n - 1]:
                continue
            slot = n - 1
            while slot > 0 and best[slot - 1] > distance:
                best[slot], best_rows[slot] = best[slot - 1], best_rows[slot - 1]
                slot -= 1
            best[slot], best_rows[slot] = distance, i
    return best_rows, best
