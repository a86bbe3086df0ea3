"""Where demonstrations start, in two dimensions: dense and missing regions, and what to record next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recap.errors import one_of
from recap.pool.view import PoolView
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.types import F64, Episode

CELLS = 36  # of the map, along its longer side
MAX_POINTS = 3000  # most points that are drawn
N_NEXT = 3  # places to suggest
SCENE = "scene"  # the first frame's descriptor that stage 1 of the retrieval compares
LEAST_CLOSING = 0.1  # as a share of the largest opening; smaller changes are not a closing
SAME = 1e-6  # starts that differ by less are the same
AT_ONCE = 512  # places that are processed together


@dataclass(frozen=True)
class Axes:
    """Two numbers of a demonstration: in its first or last frame, or where the gripper first closes."""

    name: str
    text: str
    labels: tuple[str, str]
    unit: str
    part: str = ""  # `state`, or the name of an object
    columns: tuple[int, int] = (0, 1)
    frame: Literal["first", "last", "closes"] = "first"
    gripper: int = -1  # its index in the state, for `closes`

    def of(self, episode: Episode) -> F64 | None:
        """(2,); None if a demonstration does not have them."""
        rows = episode.proprio if self.part == "state" else episode.objects.get(self.part)
        if rows is None or not len(rows) or rows.shape[1] <= max(self.columns):
            return None
        t = 0 if self.frame == "first" else len(rows) - 1
        if self.frame == "closes":
            opening = episode.proprio[:, self.gripper]
            half = (float(opening.min()) + float(opening.max())) / 2
            closing = np.flatnonzero((opening[:-1] >= half) & (opening[1:] < half))
            if not len(closing) or np.ptp(opening) < LEAST_CLOSING * max(1e-9, float(np.abs(opening).max())):
                return None
            t = int(closing[0]) + 1
        here = np.asarray(rows[t, list(self.columns)], np.float64)
        return here if np.isfinite(here).all() else None


def axes_of(robot: RobotSpec, first: Episode) -> list[Axes]:
    """Possible axes for starts: objects, then tool positions, otherwise two joints, and last the scene."""
    unit = next((f.unit for f in robot.proprio if f.kind == "position"), "")
    found = [
        Axes(f"object {name}", f"{name} at the start", ("x", "y"), unit, name)
        for name, poses in first.objects.items()
        if poses.shape[1] in (3, 7)
    ]
    spans = robot.body.spans if robot.body.size == first.proprio.shape[1] else ()
    grippers = {feature.name: at.start for feature, at in spans if feature.kind == "gripper"}
    for feature, at in spans:
        if feature.kind != "position":
            continue
        begin = Axes(
            feature.name,
            f"{feature.name} at the start",
            ("x", "y"),
            feature.unit,
            "state",
            (at.start, at.start + 1),
        )
        side = feature.name.rpartition(".")[0]
        own = next((name for name in grippers if name.rpartition(".")[0] == side), min(grippers, default=""))
        if own:
            text = f"{feature.name} where {own} first closes"
            found.append(
                replace(
                    begin, name=f"{feature.name}, closing", text=text, frame="closes", gripper=grippers[own]
                )
            )
        last = replace(begin, name=f"{feature.name}, end", text=f"{feature.name} at the end", frame="last")
        found += [begin, last]
    joints = [(feature, at.start) for feature, at in spans if feature.kind == "joint" and feature.size == 1]
    if not found and len(joints) > 1:
        (a, i), (b, j) = joints[:2]
        begin = Axes("joints", f"{a.name} and {b.name}", (a.name, b.name), a.unit, "state", (i, j))
        found += [begin, replace(begin, name="joints, end", text=f"{begin.text} at the end", frame="last")]
    return [*found, Axes(SCENE, "the first scene, as retrieval compares it", ("1", "2"), "")]


def survey(
    view: PoolView, robot: RobotSpec, retriever: Callable[[], Retriever] | None, name: str, task: str
) -> dict[str, Any]:
    """The map of starts.

    Args:
        retriever: describes first scenes; only called if they are shown.
        name: of the axes; empty: the first with different starts.
        task: show only its demonstrations; empty: all.
    """
    if not view.episode_ids:
        return {"choices": [], "n": 0}
    choices = axes_of(robot, view.episode(view.episode_ids[0]))
    episodes = [view.episode(i) for i in view.episode_ids]
    tasks = sorted({episode.task for episode in episodes})
    kept = [episode for episode in episodes if not task or episode.task == task]
    axes = _named(choices, name) if name else _first_that_differs(choices, kept)
    told: dict[str, Any] = {
        "choices": [{"name": a.name, "text": a.text} for a in choices],
        "chosen": axes.name,
        "labels": axes.labels,
        "unit": axes.unit,
        "tasks": tasks[:200],
        "task": task,
    }
    if axes.name == SCENE:
        assert retriever is not None
        return told | _scenes(retriever(), {episode.id for episode in kept})
    known = [(episode.id, at) for episode in kept if (at := axes.of(episode)) is not None]
    points = np.array([at for _, at in known]).reshape(-1, 2)
    return told | _laid_out([i for i, _ in known], points) | _empty_places(points)


def _named(choices: Sequence[Axes], name: str) -> Axes:
    one_of("map", name, [axes.name for axes in choices])
    return next(axes for axes in choices if axes.name == name)


def _first_that_differs(choices: Sequence[Axes], episodes: Sequence[Episode]) -> Axes:
    """The first axes with different starts; an arm may always start at the same place."""
    for axes in choices[:-1]:
        known = [at for episode in episodes[:MAX_POINTS] if (at := axes.of(episode)) is not None]
        if len(known) > 1 and np.ptp(np.array(known), axis=0).max() > SAME:
            return axes
    return choices[-1]


def _laid_out(ids: Sequence[str], points: F64) -> dict[str, Any]:
    """Points to draw, and their usual distance."""
    every = max(1, -(-len(ids) // MAX_POINTS))
    shown = [
        {"id": name, "x": _plain(x), "y": _plain(y)}
        for name, (x, y) in zip(ids[::every], points[::every].tolist(), strict=True)
    ]
    return {"n": len(ids), "every": every, "points": shown, "usual": _usual(points), "next": [], "cells": []}


def _empty_places(points: F64) -> dict[str, Any]:
    """Cells with their distance to the nearest start, and the emptiest places between recorded starts.

    Places are within the convex hull of the starts: outside of it the robot may not be able to reach them.
    """
    if len(points) < 3 or (np.ptp(points, axis=0) <= 1e-9).any():
        return {}
    low, size = points.min(axis=0), np.ptp(points, axis=0)
    low, size = low - 0.06 * size, 1.12 * size
    step = float(size.max() / CELLS)
    nx, ny = (max(1, round(float(n) / step)) for n in size)
    xs, ys = low[0] + (np.arange(nx) + 0.5) * size[0] / nx, low[1] + (np.arange(ny) + 0.5) * size[1] / ny
    places = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    away = nearest(places, points)
    inside = within(places, points)
    found, known, left = [], points, away.copy()
    for _ in range(N_NEXT):
        best = int(np.argmax(np.where(inside, left, -1.0)))
        if not inside[best] or left[best] <= step:
            break
        found.append({"x": _plain(places[best, 0]), "y": _plain(places[best, 1]), "away": _plain(left[best])})
        known = np.vstack([known, places[best]])
        left = np.minimum(left, np.linalg.norm(places - places[best], axis=1))
    grid = {"low": [_plain(v) for v in low], "size": [_plain(v) for v in size], "nx": nx, "ny": ny}
    cells = [_plain(a) if here else None for a, here in zip(away.tolist(), inside.tolist(), strict=True)]
    return {"grid": grid, "cells": cells, "next": found}


def _scenes(retriever: Retriever, ids: set[str]) -> dict[str, Any]:
    """First scenes by their two principal components, and those farthest from all others."""
    index = retriever.index()
    rows = [i for i, name in enumerate(index.episode_ids) if name in ids]
    scenes = index.scenes[rows].astype(np.float64)
    if len(rows) < 3:
        return _laid_out([], np.zeros((0, 2)))
    centred = scenes - scenes.mean(axis=0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(rows), 2))
    n = min(2, len(axes))
    flat[:, :n] = centred @ axes[:n].T
    share = float((values[:n] ** 2).sum() / max(float((values**2).sum()), 1e-30))
    names = [index.episode_ids[i] for i in rows]
    told = _laid_out(names, flat)
    alone = nearest(scenes, scenes, not_itself=True)
    order = np.argsort(-alone, kind="stable")[:N_NEXT]
    usual = float(np.median(alone))
    lonely = [{"id": names[i], "away": _plain(alone[i])} for i in order if alone[i] > 1.5 * usual]
    return told | {"usual": _plain(usual), "lonely": lonely, "share": round(share, 3)}


def nearest(places: F64, points: F64, not_itself: bool = False) -> F64:
    """Distance of each place (n, d) to the nearest point (m, d)."""
    out = np.empty(len(places))
    squares = (points**2).sum(axis=1)
    for first in range(0, len(places), AT_ONCE):
        rows = places[first : first + AT_ONCE]
        apart = (rows**2).sum(axis=1)[:, None] + squares - 2 * rows @ points.T
        if not_itself:
            apart[np.arange(len(rows)), np.arange(first, first + len(rows))] = np.inf
        out[first : first + AT_ONCE] = np.sqrt(np.maximum(apart.min(axis=1), 0.0))
    return out


def within(places: F64, points: F64) -> NDArray[np.bool_]:
    """True for places (n, 2) in the convex hull of the points."""
    ordered = np.unique(points, axis=0).tolist()
    hull: list[list[float]] = []
    for way in (ordered, ordered[::-1]):
        side: list[list[float]] = []
        for p in way:
            while len(side) > 1 and _cross(side[-2], side[-1], p) <= 0:
                side.pop()
            side.append(p)
        hull += side[:-1]
    inside = np.ones(len(places), np.bool_)
    for a, b in zip(hull, [*hull[1:], hull[0]], strict=True):
        inside &= (b[0] - a[0]) * (places[:, 1] - a[1]) - (b[1] - a[1]) * (places[:, 0] - a[0]) >= 0
    return inside


def _cross(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _usual(points: F64) -> float | None:
    """The median distance of a start to its nearest neighbour."""
    if len(points) < 2:
        return None
    distinct = np.unique(points, axis=0)  # several tasks may have the same start
    if len(distinct) < 2:
        return None
    some = distinct[:: max(1, len(distinct) // 2000)]
    return _plain(float(np.median(nearest(some, some, not_itself=True))))


def _plain(value: float) -> float:
    return float(f"{value:.4g}")
