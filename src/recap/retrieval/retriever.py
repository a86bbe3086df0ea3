"""The two stages of retrieval: select demonstrations, then the best frame in them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError, cause
from recap.pool.view import PoolSource, PoolView, QueryDescriber
from recap.retrieval.coarse import I64, is_many
from recap.retrieval.confidence import Calibration, calibrate
from recap.retrieval.config import RetrievalConfig, with_scales
from recap.retrieval.index import Candidates, Index, squared_distances
from recap.retrieval.paths import PATH
from recap.retrieval.plain_search import EACH_BEGIN
from recap.retrieval.reach import N_TRIED, REACH, Reachability
from recap.retrieval.rows import Rows
from recap.robot import RobotSpec
from recap.types import F32, F64, QUARANTINE, Episode, FrameRef, Match, Moment, Query, Requires, Retrieval

if TYPE_CHECKING:
    from recap.pool.derived import Derived
    from recap.retrieval.aligners import Aligner


class Retriever:
    """Retrieves frames from the newest version of a pool; it keeps no state of an episode.

    Args:
        robot: demonstrations of other widths are never retrieved.
        cameras: those that a policy needs; demonstrations without them are never retrieved.
    """

    def __init__(
        self,
        source: PoolSource,
        describer: QueryDescriber,
        config: RetrievalConfig,
        robot: RobotSpec | None = None,
        cameras: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.robot, self.cameras = robot, tuple(cameras)
        self.describer = describer
        self.config = config
        # Not a bound method: that reference cycle would keep the rows alive until garbage collection.
        self._misfit = partial(_misfit, config.aligner, robot, self.cameras)
        self._view: PoolView | None = None
        self._rows: Rows | None = None
        self._index: Index | None = None
        self._keeps = not config.auto_scale  # otherwise the next process has other scales
        self._has_kept = not self._keeps
        self._salt = [None if robot is None else [robot.act.size, robot.body.size], *cameras]
        self._calibration: Calibration | None = None
        # A query is described by its weighted terms, from as many frames as they need. Image terms are
        # separate, because the history of images need not be encoded.
        self._moment = describer.only(name for name, weight in config.weights.items() if weight > 0)
        self._moments = self._moment.by_cameras()
        # Training passes no robot, because it knows the executed actions.
        self._reach = Reachability(robot, config) if config.reach and robot is not None else None
        self._scene = describer.only(name for name, weight in config.scene_weights.items() if weight > 0)

    @property
    def requires(self) -> Requires:
        """The cameras, objects and goal that retrieval needs."""
        needs = self._moment.requires | self._scene.requires | self.config.aligner.requires
        return needs | Requires(goal=self.config.same_goal)

    @property
    def sees_first_only(self) -> bool:
        """True if only the images of the first frame are used."""
        aligner = self.config.aligner
        return not self._moment.requires.cameras and (aligner.from_start or not aligner.requires.cameras)

    def index(self) -> Index:
        """The index of the newest version; describes only new episodes."""
        view = self.source.view()
        if self._index is None or view is not self._view:
            if self.config.auto_scale:
                descriptors = view.descriptors(self.describer)
                if descriptors.starts[-1]:
                    # Scales are fitted once, on the first demonstrations. Additions do not change them.
                    self.config = replace(with_scales(self.config, descriptors), auto_scale=False)
                self._rows = None
            if self._rows is None:
                self._rows = Rows(self.describer, self.config, self._misfit, self._salt)
                store: Derived | None = getattr(view, "derived", None)
                if store is not None:  # what an earlier process has laid out
                    self._rows.restore(store)
            self._index, self._view = self._rows.index(view), view
            if self._rows.is_mostly_gone(self._index):
                self._rows = Rows(self.describer, self.config, self._misfit, self._salt)
                self._index = self._rows.index(view)
            self._keep(view)
        return self._index

    def _keep(self, view: PoolView) -> None:
        """Store the rows of a large pool for the next process; at most once per process."""
        store: Derived | None = getattr(view, "derived", None)
        if store is None or self._has_kept or self._rows is None or self._index is None:
            return
        self._has_kept = True
        if self._rows.is_worth_keeping():
            self._rows.keep(store)
            self._calibration = self._load_or_calibrate(self._index)

    def why_unusable(self, episode: Episode) -> str | None:
        """The reason a demonstration cannot be retrieved, or None."""
        try:
            terms = self.describer.describe(episode)
        except Exception as error:  # any error is a reason
            return cause(error, 1000)
        not_finite = [term for term, values in terms.items() if not np.isfinite(values).all()]
        return f"its '{not_finite[0]}' is not finite" if not_finite else self._misfit(episode)

    def view_of(self, retrieval: Retrieval) -> PoolView:
        """The version that the retrieval used, even if a newer one exists."""
        if self._view is None or self._view.version != retrieval.pool_version:
            raise InputError(f"pool version {retrieval.pool_version} is no longer at hand: retrieve again")
        return self._view

    def is_stale(self, retrieval: Retrieval) -> bool:
        """True if the pool has changed since the retrieval."""
        return self.source.view().version != retrieval.pool_version

    def retrieve(self, query: Query, previous: Retrieval | None = None, n_matches: int = 1) -> Retrieval:
        """The best matches now; `previous` of the same episode saves stage 1 while the pool is the same."""
        started = time.perf_counter()
        index = self.index()
        indexed = time.perf_counter()
        if previous is not None and previous.pool_version == index.version and previous.kept is not None:
            kept, names, costs = previous.kept, previous.candidates, previous.path_costs
        else:
            kept = self.candidates(index, query)
            every = kept is index.everything
            names = index.episode_ids if every else tuple(index.episode_ids[i] for i in kept.shown.numbers)
            costs = tuple(kept.added.tolist()) if self.config.weights.get(PATH, 0.0) > 0 else ()
        selected = time.perf_counter()
        matches, deviation = self._matches(index, query, kept, n_matches)
        matched = time.perf_counter()
        confidence = self._confidence(index, matches[0]) if matches else 0.0
        timings = {
            "refresh": 1000 * (indexed - started),
            "stage1": 1000 * (selected - indexed),
            "stage2": 1000 * (matched - selected),
            "confidence": 1000 * (time.perf_counter() - matched),
        }
        return Retrieval(matches, index.version, names, confidence, timings, costs, deviation, kept)

    def _symmetries(self, query: Query) -> range:
        """The symmetric poses to query with."""
        return range(self.config.aligner.n_symmetries(query.context.symmetry))

    def _matches(
        self, index: Index, query: Query, candidates: Candidates, n: int
    ) -> tuple[tuple[Match, ...], float | None]:
        """Stage 2: the n best matches of the candidates, over all symmetric poses of the query.

        Also returns the distance to the moment that the last chunk should have led to.
        """
        matches: list[Match] = []
        deviations: list[float] = []
        uses_path = self.config.weights.get(PATH, 0.0) > 0
        for number in self._symmetries(query):
            query_row = self._describe_query(index, query, number)
            deviations += _deviation_from(index, query_row, query.follow)
            groups, n_each = [candidates], n
            if self._reach is not None:  # neighbouring frames lead to the same place: one per episode
                groups, n_each = index.one_by_one(query_row, candidates, N_TRIED), 1
            for group in groups:
                rows, distances = self._nearest(index, query_row, query, group, n_each)
                matches += [
                    _match(index, query_row, int(row), float(distance), number, group if uses_path else None)
                    for row, distance in zip(rows, distances, strict=True)
                    if row >= 0 and distance <= self.config.max_distance
                ]
        matches.sort(key=lambda match: match.distance)
        if self._reach is None:
            return tuple(matches[:n]), min(deviations, default=None)
        assert self._view is not None
        return tuple(self._reach.ranked(matches, query, self._view, n)), min(deviations, default=None)

    def candidates(self, index: Index, query: Query) -> Candidates:
        """Stage 1: the demonstrations with the nearest first scenes, and their path costs."""
        rows = [
            index.lay_out_scene(self._scene.describe(Moment.of([query.first], query.context, number)))
            for number in self._symmetries(query)
        ]
        goal = None if query.first.goal is None else np.asarray(query.first.goal, np.float64)
        return self.nearest_scenes(index, rows, goal, query.context.symmetry, query.exclude)

    def nearest_scenes(
        self, index: Index, rows: Sequence[F32], goal: F64 | None, symmetry: int, exclude: frozenset[str]
    ) -> Candidates:
        """Stage 1 for a scene, given by the rows of its symmetric poses: the kept episodes, nearest first.

        If all episodes of a large pool are kept, they stay in its order, because only frames are ranked.
        """
        hidden = index.hidden_by(exclude)
        path_weights = [w.get(PATH, 0.0) for w in (self.config.scene_weights, self.config.weights)]
        keeps_all = self.config.n_candidates is None and not self.config.same_goal and not any(path_weights)
        if keeps_all and index.is_large(index.everything):
            return index.everything.without(hidden) if hidden else index.everything
        allowed = np.delete(np.arange(len(index.episode_ids)), hidden) if hidden else None
        n_allowed = len(index.episode_ids) - len(hidden)
        if self.config.same_goal and goal is not None and n_allowed:
            allowed = np.arange(len(index.episode_ids)) if allowed is None else allowed
            period = 2 * np.pi / symmetry
            angles = (index.goals[allowed, 2] - goal[2] + period / 2) % period - period / 2
            turns = np.nan_to_num(np.abs(angles), nan=np.inf)
            allowed = allowed[turns <= turns.min() + 1e-6]
            n_allowed = len(allowed)
        n = self.config.n_candidates or n_allowed
        distances = np.min([squared_distances(index.scenes, row) for row in rows], axis=0)
        distances = distances if allowed is None else distances[allowed]
        paths = np.zeros(len(index.episode_ids))
        if any(path_weights):
            paths = np.min([index.paths.costs(row, hidden) for row in rows], axis=0)
            distances = distances + path_weights[0] * (paths if allowed is None else paths[allowed])
        nearest = _smallest(distances, n)
        numbers = np.asarray(nearest if allowed is None else allowed[nearest], np.int64)
        return index.candidates(numbers, path_weights[1] * paths[numbers])

    def _describe_query(self, index: Index, query: Query, symmetry_index: int) -> F32:
        """The query's stage-2 descriptor, in one of the object's symmetric poses: (D2,)."""
        terms: dict[str, F32] = {}
        for describer in self._moments:
            observations = query.window[-describer.n_back :]
            if describer.from_start:
                observations = (query.first, *observations)
            rows = describer.describe(Moment.of(observations, query.context, symmetry_index))
            terms |= {name: row[-1:] for name, row in rows.items()}
        return index.frame_layout.lay_out(terms).ravel()

    def _nearest(
        self, index: Index, query_row: F32, query: Query, candidates: Candidates, n: int
    ) -> tuple[I64, F64]:
        """The nearest rows of the candidates."""
        avoid = [(ref, add) for ref, add in query.avoid if ref.episode_id in index.rows_of]
        avoid_rows = np.array([index.begins[index.rows_of[r.episode_id]] + r.t for r, _ in avoid], np.int64)
        config, follow = self.config, query.follow
        # At the start of an episode, frames near the start of a demonstration are preferred.
        follow_row = EACH_BEGIN if len(query.window) == 1 else -1
        if config.follow_bonus and follow is not None and follow.episode_id in index.rows_of:
            number = index.rows_of[follow.episode_id]
            follow_row = min(int(index.begins[number]) + follow.t, int(index.ends[number]) - 1)
        penalties = np.array([add for _, add in avoid], np.float64)
        follows = (follow_row, config.follow_bonus, config.follow_fade)
        return index.nearest(query_row, candidates, n, (avoid_rows, penalties, config.stall_radius), follows)

    def _confidence(self, index: Index, match: Match) -> float:
        """Confidence from the costs of terms only; calibrated again if the pool has changed enough."""
        if self._calibration is None or self._calibration.is_outgrown(len(index.episode_ids)):
            self._calibration = self._load_or_calibrate(index)
        return self._calibration.confidence(
            math.sqrt(sum(cost for name, cost in match.costs.items() if name not in (PATH, REACH)))
        )

    def _load_or_calibrate(self, index: Index) -> Calibration:
        """The calibration; for a large pool, read from an earlier process or stored for the next one."""
        store: Derived | None = getattr(self._view, "derived", None)
        if store is None or self._rows is None or not self._keeps or not is_many(len(index.frames)):
            return calibrate(self, index)
        name = f"confidence-{self._rows.fingerprint}-{self.config.fingerprint}"
        arrays = store.map_arrays(name)
        if arrays is not None:
            stored = Calibration(arrays["distances"], int(arrays["n_episodes"][0]))
            if not stored.is_outgrown(len(index.episode_ids)):
                return stored
        new = calibrate(self, index)
        store.keep_arrays(name, {"distances": new.distances, "n_episodes": np.array([new.n_episodes])})
        return new


def _match(
    index: Index, query_row: F32, row: int, distance: float, symmetry_index: int, path: Candidates | None
) -> Match:
    """Args: path: candidates with their path costs, if the path has a weight."""
    episode, t = index.moment(row)
    ref = FrameRef(index.episode_ids[episode], t)
    costs = index.frame_layout.split(index.frames[row] - query_row)
    if path is not None:
        costs[PATH] = path.added_to(episode)
    return Match(ref, max(distance, 0.0), costs, symmetry_index)


def _deviation_from(index: Index, query_row: F32, expected: FrameRef | None) -> list[float]:
    """Distance to a moment of the pool, or to the last frame of its demonstration; one value or none."""
    if expected is None or expected.episode_id not in index.rows_of:
        return []
    number = index.rows_of[expected.episode_id]
    row = min(int(index.begins[number]) + expected.t, int(index.pasts[number]) - 1)
    difference = index.frames[row].astype(np.float64) - query_row
    return [math.sqrt(float(difference @ difference))]


def _smallest(values: NDArray[np.floating[Any]], n: int) -> NDArray[np.int64]:
    """Indices of the n smallest values in ascending order; ties keep their order."""
    if n >= len(values):
        return np.argsort(values, kind="stable")
    within = np.flatnonzero(values <= np.partition(values, n - 1)[n - 1])
    return np.asarray(within[np.argsort(values[within], kind="stable")[:n]])


def _misfit(
    aligner: Aligner, robot: RobotSpec | None, cameras: Sequence[str], episode: Episode
) -> str | None:
    """What the demonstration lacks for the aligner, the robot or the policy's cameras, or None."""
    if episode.attributes.get(QUARANTINE):
        return f"episode {episode.id} is in quarantine"
    missing = aligner.requires.missing(episode.objects, episode.goal)
    if missing is not None:
        return f"episode {episode.id} has no {missing}"
    widths = episode.actions.shape[1], episode.proprio.shape[1]
    if robot is not None and widths != (robot.act.size, robot.body.size):
        return (
            f"episode {episode.id} has {widths[0]}-D actions and {widths[1]}-D proprioception, not "
            f"{robot.act.size}-D and {robot.body.size}-D"
        )
    lacking = [camera for camera in cameras if camera not in episode.images]
    return f"episode {episode.id} has no camera '{lacking[0]}'" if lacking else None
