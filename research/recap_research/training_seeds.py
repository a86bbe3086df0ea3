"""Success of one recipe over several trainings: means, and gains over another recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import Interval, gain_interval, rate_interval, seed_table
from recap.evaluation.summary import succeeded
from recap.types import F64, EpisodeResult

Rolled = tuple[EvalSpec, Sequence[EpisodeResult]]  # an evaluation's spec and its results


@dataclass(frozen=True)
class Share:
    """A mean success over training seeds, starts and goals."""

    models: tuple[float, ...]
    n: int  # episodes of each training
    interval: Interval

    @property
    def mean(self) -> float:
        """The mean over all trainings."""
        return float(np.mean(self.models))

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} {self.interval.in_per_cent()}"


@dataclass(frozen=True)
class Gain:
    """The difference between the means of two recipes."""

    difference: float
    interval: Interval

    def __str__(self) -> str:
        return f"{100 * self.difference:+.1f} {self.interval.in_points()}"


def tables_of(runs: Sequence[Rolled], group: str, threshold: str) -> list[F64]:
    """Successes (n_starts, n_goals) of each run at the goals of a group; nan for missing episodes.

    Args:
        group: `seen`, `unseen`, `all`, or one goal or task.
    """
    tables: list[F64] = []
    for spec, results in runs:
        goals = {
            "all": {*spec.task_keys},
            "seen": {*spec.task_keys} & spec.seen_keys,
            "unseen": {*spec.task_keys} - spec.seen_keys,
        }.get(group, {group})
        wanted = [r for r in results if r.task in goals and r.outcome != "error"]
        if wanted:
            tables.append(seed_table({(r.task, r.seed): float(succeeded(r, threshold)) for r in wanted}))
    return tables


def share_of(runs: Sequence[Rolled], group: str, threshold: str) -> Share | None:
    """The share of runs of one recipe on the same starts; None if no goal is in the group."""
    tables = tables_of(runs, group, threshold)
    if not tables:
        return None
    models = tuple(float(np.nanmean(table)) for table in tables)
    whole = _stacked(tables)
    interval = rate_interval(tables[0][None] if whole is None else whole)
    return Share(models, int((~np.isnan(tables[0])).sum()), interval)


def gain_of(runs: Sequence[Rolled], reference: Sequence[Rolled], group: str, threshold: str) -> Gain | None:
    """The gain of runs over a reference on the same starts; None if they share no starts."""
    ours, theirs = (_stacked(tables_of(side, group, threshold)) for side in (runs, reference))
    if ours is None or theirs is None or ours.shape[1:] != theirs.shape[1:]:
        return None
    return Gain(float(ours.mean() - theirs.mean()), gain_interval(ours, theirs))


def _stacked(tables: Sequence[F64]) -> F64 | None:
    """(n_models, n_starts, n_goals); None without tables or if the starts differ."""
    if not tables or any(t.shape != tables[0].shape or np.isnan(t).any() for t in tables):
        return None
    return np.stack(tables)
