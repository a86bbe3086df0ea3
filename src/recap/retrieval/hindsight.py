"""More ends from the same demonstrations: wherever an object came to rest could have been the goal.

A demonstration shows how to reach its goal, and on the way how to reach every place where the object was
left for a moment. Cut there, with the rest as its goal, each part is a demonstration of its own. Near the
goal, where whole demonstrations have little to show, such parts do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recap.geometry import wrap_angle
from recap.lazy import LazySequence
from recap.pool.derived import assemble, describe
from recap.pool.view import Describer, PoolSource, PoolView
from recap.types import F32, F64, U8, Descriptors, Episode, FrameRef

ARM = 60.0  # px: a turn counts as the way of a point so far out
STILL = 0.25  # px a step; less is rest
N_STILL = 3  # steps of rest that end a push
MIN_MOVED = 2.0  # px; a push that moved less shows nothing
LEAD = 25  # steps before a push that belong to it
MIN_LENGTH = 7
MARK = "@"  # between the id of a demonstration and which part it is
_PART = re.compile(rf"{MARK}(\d+)-\d+\Z")


def origin(episode_id: str) -> str:
    """The demonstration that a part was cut from; of a whole one, itself."""
    return _PART.sub("", episode_id)


def in_origin(ref: FrameRef) -> FrameRef:
    """The same moment of the demonstration that a part was cut from."""
    part = _PART.search(ref.episode_id)
    return ref if part is None else FrameRef(origin(ref.episode_id), ref.t + int(part[1]))


def parts_of(episode: Episode, object_name: str) -> list[Episode]:
    """The pushes of a demonstration, but for the last, each with where it left the object as its goal."""
    if object_name not in episode.objects or episode.objects[object_name].shape[1] != 3:
        return []
    poses = np.asarray(episode.objects[object_name], np.float64)
    moving = np.linalg.norm(_away(np.diff(poses, axis=0)), axis=1) > STILL
    parts: list[Episode] = []
    t, last_rest = 0, 0
    while t < len(moving):
        if not moving[t]:
            t += 1
            continue
        begin = t
        while t < len(moving) and moving[t : t + N_STILL].any():
            t += 1
        moved = np.linalg.norm(_away(poses[begin : t + 1] - poses[begin]), axis=1).max()
        if moved < MIN_MOVED:
            continue
        first = max(last_rest, begin - LEAD)
        if t < len(moving) - 2 and t + 1 - first >= MIN_LENGTH:  # the last one has the goal itself
            parts.append(_part(episode, first, t, poses[t]))
        last_rest = t
    return parts


def _away(steps: F64) -> F64:
    """Differences of poses with turns as lengths."""
    turned = steps[:, 2]
    return np.column_stack([steps[:, :2], ARM * ((turned + np.pi) % (2 * np.pi) - np.pi)])


def _part(episode: Episode, first: int, rest: int, goal: F64) -> Episode:
    end = rest + 1
    actions = episode.actions[first:end].copy()
    actions[-2:, :2] = episode.proprio[rest, :2]  # it ends here: what would have come next is not held
    return replace(
        episode,
        id=f"{episode.id}{MARK}{first}-{rest}",
        timestamps=episode.timestamps[first:end],
        proprio=episode.proprio[first:end],
        actions=actions,
        objects={name: values[first:end] for name, values in episode.objects.items()},
        images={camera: _Cut(frames, first, end - first) for camera, frames in episode.images.items()},
        goal=np.array([goal[0], goal[1], wrap_angle(float(goal[2]))], np.float32),
    )


class _Cut(LazySequence[U8]):
    """Some frames of a film, decoded when they are looked at; the goal in them is the whole one's."""

    def __init__(self, frames: Sequence[U8], first: int, length: int) -> None:
        self._frames, self._first, self._length = frames, first, length

    def __len__(self) -> int:
        return self._length

    def _item(self, number: int) -> U8:
        return self._frames[self._first + number]


class HindsightPool:
    """A pool with the parts of its demonstrations beside them; it follows the pool's newest version."""

    def __init__(self, source: PoolSource, object_name: str = "block") -> None:
        self.source, self.object_name = source, object_name
        self._view: HindsightView | None = None

    def view(self) -> HindsightView:
        """The newest version."""
        inner = self.source.view()
        if self._view is None or self._view.inner is not inner:
            self._view = HindsightView(inner, self.object_name, self._view)
        return self._view


class HindsightView:
    """One version of it; what is known of a demonstration's parts is kept from the version before."""

    def __init__(self, inner: PoolView, object_name: str, before: HindsightView | None) -> None:
        self.inner = inner
        self.version = inner.version
        self._parts: dict[str, list[Episode]] = {}
        for episode_id in inner.episode_ids:
            known = before is not None and episode_id in before._parts
            same = (
                known and before is not None and before.inner.episode(episode_id) is inner.episode(episode_id)
            )
            if same and before is not None:
                self._parts[episode_id] = before._parts[episode_id]
            else:
                self._parts[episode_id] = parts_of(inner.episode(episode_id), object_name)
        self._by_id = {part.id: part for parts in self._parts.values() for part in parts}
        self.episode_ids = (*inner.episode_ids, *self._by_id)
        self._rows: dict[str, dict[str, dict[str, F32]]] = {}
        if before is not None:
            for fingerprint, rows in before._rows.items():
                kept = {i: r for i, r in rows.items() if before._by_id.get(i) is self._by_id.get(i)}
                self._rows[fingerprint] = kept
        self._descriptors: dict[str, Descriptors] = {}

    def episode(self, episode_id: str) -> Episode:
        """A demonstration, or a part of one."""
        return self._by_id[episode_id] if episode_id in self._by_id else self.inner.episode(episode_id)

    def descriptors(self, describer: Describer) -> Descriptors:
        """Those of the pool, and after them those of the parts."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            whole = self.inner.descriptors(describer)
            rows = self._rows.setdefault(fingerprint, {})
            for episode_id, part in self._by_id.items():
                if episode_id not in rows:
                    rows[episode_id] = dict(describe(describer, part))
            ids = tuple(self._by_id)
            more = assemble(describer, ids, [rows[episode_id] for episode_id in ids])
            self._descriptors[fingerprint] = Descriptors(
                fingerprint,
                self.episode_ids,
                np.concatenate([whole.starts, whole.starts[-1] + more.starts[1:]]),
                {name: np.concatenate([whole.terms[name], more.terms[name]]) for name in whole.terms},
            )
        return self._descriptors[fingerprint]
