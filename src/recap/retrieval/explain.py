"""Explains a match: the costs of each term, and why the next best match was farther away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recap.pool.view import PoolView
from recap.retrieval.retriever import Retriever
from recap.types import U8, Episode, FrameRef, Match, Observation, Query, Retrieval

N_WINDOW = 8
N_LOOK = 500  # matches among which other episodes are searched


def query_at(episode: Episode, t: int, exclude: frozenset[str] = frozenset()) -> Query:
    """A recorded moment as the query that an agent would make."""
    window = tuple(observation_at(episode, k) for k in range(max(0, t - N_WINDOW + 1), t + 1))
    return Query(window, observation_at(episode, 0), episode.context, exclude)


def observation_at(episode: Episode, t: int) -> Observation:
    """A recorded moment as an observation."""
    return Observation(
        proprio=episode.proprio[t],
        task=episode.task,
        time_s=float(episode.timestamps[t]),
        images={name: frames[t] for name, frames in episode.images.items()},
        objects={name: poses[t].astype("float64") for name, poses in episode.objects.items()},
        goal=None if episode.goal is None else episode.goal.astype("float64"),
    )


@dataclass(frozen=True)
class Explanation:
    """A retrieval prepared for a reader."""

    query: FrameRef
    retrieval: Retrieval
    terms: tuple[str, ...]  # weighted terms, by decreasing share of the best match's cost

    def compare_with_next(self) -> str:
        """One sentence on the best match of another episode."""
        if not self.retrieval.matches:
            return "Nothing was retrieved: the pool is empty, or nothing is within range."
        winner = self.retrieval.matches[0]
        rivals = [m for m in self.retrieval.matches if m.ref.episode_id != winner.ref.episode_id]
        if not rivals:
            return "No moment of another episode is among the nearest."
        rival = rivals[0]
        gaps = {term: rival.costs[term] - winner.costs[term] for term in self.terms}
        worst = max(gaps, key=lambda term: gaps[term])
        better = [term for term, gap in gaps.items() if gap < 0]
        also = f", though better in {' and '.join(better)}" if better else ""
        return (
            f"{rival.ref.episode_id}:{rival.ref.t} lost mostly by '{worst}' "
            f"(+{gaps[worst]:.4g}; +{sum(gaps.values()):.4g} over all terms){also}."
        )


def explain(retriever: Retriever, view: PoolView, at: FrameRef, n_matches: int) -> Explanation:
    """Query the pool with one of its own moments, excluding that moment's scene."""
    episode = view.episode(at.episode_id)
    query = query_at(episode, at.t, frozenset((episode.id, episode.scene_id)))
    return _explanation(at, retriever.retrieve(query, n_matches=N_LOOK), n_matches)


def _explanation(at: FrameRef, retrieval: Retrieval, n_matches: int) -> Explanation:
    """Keep the best match of each episode, because neighbouring frames are nearly equal."""
    best: list[Match] = []
    for match in retrieval.matches:
        if all(match.ref.episode_id != other.ref.episode_id for other in best):
            best.append(match)
    shown = tuple(best[:n_matches])
    terms: Sequence[str] = sorted(shown[0].costs, key=lambda t: -shown[0].costs[t]) if shown else ()
    return Explanation(at, replace(retrieval, matches=shown), tuple(terms))


def picture(view: PoolView, explanation: Explanation) -> U8 | None:
    """The query's frame and its matches, side by side; None without images."""
    refs = [explanation.query, *(match.ref for match in explanation.retrieval.matches)]
    tiles = []
    for ref in refs:
        cameras = view.episode(ref.episode_id).images
        if not cameras:
            return None
        tiles.append(next(iter(cameras.values()))[ref.t])
    height = max(tile.shape[0] for tile in tiles)
    gap = np.full((height, 4, 3), 128, np.uint8)
    row: list[U8] = []
    for tile in tiles:
        padded = np.full((height, tile.shape[1], 3), 255, np.uint8)
        padded[: tile.shape[0]] = tile
        row += [padded, gap]
    return np.concatenate(row[:-1], axis=1)
