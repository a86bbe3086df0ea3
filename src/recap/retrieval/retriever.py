"""The two stages: which trajectories, then which moment of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from recap.geometry import wrap_angle
from recap.pool.view import Describer, PoolSource, PoolView
from recap.retrieval.coarse import CoarseIndex, build_coarse
from recap.retrieval.confidence import Calibration, calibrate
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.index import I64, Index, build_index, nearest_frames, squared_distances
from recap.types import F32, F64, Episode, FrameRef, Match, Observation, Query, Retrieval

COARSE_ABOVE = 50_000  # trajectories; below it an exact search takes less than a millisecond or two
MAX_COARSE = 100  # candidates that are worth looking up in groups


def as_episode(observations: Sequence[Observation], symmetry: int = 1) -> Episode:
    """Observations as a short episode, so that one function describes pool and query."""
    now = observations[-1]
    return Episode(
        id="query",
        scene_id="query",
        task=now.task,
        embodiment="",
        fps=1.0,
        timestamps=np.array([o.time_s for o in observations]),
        proprio=np.array([o.proprio for o in observations], np.float32),
        actions=np.zeros((len(observations), 0), np.float32),
        objects={
            name: np.array([o.objects[name] for o in observations], np.float32)
            for name in now.objects
            if all(name in o.objects for o in observations)
        },
        goal=None if now.goal is None else np.asarray(now.goal, np.float32),
        images={name: [o.images[name] for o in observations] for name in now.images},
        attributes={"symmetry": symmetry},
    )


class Retriever:
    """Chooses moments of a pool, always its newest version; it keeps nothing of an episode."""

    def __init__(self, source: PoolSource, describer: Describer, config: RetrievalConfig) -> None:
        self.source = source
        self.describer = describer
        self.config = config
        self._view: PoolView | None = None
        self._index: Index | None = None
        self._calibration: Calibration | None = None
        self._coarse: CoarseIndex | None = None

    def view(self) -> PoolView:
        """The newest version of the pool."""
        return self.source.view()

    def index(self) -> Index:
        """The newest version, laid out; built anew when the pool has changed."""
        view = self.source.view()
        if self._index is None or view is not self._view:
            goals = np.full((len(view.episode_ids), 3), np.nan)
            scene_ids = []
            for i, episode_id in enumerate(view.episode_ids):
                episode = view.episode(episode_id)
                scene_ids.append(episode.scene_id)
                if episode.goal is not None and len(episode.goal) == 3:
                    goals[i] = episode.goal
            descriptors = view.descriptors(self.describer)
            self._index = build_index(descriptors, self.config, view.version, tuple(scene_ids), goals)
            self._view, self._calibration = view, None
        return self._index

    def retrieve(self, query: Query, previous: Retrieval | None = None, n_matches: int = 1) -> Retrieval:
        """The moments that fit now; `previous`, of this episode, saves stage 1 while the pool is the same."""
        started = time.perf_counter()
        index = self.index()
        ready = time.perf_counter()
        if previous is not None and previous.pool_version == index.version:
            candidates = np.array([index.rows_of[i] for i in previous.candidates], np.int64)
        else:
            candidates = self.candidates(index, query)
        chosen = time.perf_counter()
        asked = self._ask(index, query)
        rows, distances = self._nearest(index, asked, query, candidates, n_matches)
        matches = tuple(
            _match(index, asked, int(row), float(distance))
            for row, distance in zip(rows, distances, strict=True)
            if row >= 0 and distance <= self.config.max_distance
        )
        matched = time.perf_counter()
        confidence = self._confidence(index, matches[0].distance) if matches else 0.0
        return Retrieval(
            matches,
            index.version,
            tuple(index.episode_ids[i] for i in candidates),
            confidence,
            {
                "refresh": 1000 * (ready - started),
                "stage1": 1000 * (chosen - ready),
                "stage2": 1000 * (matched - chosen),
            },
        )

    def candidates(self, index: Index, query: Query) -> I64:
        """Stage 1: the trajectories whose first scene is nearest to the episode's."""
        first = self.describer.describe(as_episode([query.first], query.symmetry))
        row = index.lay_out_scene(first)
        goal = None if query.first.goal is None else np.asarray(query.first.goal, np.float64)
        return self.nearest_scenes(index, row, goal, query.symmetry, query.exclude)

    def nearest_scenes(
        self, index: Index, row: F32, goal: F64 | None, symmetry: int, exclude: frozenset[str]
    ) -> I64:
        """Stage 1 on a laid-out scene: numbers of the kept episodes, nearest first."""
        allowed = np.arange(len(index.episode_ids))
        if exclude:
            pairs = zip(index.episode_ids, index.scene_ids, strict=True)
            keep = [i not in exclude and s not in exclude for i, s in pairs]
            allowed = allowed[np.array(keep, np.bool_)] if len(allowed) else allowed
        if self.config.same_goal and goal is not None and len(allowed):
            period = 2 * np.pi / symmetry
            turns = np.array([abs(wrap_angle(a - goal[2], period)) for a in index.goals[allowed, 2]])
            allowed = allowed[turns <= np.nanmin(turns) + 1e-6]
        n = self.config.n_candidates or len(allowed)
        if len(allowed) > COARSE_ABOVE and n <= MAX_COARSE and not self.config.same_goal:
            n_hidden = len(index.episode_ids) - len(allowed)
            near, _ = self._grouped(index).search(row, min(n + n_hidden, len(index.episode_ids)))
            return near[np.isin(near, allowed)][:n]
        distances = squared_distances(index.scenes[allowed], row)
        return np.asarray(allowed[np.argsort(distances, kind="stable")[:n]], np.int64)

    def _grouped(self, index: Index) -> CoarseIndex:
        """The scenes in groups; kept while the pool only grows."""
        old = self._coarse
        if old is not None and len(old.rows) <= len(index.scenes):
            if len(old.rows) == len(index.scenes) and old.rows is index.scenes:
                return old
            if np.array_equal(old.rows, index.scenes[: len(old.rows)]):
                self._coarse = old.grown_to(index.scenes)
                return self._coarse
        self._coarse = build_coarse(index.scenes)
        return self._coarse

    def _ask(self, index: Index, query: Query) -> F32:
        """The moment laid out like a row of the pool: (D2,)."""
        window = self.describer.describe(as_episode(query.window, query.symmetry))
        return index.frame_layout.lay_out({name: rows[-1:] for name, rows in window.items()}).ravel()

    def _nearest(self, index: Index, asked: F32, query: Query, candidates: I64, n: int) -> tuple[I64, F64]:
        """Stage 2: the nearest rows of the candidates."""
        avoid = [(ref, add) for ref, add in query.avoid if ref.episode_id in index.rows_of]
        avoid_rows = np.array([index.begins[index.rows_of[r.episode_id]] + r.t for r, _ in avoid], np.int64)
        return nearest_frames(
            index.frames,
            asked,
            index.begins,
            index.ends,
            candidates,
            avoid_rows,
            np.array([add for _, add in avoid], np.float64),
            self.config.stall_radius,
            n,
        )

    def _confidence(self, index: Index, distance: float) -> float:
        if self._calibration is None:
            self._calibration = calibrate(self, index)
        return self._calibration.confidence(distance)


def _match(index: Index, asked: F32, row: int, distance: float) -> Match:
    episode = int(np.searchsorted(index.begins, row, side="right")) - 1
    ref = FrameRef(index.episode_ids[episode], row - int(index.begins[episode]))
    return Match(ref, distance, index.frame_layout.split(index.frames[row] - asked))
