"""How far the retrieved actions are from the robot's own: by chunk length, and by pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from recap.body import KINDS
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.index import squared_distances
from recap.retrieval.pairs import find_outliers, find_pairs
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.types import F64

N_PERFECT = 200  # frames that are compared with every chunk of the pool
MAX_POOL_FRAMES = 60_000  # pool frames that are searched for the best chunk
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class HorizonRow:
    """RMS errors over chunks of one length, in `Check.unit`."""

    horizon: int
    still: float  # of holding still
    residual: float  # of the retrieved chunk, never of the same scene: as at test time
    corrected: float  # the same, moved to begin at the robot: any policy can see and correct this offset
    paired: float  # corrected, with matches of the same scene allowed, as in training
    perfect: float  # corrected, of the pool chunk that fits best: no retrieval can do better
    ratio: float  # residual / still
    corrected_ratio: float  # corrected / still
    low: float  # 95 % interval of corrected_ratio, a bootstrap over target episodes
    high: float
    ratio_low: float  # 95 % interval of ratio
    ratio_high: float


@dataclass(frozen=True)
class PairRow:
    """One target demonstration compared with its matches."""

    episode_id: str
    matched_id: str  # the demonstration with most of its matches
    residual: float
    ratio: float  # to the error of holding still over all demonstrations
    plateau: int  # longest run of successive queries with the same match
    misaligned: bool


class Residuals:
    """The queried frames, their matches, and the chunks of both in their canonical frames."""

    def __init__(
        self,
        target: PoolView,
        pool: PoolView,
        describer: TermDescriber,
        config: RetrievalConfig,
        robot: RobotSpec,
        horizon: int,
        n_moments: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.target, self.pool, self.config, self.horizon = target, pool, config, horizon
        self.robot = robot
        self.retriever = Retriever(_Fixed(pool), describer, config)
        self.index = self.retriever.index()
        if not self.index.episode_ids:
            raise InputError(
                f"retrieval '{config.name}' can use no demonstration of the pool: they lack what it reads"
            )
        self.units = _units(robot, target)
        times = _spread(target, n_moments)
        self.moments = [(number, t) for number, mine in enumerate(times) for t in mine]
        self.episode_of = np.array([number for number, _ in self.moments])
        self.true, self.valid, held = self._chunks(target, target.episode_ids, self.moments)
        self.held, self.still = held, ""
        self._hold_still()
        self.matches: dict[bool, list[tuple[int, int]]] = {}  # twin allowed -> (index number, frame) each
        self.shown: dict[bool, F64] = {}  # twin allowed -> (n, H, a)
        self.offset: dict[bool, F64] = {}  # (n, 1, a) from the match's position to the robot's
        for twin in (False, True):
            if twin and not self.n_paired:  # no demonstration has a twin
                self.matches[True], self.shown[True] = self.matches[False], self.shown[False]
                self.offset[True] = self.offset[False]
                continue
            match = find_pairs(target, self.retriever, 1, twin, times, progress).match[:, 0]  # (n, 2)
            if (match < 0).any():
                raise InputError(
                    "every demonstration of the pool has the target's own scene: give a pool with others"
                )
            self.matches[twin] = [(int(number), int(t)) for number, t in match]
            actions, _, theirs = self._chunks(pool, self.index.episode_ids, self.matches[twin])
            self.shown[twin] = actions
            self.offset[twin] = self.rest - theirs[self.still] if self.still in theirs else 0 * self.rest
        self._pool_chunks: tuple[F64, I64] | None = None

    def _chunks(
        self, view: PoolView, ids: Sequence[str], moments: Sequence[tuple[int, int]]
    ) -> tuple[F64, NDArray[np.bool_], dict[str, F64]]:
        """Actions (n, H, a) in each moment's frame and in `units`, their validity, and ways to hold still.

        Args:
            moments: (number in `ids`, frame) of each.
        """
        valid: list[NDArray[np.bool_]] = []
        actions: list[F64] = []
        proprio: list[F64] = []
        previous: list[F64] = []
        for number, t in moments:
            episode = view.episode(ids[number])
            ahead = t + np.arange(self.horizon)
            valid.append(ahead < len(episode))
            ahead = np.minimum(ahead, len(episode) - 1)
            raw = (episode.actions[ahead], episode.proprio[t : t + 1], episode.actions[max(t - 1, 0)][None])
            rows = [np.asarray(row, np.float64) for row in raw]
            if not self.config.aligner.in_world:
                frame = self.config.aligner.frame(episode, t)
                bodies = (self.robot.act, self.robot.body, self.robot.act)
                rows = [body.into(frame, row) for body, row in zip(bodies, rows, strict=True)]
            for place, row in zip((actions, proprio, previous), rows, strict=True):
                place.append(row)
        width = actions[0].shape[1]
        held = {"the action before": np.stack(previous) / self.units}
        if proprio[0].shape[1] >= width:
            held["where it is"] = np.stack(proprio)[..., :width] / self.units
        return np.stack(actions) / self.units, np.stack(valid), held

    def _hold_still(self) -> None:
        """Choose how to hold still: repeat the present position, else the previous action, else zeros."""
        spread = _rms(self.true[:, :1] - self.true[:, :1].mean(axis=0), self.valid[:, :1])
        for name in ("where it is", "the action before"):
            if name in self.held and _rms(self.true[:, :1] - self.held[name], self.valid[:, :1]) < spread:
                self.still, self.rest = name, self.held[name]
                return
        self.still, self.rest = "no action", np.zeros_like(self.true[:, :1])

    @property
    def n_paired(self) -> int:
        """Target demonstrations with a scene that is also in the pool."""
        there = set(self.index.scene_ids)
        return sum(self.target.episode(name).scene_id in there for name in self.target.episode_ids)

    def error(self, guess: F64, horizon: int) -> F64:
        """Squared error of a guess (n, H or 1, a), summed over a chunk: (n,)."""
        apart = self.true[:, :horizon] - guess[:, :horizon]
        return np.asarray((np.square(apart) * self.valid[:, :horizon, None]).sum(axis=(1, 2)))

    def n_numbers(self, horizon: int) -> F64:
        """Valid numbers in each chunk: (n,)."""
        return np.asarray(self.valid[:, :horizon].sum(axis=1) * self.true.shape[2], np.float64)

    def row(self, horizon: int) -> HorizonRow:
        """The errors at one chunk length."""
        still, residual = self.error(self.rest, horizon), self.error(self.shown[False], horizon)
        corrected, paired = (self.error(self.shown[t] + self.offset[t], horizon) for t in (False, True))
        bounds = (*self._interval(corrected, still), *self._interval(residual, still))
        n = self.n_numbers(horizon).sum()
        sums = [part.sum() for part in (still, residual, corrected, paired)]
        a, b, c, d = (float(np.sqrt(part / n)) for part in sums)
        perfect = self._perfect(horizon)
        least = max(a, 1e-9)  # avoids division by zero if nothing moves
        return HorizonRow(horizon, a, b, c, d, perfect, b / least, c / least, *bounds)

    def _interval(self, residual: F64, rest: F64) -> tuple[float, float]:
        """95 % interval of the ratio, a bootstrap over target episodes."""
        numbers, at = np.unique(self.episode_of, return_inverse=True)
        sums = np.stack([np.bincount(at, part) for part in (residual, rest)])  # (2, episodes)
        drawn = np.random.default_rng(0).integers(len(numbers), size=(2000, len(numbers)))
        above, below = (part[drawn].sum(axis=1) for part in sums)
        low, high = np.percentile(np.sqrt(above / np.maximum(below, 1e-12)), (2.5, 97.5))
        return float(low), float(high)

    def _perfect(self, horizon: int) -> float:
        """RMS error of the pool's best chunk after moving it to begin here; the same scene is left out."""
        chunks, episodes = self._every_chunk()
        part = np.ascontiguousarray(chunks[:, :horizon].reshape(len(chunks), -1), np.float32)
        scenes = np.array(self.index.scene_ids)[episodes]
        total, n = 0.0, 0
        few = np.unique(np.linspace(0, len(self.moments) - 1, min(len(self.moments), N_PERFECT)).astype(int))
        for i in few:
            number = self.moments[i][0]
            width = int(self.valid[i, :horizon].sum()) * self.true.shape[2]
            asked = (self.true[i, :horizon] - self.rest[i]).ravel()[:width].astype(np.float32)
            whole = part if width == part.shape[1] else np.ascontiguousarray(part[:, :width])
            away = squared_distances(whole, asked)
            away[scenes == self.target.episode(self.target.episode_ids[number]).scene_id] = np.inf
            total, n = total + float(away.min()), n + width
        return float(np.sqrt(total / max(n, 1)))

    def _every_chunk(self) -> tuple[F64, I64]:
        """Chunks of the pool (at most MAX_POOL_FRAMES) relative to their first frame, and their episodes."""
        if self._pool_chunks is None:
            n = int(self.index.ends[-1])
            rows = np.unique(np.linspace(0, n - 1, min(n, MAX_POOL_FRAMES)).astype(np.int64))
            moments = [self.index.moment(int(row)) for row in rows]
            chunks, _, held = self._chunks(self.pool, self.index.episode_ids, moments)
            self._pool_chunks = (
                chunks - held[self.still] if self.still in held else chunks,
                np.array([e for e, _ in moments]),
            )
        return self._pool_chunks

    def pairs(self, horizon: int) -> tuple[PairRow, ...]:
        """Each target demonstration with its training pairs, worst first."""
        rest, count = self.error(self.rest, horizon), self.n_numbers(horizon)
        residual = self.error(self.shown[True] + self.offset[True], horizon)
        still = max(float(np.sqrt(rest.sum() / count.sum())), 1e-9)
        found = []
        for number in np.unique(self.episode_of):
            mine = self.episode_of == number
            matched = [self.matches[True][i] for i in np.flatnonzero(mine)]
            usual = int(np.bincount([number for number, _ in matched]).argmax())
            value = float(np.sqrt(residual[mine].sum() / max(count[mine].sum(), 1.0)))
            ids = self.target.episode_ids[number], self.index.episode_ids[usual]
            found.append(PairRow(*ids, value, value / still, _longest_run(matched), False))
        outlying = find_outliers(np.array([pair.ratio for pair in found]))
        found = [replace(pair, misaligned=bool(far)) for pair, far in zip(found, outlying, strict=True)]
        return tuple(sorted(found, key=lambda pair: -pair.residual))


class _Fixed:
    """A source that always gives the same view."""

    def __init__(self, view: PoolView) -> None:
        self._view = view

    def view(self) -> PoolView:
        """The view."""
        return self._view


def _units(robot: RobotSpec, target: PoolView) -> F64:
    """(a,) divisors of the numbers of an action: with several kinds, the deviation of each kind.

    Otherwise a gripper from 0 to 1 would outweigh metres. The least deviation is that of a policy: a tool
    that stays level here may tilt slightly in the pool.
    """
    kinds = np.array([feature.kind for feature in robot.act.features for _ in range(feature.size)])
    units = np.ones(len(kinds))
    if len(set(kinds)) > 1:
        actions = [target.episode(name).actions for name in target.episode_ids]
        variance = np.concatenate(actions).astype(np.float64).var(axis=0)
        floored = robot.is_metric and robot.action_mode == "absolute"
        for kind in set(kinds):
            deviation = max(float(np.sqrt(variance[kinds == kind].mean())), floored * KINDS[kind].least[0])
            units[kinds == kind] = deviation if deviation > 1e-5 else 1.0
    return units


def _spread(view: PoolView, n_moments: int) -> list[list[int]]:
    """Evenly spaced frames of every episode: at least four each, so that pairs can be ranked."""
    each = max(4, n_moments // len(view.episode_ids))
    found = []
    for episode_id in view.episode_ids:
        length = len(view.episode(episode_id))
        n = min(each, length)
        # Centres of equal parts: first and last frames, where the robot is often at rest, get no more weight
        # than others.
        found.append([int(t) for t in (np.arange(n) + 0.5) * length / n])
    return found


def _rms(values: F64, valid: NDArray[np.bool_]) -> float:
    return float(np.sqrt(np.square(values)[valid].mean())) if valid.any() else 0.0


def _longest_run(moments: Sequence[tuple[int, int]]) -> int:
    longest = run = 1
    for a, b in pairwise(moments):
        run = run + 1 if a == b else 1
        longest = max(longest, run)
    return longest
