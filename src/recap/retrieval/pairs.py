"""Training pairs: for every frame of the target's demonstrations, the best matches in the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.features.terms import Actions
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.index import Candidates, Index
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.types import F32, F64, FrameRef

I32 = NDArray[np.int32]
ACTION_WEIGHT = 0.1  # weight of the upcoming chunk, from the paper
OUTLIER = 3.5  # robust standard deviations above the median at which a pair is probably misaligned
MIN_RATIO = 0.75  # ratio of residual to holding still; a pair below it helps even if it is an outlier


@dataclass(frozen=True)
class Pairs:
    """The k matches of each target frame, nearest first; index -1 where there is none."""

    target_ids: tuple[str, ...]
    pool_ids: tuple[str, ...]
    target: I32  # (n, 2): index of the target episode, frame
    match: I32  # (n, k, 2): index of the pool episode, frame
    weight: F32  # (n, k) sampling probabilities; rows sum to 1, or to 0 without a match

    def refs(self, row: int) -> list[FrameRef]:
        """The matches of a row."""
        return [FrameRef(self.pool_ids[e], int(t)) for e, t in self.match[row] if e >= 0]


def with_action_term(
    describer: TermDescriber,
    config: RetrievalConfig,
    robot: RobotSpec,
    action_weight: float = ACTION_WEIGHT,
    step_weight: float = 0.0,
) -> tuple[TermDescriber, RetrievalConfig]:
    """A retrieval with the terms that only training can use: the upcoming actions and their differences."""
    weights = {**config.weights, "action": action_weight / config.chunk_size}  # the mean over the chunk
    scale = config.scales.get("proprio", 1.0)
    scales = {**config.scales, "action": scale}
    described = describer.with_term("action", config.aligner.action_term(robot, config.chunk_size))
    if step_weight:
        weights["delta_action"], scales["delta_action"] = step_weight / config.chunk_size, scale
        steps = Actions(robot.act.size, config.chunk_size, as_steps=True)
        described = described.with_term("delta_action", steps)
    return described, replace(config, name=f"{config.name}-training", weights=weights, scales=scales)


def find_pairs(
    target: PoolView,
    retriever: Retriever,
    k: int = 3,
    allow_twin: bool = True,
    times: Sequence[Sequence[int]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pairs:
    """The k best matches of each target frame, at most one per episode.

    Args:
        target: demonstrations of the robot.
        retriever: over the pool, with the describer and config of training.
        allow_twin: whether the pool's demonstration of the same scene may be matched.
        times: the frames of each target episode to match; None: all.
        progress: called with the number of finished target episodes and their total.
    """
    index = retriever.index()
    if not index.episode_ids:
        raise InputError("there are no pairs to find: the pool is empty")
    rows, matches, distances = [], [], []
    for number, episode_id in enumerate(target.episode_ids):
        episode = target.episode(episode_id)
        terms = retriever.describer.describe(episode)
        query_rows = index.frame_layout.lay_out(terms)
        scene = index.lay_out_scene({name: values[:1] for name, values in terms.items()})
        goal = None if episode.goal is None else episode.goal.astype(np.float64)
        exclude = {episode.id} | (set() if allow_twin else {episode.scene_id})
        candidates = retriever.nearest_scenes(index, [scene], goal, episode.symmetry, frozenset(exclude))
        for t in range(len(episode)) if times is None else times[number]:
            rows.append((number, t))
            best, best_distances = _best_of_each(index, query_rows[t], candidates, k)
            matches.append(best)
            distances.append(best_distances)
        progress(number + 1, len(target.episode_ids))
    all_distances = np.array(distances)  # (n, k)
    closeness = np.where(np.isfinite(all_distances), 1 / (all_distances + 1.0), 0.0)
    weight = closeness / np.maximum(closeness.sum(axis=1, keepdims=True), 1e-12)
    return Pairs(
        tuple(target.episode_ids),
        index.episode_ids,
        np.array(rows, np.int32),
        np.array(matches, np.int32),
        weight.astype(np.float32),
    )


def find_outliers(ratios: F64) -> NDArray[np.bool_]:
    """Which demonstrations are probably misaligned, by their ratios of residual to holding still."""
    middle = np.median(ratios)
    spread = max(1.4826 * float(np.median(np.abs(ratios - middle))), 0.02)
    return np.asarray(((ratios - middle) / spread > OUTLIER) & (ratios > MIN_RATIO))


def _best_of_each(
    index: Index, query_row: F32, candidates: Candidates, k: int
) -> tuple[list[tuple[int, int]], list[float]]:
    """The best frame of each of the k best episodes; otherwise all matches would be neighbouring frames."""
    matches: list[tuple[int, int]] = []
    distances: list[float] = []
    for _ in range(k):
        row, distance = index.nearest(query_row, candidates)
        matches.append((-1, 0) if row[0] < 0 else index.moment(int(row[0])))
        distances.append(float(distance[0]))
        candidates = candidates.without([matches[-1][0]])
    return matches, distances
