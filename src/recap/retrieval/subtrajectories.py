"""Sub-trajectories: a demonstration is cut wherever the object came to rest, as if that were the goal.

Each part is a demonstration of its own, and the resting pose is its goal. Near the goal whole demonstrations
have few frames, and these parts add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recap.geometry import wrap_angle
from recap.pool.derived import assemble, describe, picked
from recap.pool.importers.interventions import select_frames
from recap.pool.view import Describer, PoolSource, PoolView
from recap.robot import RobotSpec, infer_robot
from recap.types import F32, F64, Descriptors, Episode, FrameRef, Span

N_STILL = 3  # steps of rest that end a motion of the object
LEAD = 25  # steps before a motion that are included
MIN_LENGTH = 7


def source_frame(view: PoolView, ref: FrameRef) -> FrameRef:
    """The same frame in the demonstration that a sub-trajectory was cut from."""
    span = view.episode(ref.episode_id).cut_from
    return ref if span is None else FrameRef(span.episode_id, span.begin + ref.t)


@dataclass(frozen=True)
class Subtrajectories:
    """Cuts demonstrations where an object in the plane moves and then rests."""

    object_name: str
    still: float  # a step that moves it less counts as rest; unit of its position
    min_moved: float  # shorter motions are ignored
    turn_radius: float  # radius at which a rotation is converted to a length

    def of(self, episode: Episode, robot: RobotSpec | None = None) -> list[Episode]:
        """All motions of a demonstration except the last; the goal of each is where it left the object."""
        if self.object_name not in episode.objects or episode.objects[self.object_name].shape[1] != 3:
            return []
        poses = np.asarray(episode.objects[self.object_name], np.float64)
        moving = np.linalg.norm(self._lengths(np.diff(poses, axis=0)), axis=1) > self.still
        parts: list[Episode] = []
        t = last_rest = episode.first_match  # frames before a correction are not used
        while t < len(moving):
            if not moving[t]:
                t += 1
                continue
            begin = t
            while t < len(moving) and moving[t : t + N_STILL].any():
                t += 1
            moved = np.linalg.norm(self._lengths(poses[begin : t + 1] - poses[begin]), axis=1).max()
            if moved < self.min_moved:
                continue
            first = max(last_rest, begin - LEAD)
            if t < len(moving) - 2 and t + 1 - first >= MIN_LENGTH:  # the last motion ends at the goal itself
                parts.append(_part(episode, first, t, poses[t], robot))
            last_rest = t
        return parts

    def _lengths(self, steps: F64) -> F64:
        """Pose differences, with rotations converted to lengths."""
        turned = (steps[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return np.column_stack([steps[:, :2], self.turn_radius * turned])


def _part(episode: Episode, first: int, rest: int, goal: F64, robot: RobotSpec | None) -> Episode:
    end = rest + 1
    part = select_frames(episode, np.arange(first, end))  # images still show the original goal
    robot = robot or infer_robot(episode)
    if (robot.measured >= 0).all() or robot.action_mode == "delta":
        part.actions[-2:] = robot.hold(episode.proprio[rest])  # the part ends at rest, so hold the last pose
    return replace(
        part,
        id=f"{episode.id}@{first}-{rest}",
        timestamps=episode.timestamps[first:end],
        goal=np.array([goal[0], goal[1], wrap_angle(float(goal[2]))], np.float32),
        cut_from=Span(episode.id, first, end),
    )


class SubtrajectoryPool:
    """A pool together with its sub-trajectories; follows the newest version of the pool."""

    def __init__(self, source: PoolSource, cut: Subtrajectories) -> None:
        self.source, self.cut = source, cut
        self._view: SubtrajectoryView | None = None

    def view(self) -> SubtrajectoryView:
        """The newest version."""
        inner = self.source.view()
        if self._view is None or self._view.inner is not inner:
            self._view = SubtrajectoryView(inner, self.cut, self._view)
        return self._view


class SubtrajectoryView:
    """One version of the pool; parts of unchanged demonstrations are reused from the previous version."""

    def __init__(self, inner: PoolView, cut: Subtrajectories, previous: SubtrajectoryView | None) -> None:
        self.inner = inner
        self.version = inner.version
        self.robot = getattr(inner, "robot", None)
        self._parts: dict[str, list[Episode]] = {}
        for episode_id in inner.episode_ids:
            episode, parts = inner.episode(episode_id), None
            if previous is not None and episode_id in previous._parts:
                same = previous.inner.episode(episode_id) is episode
                parts = previous._parts[episode_id] if same else None
            self._parts[episode_id] = cut.of(episode, self.robot) if parts is None else parts
        ids = set(inner.episode_ids)  # the id of a part may also be that of a demonstration
        self._by_id = {p.id: p for parts in self._parts.values() for p in parts if p.id not in ids}
        self.episode_ids = (*inner.episode_ids, *self._by_id)
        self._rows: dict[str, dict[str, dict[str, F32]]] = {}
        if previous is not None:
            for fingerprint, rows in previous._rows.items():
                kept = {i: r for i, r in rows.items() if previous._by_id.get(i) is self._by_id.get(i)}
                self._rows[fingerprint] = kept
        self._descriptors: dict[str, Descriptors] = {}

    def episode(self, episode_id: str) -> Episode:
        """A demonstration, or a part of one."""
        return self._by_id[episode_id] if episode_id in self._by_id else self.inner.episode(episode_id)

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Descriptors of the pool, followed by those of the parts."""
        fingerprint = describer.fingerprint
        if fingerprint not in self._descriptors:
            whole = self.inner.descriptors(describer)
            rows = self._rows.setdefault(fingerprint, {})
            for episode_id, part in self._by_id.items():
                if episode_id not in rows:
                    rows[episode_id] = dict(describe(describer, part))
            parts = tuple(self._by_id)
            more = assemble(describer, parts, [rows[episode_id] for episode_id in parts])
            self._descriptors[fingerprint] = Descriptors(
                fingerprint,
                self.episode_ids,
                np.concatenate([whole.starts, whole.starts[-1] + more.starts[1:]]),
                {name: np.concatenate([whole.terms[name], more.terms[name]]) for name in whole.terms},
            )
        return picked(self._descriptors[fingerprint], ids)
