"""Demonstrations as retrieval compares them, in order of arrival; each is laid out only once.

A version of a pool is an index of some of these rows. An append lays out only new episodes. Removed or
changed episodes leave unused rows. For a large pool the rows are stored next to its descriptors, and the
next process maps them from there.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recap.lazy import Made
from recap.pool.view import Describer, PoolView
from recap.retrieval.coarse import I64, Coarse, coarse_index, is_many
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.index import Index, make_layout
from recap.retrieval.paths import Paths
from recap.types import F32, Episode

if TYPE_CHECKING:
    from recap.pool.derived import Derived

MAX_GONE = 0.25  # share of unused rows above which all are laid out again
MAX_NEW = 0.05  # share of rows not yet stored above which all are stored again
N_TOGETHER = 16_384  # episodes that are described before they are laid out
SPARE = 1.25  # space to allocate, times the number of rows
REVISION = 2
log = logging.getLogger("recap.retrieval")


class Rows:
    """Every demonstration seen so far, by key.

    Args:
        problem: returns the reason an episode cannot be used, or None.
        salt: other values on which `problem` depends.
    """

    def __init__(
        self,
        describer: Describer,
        config: RetrievalConfig,
        problem: Callable[[Episode], str | None],
        salt: Sequence[Any] = (),
    ) -> None:
        self.describer, self.config, self.problem = describer, config, problem
        self.scene_layout = make_layout(config.scene_weights, config.scales, describer.dims)
        self.frame_layout = make_layout(config.weights, config.scales, describer.dims)
        parts = [REVISION, describer.fingerprint, config.metric_fingerprint, dict(config.scene_weights)]
        text = json.dumps([*parts, *salt], sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.keys: NDArray[Any] = np.zeros(0, "S64")
        self.scene_ids: list[str] = []
        self.origins: dict[int, str] = {}  # of a sub-trajectory, the demonstration it was cut from
        self.starts = np.zeros(1, np.int64)
        self.firsts = np.zeros(0, np.int64)  # first selectable frame of each
        self.goals = np.zeros((0, 3))
        self.scenes: F32 = np.zeros((0, max(self.scene_layout.width, 1)), np.float32)
        self.coarse: Coarse | None = None
        self.is_new = True  # a running process keeps its cells
        self.n_kept = 0  # rows stored by an earlier process
        self._space: F32 = np.zeros((0, self.frame_layout.width), np.float32)
        self._last: tuple[NDArray[Any], Index] | None = None  # keys of the version indexed last
        self._number_of: dict[Hashable, int] = {}  # of keys, where it was needed

    @property
    def frames(self) -> F32:
        """(n, D2)."""
        return self._space[: self.starts[-1]]

    def index(self, view: PoolView) -> Index:
        """Index a version of a pool; describes only new episodes."""
        keys, ids = keys_of(view), view.episode_ids
        n, last = 0, None
        if self._last is not None and np.array_equal(keys[: len(self._last[0])], self._last[0]):
            n, last = len(self._last[0]), self._last[1]  # what is new came at the end
        numbers = self._numbers(keys, n)
        new = np.flatnonzero(numbers < 0)
        numbers[new] = len(self.keys) + np.arange(len(new))
        new += n
        for first in range(0, len(new), N_TOGETHER):
            part = new[first : first + N_TOGETHER]
            self._add(view, [ids[i] for i in part.tolist()], keys[part])
            if len(new) > N_TOGETHER:
                log.info("%d of %d demonstrations are laid out", min(first + N_TOGETHER, len(new)), len(new))
        if self.coarse is None or (self.is_new and self.coarse.is_outgrown(len(self.frames))):
            self.coarse = coarse_index(self.frames)
        elif len(self.coarse) < len(self.frames):
            self.coarse.add(self.frames[len(self.coarse) :])
        self.is_new = False
        usable = self.starts[numbers + 1] > self.starts[numbers]
        names: tuple[str, ...] = ids[n:]
        lost: tuple[str, ...] = ()
        if not usable.all():
            lost = tuple(name for name, fits in zip(ids[n:], usable, strict=True) if not fits)
            names = tuple(name for name, fits in zip(ids[n:], usable, strict=True) if fits)
            numbers = numbers[usable]
        if last is not None:
            numbers = np.concatenate([last.numbers, numbers])
            names, lost = last.episode_ids + names, last.unusable + lost
        begins, pasts = self.starts[numbers], self.starts[numbers + 1]
        firsts = begins + self.firsts[numbers]
        ends = np.maximum(pasts - self.config.trim, firsts + 1)  # at least one frame remains
        scenes = self.scenes[numbers]
        index = Index(
            view.version,
            names,
            numbers,
            self.scene_ids,
            self.origins,
            begins,
            firsts,
            np.minimum(ends, pasts),
            pasts,
            scenes,
            self.frames,
            self.goals[numbers],
            self.scene_layout,
            self.frame_layout,
            Paths(Made(len(names), lambda number: view.episode(names[number])), scenes),
            self.coarse,
            lost,
        )
        self._last = keys, index
        return index

    def _numbers(self, keys: NDArray[Any], n: int) -> I64:
        """The rows of keys from the n-th on; -1 of what is not laid out yet."""
        known = min(len(keys), len(self.keys))
        if np.array_equal(keys[:known], self.keys[:known]):  # nothing has gone
            return np.concatenate([np.arange(n, max(known, n)), np.full(len(keys) - max(known, n), -1)])
        if len(self._number_of) < len(self.keys):
            self._number_of = dict(zip(self.keys.tolist(), range(len(self.keys)), strict=True))
        return np.array([self._number_of.get(key, -1) for key in keys[n:].tolist()], np.int64)

    def restore(self, store: Derived) -> None:
        """Take over what an earlier process has kept."""
        found = store.map_arrays(f"rows-{self.fingerprint}")
        if found is None:
            return
        self.keys = found["keys"].view("S64")
        self.scene_ids = _texts(found["scene_ids"])
        self.starts, self.firsts, self.goals = found["starts"], found["firsts"], found["goals"]
        self.scenes, self._space, self.n_kept = found["scenes"], found["frames"], int(self.starts[-1])
        if "coarse" in found:
            self.coarse = Coarse.of_bytes(found["coarse"])
        store.let_go(self.describer.fingerprint, _texts(found["files"]))

    def keep(self, store: Derived) -> None:
        """Store the laid-out rows for later processes, and drop the descriptors they were made from."""
        files = store.let_go(self.describer.fingerprint)
        self.n_kept = n = len(self.frames)
        spare = int(n * (1 + MAX_NEW))  # rows that the next process can append without a copy
        if len(self._space) < spare:
            self._reserve(spare, n)
        self._space[n:spare] = 0
        arrays: dict[str, NDArray[Any]] = {
            "keys": self.keys.view(np.uint8),
            "scene_ids": _bytes(self.scene_ids),
            "files": _bytes(files),
            "starts": self.starts,
            "firsts": self.firsts,
            "goals": self.goals,
            "scenes": self.scenes,
            "frames": self._space[:spare],
        }
        if self.coarse is not None:
            arrays["coarse"] = self.coarse.to_bytes()
        store.keep_arrays(f"rows-{self.fingerprint}", arrays)

    def is_worth_keeping(self) -> bool:
        """True if storing the rows saves another process much work."""
        new = len(self.frames) - self.n_kept
        return is_many(len(self.frames)) and new > MAX_NEW * len(self.frames)

    def is_mostly_gone(self, index: Index) -> bool:
        """True if too many rows belong to no episode of the version any more."""
        named = int((index.pasts - index.begins).sum())
        return len(self.frames) - named > MAX_GONE * max(len(self.frames), 1)

    def _add(self, view: PoolView, ids: Sequence[str], keys: NDArray[Any]) -> None:
        every = len(ids) == len(view.episode_ids)
        described = view.descriptors(self.describer, None if every else ids)
        used = int(self.starts[-1])
        scene_ids, origins, goals = [], {}, np.full((len(ids), 3), np.nan)
        lengths = np.diff(described.starts)
        firsts, usable = np.zeros(len(ids), np.int64), lengths > 0
        for i, name in enumerate(ids):
            episode = view.episode(name)
            scene_ids.append(episode.scene_id)
            if episode.cut_from is not None:
                origins[len(self.keys) + i] = episode.cut_from.episode_id
            if episode.goal is not None and len(episode.goal) == 3:
                goals[i] = episode.goal
            firsts[i] = episode.first_match
            usable[i] &= self.problem(episode) is None
        self.scene_ids += scene_ids
        self.origins.update(origins)
        if self._number_of:
            self._number_of.update(
                zip(keys.tolist(), range(len(self.keys), len(self.keys) + len(keys)), strict=True)
            )
        self.keys = np.concatenate([self.keys, keys]) if len(self.keys) else keys
        self.goals = np.concatenate([self.goals, goals])
        self.firsts = np.concatenate([self.firsts, firsts])
        rows = described.terms
        if not usable.all():
            rows = {name: values[np.repeat(usable, lengths)] for name, values in rows.items()}
        begins = used + np.concatenate([[0], np.cumsum(lengths * usable)])
        self.starts = np.concatenate([self.starts, begins[1:]])
        if len(self._space) < self.starts[-1]:
            self._reserve(int(self.starts[-1] * (SPARE if used else 1.0)), used)
        self.frame_layout.lay_out(rows, self._space[used : self.starts[-1]])
        scenes: F32 = np.zeros((len(ids), self.scenes.shape[1]), np.float32)
        if self.scene_layout.factors:
            first = {name: values[begins[:-1][usable] - used] for name, values in rows.items()}
            scenes[usable] = self.scene_layout.lay_out(first)
        self.scenes = np.concatenate([self.scenes, scenes])

    def _reserve(self, n_rows: int, used: int) -> None:
        larger = np.empty((n_rows, self.frame_layout.width), np.float32)
        larger[:used] = self._space[:used]
        self._space = larger


def keys_of(view: PoolView) -> NDArray[Any]:
    """What tells each episode of a view from every other there was: a hash of it, or the object itself."""
    digests = getattr(view, "digests", None)
    if digests is None:
        return np.array([view.episode(name) for name in view.episode_ids], object)
    index = getattr(digests, "index", None)  # of a live pool, which has them as one array
    return np.array([digests[i] for i in view.episode_ids], "S64") if index is None else index.digests


def _bytes(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Texts without line breaks, as one array."""
    return np.frombuffer("\n".join(texts).encode(), np.uint8)


def _texts(data: NDArray[np.uint8]) -> list[str]:
    """The inverse of `_bytes`."""
    return data.tobytes().decode().split("\n") if len(data) else []
