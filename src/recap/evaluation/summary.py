"""What came out: success by task and in groups, each with its interval, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import Interval, rate_interval, seed_table, wilson
from recap.evaluation.tables import number_table
from recap.evaluation.worlds import SUCCESS
from recap.types import EpisodeResult

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL = "95 %: Wilson; episodes that share a start count as fewer than they are"


@dataclass(frozen=True, slots=True)
class Rate:
    """k successes among n episodes that were no errors, with a 95 % interval."""

    k: int
    n: int
    interval: Interval

    @property
    def value(self) -> float:
        """The fraction; nan without episodes."""
        return self.k / self.n if self.n else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where nothing is known."""
        low, high = (None if math.isnan(bound) else bound for bound in self.interval)
        return {
            "successes": self.k,
            "n": self.n,
            "rate": self.value if self.n else None,
            "low": low,
            "high": high,
        }

    def __str__(self) -> str:
        if not self.n:
            return "–"
        return f"{self.k}/{self.n} {self.value:4.0%} {self.interval.in_per_cent()}"


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the episodes, counted."""

    name: str  # a task's key, or "seen", "unseen", "all"
    rates: dict[str, Rate]  # by threshold
    n_errors: int
    mean_steps: float  # of the episodes that were no errors
    free: dict[str, list[str]]  # threshold -> the episodes that start past it, as "+45:48"
    mean_held: float = 0.0  # steps of an episode in which a progress gate held the chunk

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "success": {key: rate.to_json() for key, rate in self.rates.items()},
            "errors": self.n_errors,
            "mean_steps": None if math.isnan(self.mean_steps) else self.mean_steps,
            "already_past_at_start": self.free,
            **({"mean_held": self.mean_held} if self.mean_held else {}),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that is reported of an evaluation."""

    tasks: list[Group]  # one a task
    groups: list[Group]  # seen and unseen where there are such tasks, and all
    wall_s: float  # of this call; not in the JSON, which is the same however the work was spread
    n_run: int  # episodes run by this call; the others were there before
    titles: Mapping[str, str] = field(default_factory=dict)  # tasks in words

    @property
    def n_errors(self) -> int:
        """How many episodes say nothing."""
        return self.groups[-1].n_errors

    def to_json(self) -> dict[str, Any]:
        """The summary of `eval_info.json`."""
        return {
            "by_task": {group.name: group.to_json() for group in self.tasks},
            **{group.name: group.to_json() for group in self.groups},
            "interval": INTERVAL,
        }


def succeeded(result: EpisodeResult, threshold: str) -> bool:
    """Whether the metric was ever past the threshold; ask only of episodes that were no errors."""
    return result.first_step[threshold] is not None


def summarise(
    spec: EvalSpec, results: Sequence[EpisodeResult], wall_s: float = 0.0, n_run: int = 0
) -> Summary:
    """Count the results by task, then over the seen ones, the unseen ones and all."""
    thresholds = [threshold_key(t) for t in spec.thresholds]
    seen = spec.seen_keys
    tasks = [_group(key, [r for r in results if r.task == key], thresholds) for key in spec.task_keys]
    members = {
        "seen": [r for r in results if r.task in seen],
        "unseen": [r for r in results if seen and r.task not in seen],  # none where nobody says
        "all": results,
    }
    groups = [_group(name, rs, thresholds) for name, rs in members.items() if rs]
    titles = {key: spec.suite.title(key) for key in spec.task_keys}
    return Summary(tasks, groups, wall_s, n_run, titles)


def _group(name: str, results: Sequence[EpisodeResult], thresholds: Iterable[str]) -> Group:
    valid = [r for r in results if r.outcome != "error"]
    several_tasks = len({r.task for r in results}) > 1
    rates, free = {}, {}
    for threshold in thresholds:
        k = sum(succeeded(r, threshold) for r in valid)
        won = {(r.task, r.seed): float(succeeded(r, threshold)) for r in valid}
        interval = rate_interval(seed_table(won)[None]) if several_tasks else wilson(k, len(valid))
        rates[threshold] = Rate(k, len(valid), interval)
        free[threshold] = [f"{r.task}:{r.seed}" for r in results if r.first_step[threshold] == 0]
    steps = sum(r.steps for r in valid) / len(valid) if valid else math.nan
    held = sum(r.held for r in valid) / len(valid) if valid else 0.0
    return Group(name, rates, len(results) - len(valid), steps, free, held)


def render_summary(summary: Summary) -> RenderableType:
    """The summary for a terminal of 80 columns, or a file."""
    from rich.console import Group as Lines

    thresholds = list(summary.groups[-1].rates)
    above = {t: "" if t == threshold_key(SUCCESS) else f" > {t}" for t in thresholds}
    heads = ("task", *(f"success{above[t]} [95 %]" for t in thresholds), "errors", "mean steps")

    def row(name: str, group: Group) -> list[str]:
        steps = "–" if math.isnan(group.mean_steps) else f"{group.mean_steps:.0f}"
        return [name, *(str(group.rates[t]) for t in thresholds), str(group.n_errors), steps]

    tasks = [row(summary.titles.get(group.name, group.name), group) for group in summary.tasks]
    groups = [row(group.name, group) for group in summary.groups]
    return Lines(number_table(heads, [*tasks, [], *groups]), "", *_notes(summary))


def _notes(summary: Summary) -> Iterable[str]:
    yield f"Intervals {INTERVAL}."
    everything = summary.groups[-1]
    for threshold, free in everything.free.items():
        if free:
            some = ", ".join(free[:5]) + (", …" if len(free) > 5 else "")
            yield f"Free successes at {threshold}, already past it at the start: {len(free)} ({some})."
    if summary.n_errors:
        yield f"Episodes that ended in an error: {summary.n_errors}; they are in no rate above."
    if everything.mean_held:
        yield f"Held by the progress gate: {everything.mean_held:.0f} steps an episode on average."
    speed = f", {summary.n_run / summary.wall_s:.1f} a second" if summary.n_run and summary.wall_s else ""
    yield f"Ran {summary.n_run} episodes in {summary.wall_s:.1f} s{speed}."
