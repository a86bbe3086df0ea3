"""Demonstrations that contradict themselves or stop early, found without a rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from recap.body import KINDS, RELATIVE_KINDS
from recap.pool.view import PoolView
from recap.retrieval.config import with_scales
from recap.retrieval.index import make_layout
from recap.retrieval.presets import Retrieval
from recap.robot import RobotSpec
from recap.types import F64, Episode

N_LEAST = 5  # demonstrations of a task; fewer are not compared
LIMIT = 3.0  # robust standard deviations from the median of the task
END_LIMIT, SHORT_LIMIT = 4.0, 1.5  # the same, for how far the end is from other ends, and for the length
FLOOR = 0.2  # least standard deviation of a distance, as a share of the kind's tolerance
FLOOR_OF_DIRECTION = 0.1  # the same for a direction, a mean cosine
MOVES = 4.0  # tolerances that a feature moves in a demonstration, at least, to have a direction


@dataclass(frozen=True, slots=True)
class Outlier:
    """A demonstration that differs from the others of its task."""

    episode_id: str
    reason: str
    deviations: float  # robust standard deviations from the median


def outliers(
    view: PoolView,
    robot: RobotSpec,
    retrieval: Retrieval,
    task_of: Callable[[Episode], str] = attrgetter("task"),
    ids: Sequence[str] | None = None,
) -> list[Outlier]:
    """Demonstrations whose actions their own states do not follow, and those that stop before the task ends.

    An action is compared with the next state, feature by feature. An early end is a last frame far from the
    last frames of the others, as the retrieval measures it, of a demonstration that is also short. Both are
    compared within a task, because trackers and controllers lag alike for all its demonstrations.
    """
    describer, config = retrieval
    descriptors = view.descriptors(describer, ids)
    config = with_scales(config, descriptors) if config.auto_scale else config
    dims = {name: rows.shape[1] for name, rows in descriptors.terms.items()}
    rows = make_layout(dict(config.weights), config.scales, dims).lay_out(descriptors.terms)
    described = [i for i, n in enumerate(np.diff(descriptors.starts)) if n > 0]
    episodes = [view.episode(descriptors.episode_ids[i]) for i in described]
    ends = rows[descriptors.starts[1:][described] - 1]
    groups: dict[str, list[int]] = {}
    for i, episode in enumerate(episodes):
        groups.setdefault(task_of(episode), []).append(i)
    result: list[Outlier] = []
    for members in (np.array(some) for some in groups.values() if len(some) >= N_LEAST):
        some = [episodes[i] for i in members]
        worst: dict[int, Outlier] = {}
        for name, errors, floor in _errors(some, robot):
            for number, deviation in enumerate(_deviations(errors, floor)):
                if deviation > max(LIMIT, worst[number].deviations if number in worst else 0.0):
                    reason = f"states do not follow actions ({name})"
                    worst[number] = Outlier(some[number].id, reason, float(deviation))
        distances = np.linalg.norm(ends[members][:, None] - ends[members][None], axis=2)
        far_end = _deviations(np.median(distances, axis=1), 0.0)
        lengths = _deviations(np.array([len(episode) for episode in some], np.float64), 1.0)
        for number in np.flatnonzero((far_end > END_LIMIT) & (lengths < -SHORT_LIMIT)).tolist():
            worst.setdefault(number, Outlier(some[number].id, "stops early", float(far_end[number])))
        result += worst.values()
    return sorted(result, key=lambda one: -one.deviations)


def _errors(episodes: list[Episode], robot: RobotSpec) -> list[tuple[str, F64, float]]:
    """Feature, an error of each demonstration's actions against its states, least standard deviation.

    The errors are the mean distance from action to next state, and the direction: -1 if the states go where
    the actions want, 1 if they go the opposite way, nan if the feature hardly moves.
    """
    states = {feature.name: at for feature, at in robot.body.spans}
    errors = []
    for feature, at in robot.act.spans:
        tolerance = KINDS[feature.kind].tolerances.get(feature.unit)
        directed = feature.kind in RELATIVE_KINDS
        if tolerance is None or feature.name not in states or (robot.act.changes and not directed):
            continue
        distances, directions = [], []
        for episode in episodes:
            values = episode.proprio[:, states[feature.name]].astype(np.float64)
            steps = np.diff(values, axis=0)
            wanted = episode.actions[: len(steps), at] - (0.0 if robot.act.changes else values[:-1])
            lengths = np.linalg.norm(steps, axis=1)
            product = float(np.linalg.norm(wanted, axis=1) @ lengths)
            moves = product > 0 and lengths.sum() > MOVES * tolerance
            directions.append(-float((wanted * steps).sum()) / product if moves else math.nan)
            distances.append(float(np.linalg.norm(wanted - steps, axis=1).mean()) if len(steps) else 0.0)
        errors.append((feature.name, np.array(distances), FLOOR * tolerance))
        if directed:
            errors.append((feature.name, np.array(directions), FLOOR_OF_DIRECTION))
    return errors


def _deviations(values: F64, floor: float) -> F64:
    """Robust standard deviations above the median; 0 where a value is nan."""
    if np.isnan(values).all():
        return np.zeros(len(values))
    middle = np.nanmedian(values)
    spread = 1.4826 * np.nanmedian(np.abs(values - middle))
    deviations: F64 = np.nan_to_num((values - middle) / max(spread, 0.05 * abs(middle), floor, 1e-9))
    return deviations
