"""A pool laid out for search: one matrix per stage; costs are squared distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recap.compiled import compiled_or
from recap.errors import DatasetError
from recap.retrieval.coarse import I64, MAX_NEAR, N_NEAR, Coarse, is_many
from recap.retrieval.paths import PATH, Paths
from recap.retrieval.plain_search import EACH_BEGIN, plain_nearest_frames, plain_squared_distances
from recap.types import F32, F64

AVOID_NONE = (np.zeros(0, np.int64), np.zeros(0), 0.0)


@dataclass(frozen=True)
class Layout:
    """The columns of each term in a matrix, and its scaling."""

    spans: Mapping[str, tuple[int, int]]
    factors: Mapping[str, float]  # √weight / scale

    @property
    def width(self) -> int:
        """D."""
        return max((b for _, b in self.spans.values()), default=0)

    def lay_out(self, terms: Mapping[str, F32], out: F32 | None = None) -> F32:
        """Rows (n, D): √weight · φ / scale of all terms, concatenated; in place if `out` is given."""
        if out is None:
            out = np.empty((len(terms[next(iter(self.factors))]), self.width), np.float32)
        for name, factor in self.factors.items():
            first, end = self.spans[name]
            np.multiply(terms[name], np.float32(factor), out=out[:, first:end], casting="same_kind")
        return out

    def split(self, difference: F32) -> dict[str, float]:
        """Term -> its cost, for a difference of two rows (D,)."""
        starts = [a for a, _ in self.spans.values()]
        sums = np.add.reduceat(difference.astype(np.float64) ** 2, starts).tolist()
        return dict(zip(self.spans, sums, strict=True))


def make_layout(weights: Mapping[str, float], scales: Mapping[str, float], dims: Mapping[str, int]) -> Layout:
    """The layout of the terms with a weight above 0, except the path."""
    spans: dict[str, tuple[int, int]] = {}
    factors: dict[str, float] = {}
    at = 0
    for name, weight in weights.items():
        if weight <= 0 or name == PATH:
            continue
        if name not in dims:
            raise DatasetError(f"term '{name}' is weighed but not described: there are {sorted(dims)}")
        spans[name] = (at, at + dims[name])
        factors[name] = math.sqrt(weight) / scales.get(name, 1.0)
        at += dims[name]
    return Layout(spans, factors)


@dataclass(frozen=True)
class Candidates:
    """The episodes that stage 1 keeps: their indices, nearest first, and their costs before stage 2."""

    numbers: I64
    added: F64  # cost added to each in stage 2
    n_frames: int
    hidden: frozenset[int] = frozenset()  # indices that are left out

    def without(self, numbers: Iterable[int]) -> Candidates:
        """The candidates without these episodes."""
        return replace(self, hidden=self.hidden.union(numbers))

    @cached_property
    def shown(self) -> Candidates:
        """The candidates that are not hidden."""
        if not self.hidden:
            return self
        left = ~np.isin(self.numbers, list(self.hidden))
        return Candidates(self.numbers[left], self.added[left], self.n_frames)

    @cached_property
    def _place(self) -> NDArray[np.int32]:
        place = np.full(int(self.numbers.max(initial=-1)) + 1, -1, np.int32)
        place[self.numbers] = np.arange(len(self.numbers), dtype=np.int32)
        return place

    def among(self, numbers: I64) -> Candidates:
        """The candidates among these episodes."""
        places = self._place[numbers[numbers < len(self._place)]]
        few = Candidates(self.numbers[places[places >= 0]], self.added[places[places >= 0]], 0, self.hidden)
        return few.shown

    def added_to(self, number: int) -> float:
        """The cost of a candidate before stage 2."""
        return float(self.added[self._place[number]])


@dataclass(frozen=True)
class Index:
    """One version of a pool, prepared for search."""

    version: int
    episode_ids: tuple[str, ...]
    numbers: I64  # (e,) of each among all that were ever laid out
    scenes_of: Sequence[str]  # of those, their scenes
    origins: Mapping[int, str]  # and of those cut from another demonstration, its id
    begins: I64  # (e,) first row of each episode; rows of no episode may lie between
    firsts: I64  # (e,) first row that may be chosen: for a correction, the takeover
    ends: I64  # (e,) end of the rows that may be chosen
    pasts: I64  # (e,) end of the rows
    scenes: F32  # (e, D1)
    frames: F32  # (n, D2)
    goals: F64  # (e, 3), nan if there is none
    scene_layout: Layout
    frame_layout: Layout
    paths: Paths  # of its episodes
    coarse: Coarse | None  # if there are many frames
    unusable: tuple[str, ...] = ()  # episodes that lack a required feature: never retrieved

    def hidden_by(self, exclude: frozenset[str]) -> list[int]:
        """Indices of the episodes that are excluded by their own id, their scene or their origin."""
        if not exclude:
            return []
        hidden: set[int] = set()
        for name in exclude:
            hidden.update(self.rows_of_origin.get(name, ()))
            alike = np.flatnonzero(self._scene_hashes == hash(name)).tolist()
            hidden.update(number for number in alike if self.scene_ids[number] == name)
            hidden.update([self.rows_of[name]] if name in self.rows_of else [])
        return sorted(hidden)

    @cached_property
    def rows_of(self) -> dict[str, int]:
        """Episode id -> its number."""
        return dict(zip(self.episode_ids, range(len(self.episode_ids)), strict=True))

    @cached_property
    def scene_ids(self) -> tuple[str, ...]:
        """Of each episode."""
        return tuple(self.scenes_of[i] for i in self.numbers.tolist())

    @cached_property
    def rows_of_origin(self) -> dict[str, list[int]]:
        """Demonstration -> numbers of its sub-trajectories."""
        rows: dict[str, list[int]] = {}
        for i, number in enumerate(self.numbers.tolist() if self.origins else ()):
            if number in self.origins:
                rows.setdefault(self.origins[number], []).append(i)
        return rows

    @cached_property
    def _scene_hashes(self) -> I64:
        """Of each episode; of a million they take far less than a list for each scene."""
        return np.fromiter(map(hash, self.scene_ids), np.int64, len(self.scene_ids))

    def lay_out_scene(self, first: Mapping[str, F32]) -> F32:
        """The descriptor of a first frame (1, d), laid out like a row of `scenes`."""
        if not self.scene_layout.factors:
            return np.zeros(1, np.float32)
        return self.scene_layout.lay_out(first).ravel()

    @cached_property
    def _by_row(self) -> tuple[I64, I64]:
        """Indices of the episodes ordered by first row, and these rows."""
        order = np.argsort(self.begins, kind="stable")
        return order, self.begins[order]

    def owners(self, rows: I64) -> I64:
        """Indices of the episodes that contain the rows; -1 for rows of no episode."""
        order, begins = self._by_row
        numbers = order[np.maximum(np.searchsorted(begins, rows, side="right") - 1, 0)]
        return np.where((rows >= self.begins[numbers]) & (rows < self.pasts[numbers]), numbers, -1)

    def moment(self, row: int) -> tuple[int, int]:
        """The index of the episode that contains a row of `frames`, and the frame in it."""
        number = int(self.owners(np.array([row]))[0])
        return number, row - int(self.begins[number])

    def any_moment(self, draw: Callable[[int], int]) -> tuple[int, int]:
        """A random episode and frame; `draw(n)` returns an integer below n."""
        past = np.cumsum(self.pasts - self.begins)
        drawn = draw(int(past[-1] - self.pasts[-1] + self.ends[-1]))
        number = int(np.searchsorted(past, drawn, side="right"))
        return number, drawn - int(past[number] - self.pasts[number] + self.begins[number])

    def candidates(self, numbers: I64, added: F64 | None = None) -> Candidates:
        """These episodes as candidates, in this order."""
        n_frames = int((self.ends[numbers] - self.firsts[numbers]).sum())
        return Candidates(numbers, np.zeros(len(numbers)) if added is None else added, n_frames)

    @cached_property
    def everything(self) -> Candidates:
        """All episodes, in the order of the pool."""
        return self.candidates(np.arange(len(self.episode_ids)))

    def nearest(
        self,
        asked: F32,
        candidates: Candidates,
        n: int = 1,
        avoid: tuple[I64, F64, float] = AVOID_NONE,
        follow: tuple[int, float, float] = (-1, 0.0, 0.0),
    ) -> tuple[I64, F64]:
        """Stage 2 for a query (D2,): the n nearest rows of the candidates, and their distances.

        Args:
            avoid: rows, the distance added near each, and the radius.
            follow: a row, its bonus, and the decrease of the bonus per row of distance.
        """
        least = min(0.0, float(avoid[1].min(initial=0.0)))
        k = max(N_NEAR, n)
        while self.is_large(candidates) and k <= MAX_NEAR:
            few, beyond = self.shortlist(asked, candidates, k, avoid, follow)
            rows, away = self._compare(self.ends, asked, few, n, avoid, follow)
            if away[-1] <= beyond + least:  # no other frame can be nearer
                return rows, away
            k *= 4
        return self._compare(self.ends, asked, candidates.shown, n, avoid, follow)

    def one_by_one(self, asked: F32, candidates: Candidates, n: int) -> list[Candidates]:
        """Each candidate alone; of a large pool only those near the query, about n or more."""
        few = self.shortlist(asked, candidates, n * N_NEAR)[0] if self.is_large(candidates) else candidates
        found = zip(few.shown.numbers, few.shown.added, strict=True)
        return [Candidates(np.array([number]), np.array([added]), 0) for number, added in found]

    def is_large(self, candidates: Candidates) -> bool:
        """True if comparing all frames of the candidates takes too long and can be avoided."""
        return self.coarse is not None and is_many(candidates.n_frames)

    def shortlist(
        self,
        asked: F32,
        candidates: Candidates,
        k: int,
        avoid: tuple[I64, F64, float] = AVOID_NONE,
        follow: tuple[int, float, float] = (-1, 0.0, 0.0),
    ) -> tuple[Candidates, float]:
        """The candidates that contain the k nearest frames or get a bonus.

        Also returns a lower bound of the distance of all other frames.
        """
        assert self.coarse is not None
        near, beyond = self.coarse.near(asked, k)
        row, bonus, fade = follow
        if row >= 0:
            near = np.append(near, row)
        elif row == EACH_BEGIN and bonus > 0:
            so_far = math.ceil(min(bonus / fade if fade > 0 else math.inf, 1e9)) + 1
            ends = np.minimum(self.ends, self.firsts + so_far)
            first, _ = self._compare(ends, asked, candidates.shown, N_NEAR, avoid, follow)
            near = np.append(near, first[first >= 0])
        numbers = np.unique(self.owners(near))
        return candidates.among(numbers[numbers >= 0]), beyond

    def _compare(
        self,
        ends: I64,
        asked: F32,
        candidates: Candidates,
        n: int,
        avoid: tuple[I64, F64, float],
        follow: tuple[int, float, float],
    ) -> tuple[I64, F64]:
        """Compare every frame of the candidates, up to `ends`."""
        numbers, added, (rows, add, radius) = candidates.numbers, candidates.added, avoid
        return nearest_frames(
            self.frames, asked, self.firsts, ends, numbers, added, rows, add, radius, n, *follow
        )


@compiled_or(plain_squared_distances)
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


@compiled_or(plain_nearest_frames)
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
    """The n nearest rows of the candidates' episodes and their distances with penalties, in ascending order.

    `added` is added to the squared distances of each candidate's rows.
    Rows of the episode of `follow_row` get the bonus, decreased by the fade per row of distance from it. With
    EACH_BEGIN, rows of every episode do, relative to its first selectable row.
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
