"""State, action and poses of a demonstration as lines to draw, grouped by the robot's features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.body import Body, Feature
from recap.robot import RobotSpec
from recap.types import Episode

MAX_POINTS = 1200  # of a line; longer demonstrations are subsampled
POSES = {3: ("x", "y", "angle"), 4: ("x", "y", "width", "height"), 7: ("x", "y", "z", "qw", "qx", "qy", "qz")}
POSE_UNITS = {3: "rad for the angle", 7: "m"}


def series(episode: Episode, robot: RobotSpec) -> dict[str, Any]:
    """Groups of lines with names and unit; state and action of a feature share a group."""
    every = max(1, math.ceil(len(episode) / MAX_POINTS))
    state = features_of(robot.body, episode.proprio.shape[1], "state")
    action = features_of(robot.act, episode.actions.shape[1], "action")
    groups: dict[tuple[str, int], dict[str, Any]] = {}
    for what, features, values in (("state", state, episode.proprio), ("action", action, episode.actions)):
        own = ", change" if what == "action" and robot.act.changes else ""
        for one in grouped(features, values[::every]):
            lines, name = one.pop("lines"), one["name"] + own
            group = groups.setdefault((name, len(lines)), {**one, "name": name})
            group[what] = lines
    for name, poses in episode.objects.items():
        width = poses.shape[1]
        names = POSES.get(width) or tuple(str(i + 1) for i in range(width))
        unit = POSE_UNITS.get(width, "")
        group = {"name": f"object {name}", "unit": unit, "channels": names, "state": _lines(poses[::every])}
        groups[(f"object {name}", -1)] = group
    steps = list(range(0, len(episode), every))
    return {
        "every": every,
        "steps": steps,
        "time": _rounded(episode.timestamps[::every]),
        "groups": [*groups.values()],
    }


def channels(feature: Feature) -> tuple[str, ...]:
    """Names of a feature's numbers."""
    if feature.kind == "position":
        return ("x", "y", "z")[: feature.size]
    if feature.size == 1:
        return (feature.name.rpartition(".")[2] or feature.name,)
    return tuple(str(i + 1) for i in range(feature.size))


def features_of(body: Body, width: int, what: str) -> Sequence[Feature]:
    """The robot's features if they fit the width; otherwise one scalar feature."""
    if body.size == width:
        return body.features
    return (Feature(what, "scalar", width),) if width else ()


def grouped(features: Sequence[Feature], values: NDArray[Any]) -> list[dict[str, Any]]:
    """Each feature with its numbers as lines."""
    found, at = [], 0
    for feature in features:
        lines = _lines(values[:, at : at + feature.size])
        found.append(
            {"name": feature.name, "unit": feature.unit, "channels": channels(feature), "lines": lines}
        )
        at += feature.size
    return found


def _lines(values: NDArray[Any]) -> list[list[float | None]]:
    """A list for each column."""
    return [_rounded(column) for column in np.asarray(values, np.float64).T]


def _rounded(values: NDArray[Any]) -> list[float | None]:
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]
