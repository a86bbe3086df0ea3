"""Results of one evaluation, or of two paired by start: rates with intervals, as tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recap.assembly import EXPERT, HOLD, REPLAY
from recap.errors import InputError
from recap.evaluation.settings import Differences, differences, settings_text
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import (
    Interval,
    PairedDifference,
    paired_difference,
    rate_interval,
    seed_table,
    wilson,
)
from recap.evaluation.worlds import SUCCESS
from recap.types import EpisodeResult

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

INTERVAL = "95 %: Wilson, widened where episodes share a start"
GROUPS = ("seen", "unseen", "all")
WITHOUT_SETTINGS = (REPLAY, EXPERT, HOLD)  # agents without settings that a control could use


@dataclass(frozen=True, slots=True)
class Rate:
    """k successes in n episodes without errors, with a 95 % interval."""

    k: int
    n: int
    interval: Interval

    @property
    def value(self) -> float:
        """The fraction; nan without episodes."""
        return self.k / self.n if self.n else math.nan

    def to_json(self) -> dict[str, Any]:
        """JSON values; null if unknown."""
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
    """Counts over some of the episodes."""

    name: str  # a task's key, or "seen", "unseen", "all"
    rates: dict[str, Rate]  # by threshold
    n_errors: int
    mean_steps: float  # of the episodes without errors
    free: dict[str, list[str]]  # threshold -> episodes that start above it, as "+45:48"
    mean_held: float = 0.0  # steps per episode in which a progress gate held the chunk

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "success": {key: rate.to_json() for key, rate in self.rates.items()},
            "errors": self.n_errors,
            "mean_steps": None if math.isnan(self.mean_steps) else self.mean_steps,
            "already_past_at_start": self.free,
            **({"mean_held": self.mean_held} if self.mean_held else {}),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """All reported results of an evaluation."""

    tasks: list[Group]  # one per task
    groups: list[Group]  # seen and unseen, if the suite has such tasks, and all
    wall_s: float  # of this call; not in the JSON, which does not depend on how the work was spread
    n_run: int  # episodes run by this call; the others had results before
    titles: Mapping[str, str] = field(default_factory=dict)  # task -> its title

    @property
    def n_errors(self) -> int:
        """Number of episodes that ended in an error."""
        return self.groups[-1].n_errors

    def to_json(self) -> dict[str, Any]:
        """The summary of `eval_info.json`."""
        return {
            "by_task": {group.name: group.to_json() for group in self.tasks},
            **{group.name: group.to_json() for group in self.groups},
            "interval": INTERVAL,
        }


def succeeded(result: EpisodeResult, threshold: str) -> bool:
    """True if the metric ever passed the threshold; only valid for episodes without errors."""
    return result.first_step[threshold] is not None


def summarise(
    spec: EvalSpec, results: Sequence[EpisodeResult], wall_s: float = 0.0, n_run: int = 0
) -> Summary:
    """Count the results by task, then over the seen, the unseen and all tasks."""
    thresholds = [threshold_key(t) for t in spec.thresholds]
    seen = spec.seen_keys
    tasks = [_group(key, [r for r in results if r.task == key], thresholds) for key in spec.task_keys]
    members = {
        "seen": [r for r in results if r.task in seen],
        "unseen": [r for r in results if seen and r.task not in seen],  # none if no task is seen
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


def number_table(heads: Sequence[str], rows: Iterable[Sequence[str]], space: int = 2) -> Table:
    """A table with names on the left and numbers on the right; an empty row is a gap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, space, 0, 0))
    for number, name in enumerate(heads):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired differences, B minus A, and facts that are needed to interpret them."""

    agents: tuple[str, str]
    settings: Differences
    thresholds: dict[str, dict[str, PairedDifference]]  # threshold -> task or group -> difference
    n_unpaired: int  # trials that only one run has
    n_errors: int  # shared trials left out because one of the two is an error

    def to_json(self) -> dict[str, Any]:
        """JSON values; null if unknown."""
        return {
            "settings_that_differ": {k: {"a": a, "b": b} for k, (a, b) in self.settings.settings.items()},
            "equal_but_for_the_network": self.settings.equal_but_for_the_network,
            "unpaired": self.n_unpaired,
            "errors": self.n_errors,
            "b_minus_a": {
                threshold: {name: _to_json(pairs) for name, pairs in rows.items()}
                for threshold, rows in self.thresholds.items()
            },
        }


def _to_json(pairs: PairedDifference) -> dict[str, Any]:
    difference, low, high = (
        None if math.isnan(x) else x for x in (pairs.difference, pairs.interval.low, pairs.interval.high)
    )
    counts = {"both": pairs.both, "only_a": pairs.only_a, "only_b": pairs.only_b, "neither": pairs.neither}
    return {"n": pairs.n, "difference": difference, "low": low, "high": high, **counts}


def compare(
    a: tuple[EvalSpec, Sequence[EpisodeResult]],
    b: tuple[EvalSpec, Sequence[EpisodeResult]],
    settings: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None),
) -> Comparison:
    """Pair two evaluations over their shared trials.

    Args:
        settings: the agent's settings of each, from its provenance.
    """
    spec_a, spec_b = a[0], b[0]
    of_a = {(r.task, r.seed): r for r in a[1]}
    of_b = {(r.task, r.seed): r for r in b[1]}
    shared = [key for key in of_a if key in of_b]
    thresholds = [threshold_key(t) for t in spec_a.thresholds if t in spec_b.thresholds]
    if not shared:
        raise InputError("the two evaluations share no task and seed: compare runs of the same trials")
    if not thresholds:
        raise InputError("the two evaluations share no success threshold: use the same for both")
    valid = [key for key in shared if "error" not in (of_a[key].outcome, of_b[key].outcome)]
    tasks = [key for key in spec_a.task_keys if key in {task for task, _ in shared}]
    seen = spec_a.seen_keys
    rows: dict[str, list[str]] = {task: [task] for task in tasks}
    groups = ([t for t in tasks if t in seen], [t for t in tasks if seen and t not in seen], tasks)
    rows.update({name: members for name, members in zip(GROUPS, groups, strict=True) if members})
    return Comparison(
        agents=(spec_a.agent.policy, spec_b.agent.policy),
        settings=differences((spec_a, settings[0]), (spec_b, settings[1])),
        thresholds={
            threshold: {
                name: paired_difference(
                    {key: succeeded(of_a[key], threshold) for key in valid if key[0] in members},
                    {key: succeeded(of_b[key], threshold) for key in valid if key[0] in members},
                )
                for name, members in rows.items()
            }
            for threshold in thresholds
        },
        n_unpaired=len(of_a) + len(of_b) - 2 * len(shared),
        n_errors=len(shared) - len(valid),
    )


def render_comparison(comparison: Comparison) -> RenderableType:
    """The comparison for a terminal of 80 columns, or a file."""
    from rich.console import Group as Lines

    columns = ("task", "n", "A", "B", "B − A", "both", "only A", "only B", "neither")
    parts: list[Any] = ["", *_settings(comparison)]
    for threshold, rows in comparison.thresholds.items():
        above = "" if threshold == threshold_key(SUCCESS) else f" > {threshold}"
        parts.append(f"\nSuccess{above} in per cent, B − A with its 95 % interval over start seeds")
        tasks = [_row(name, pairs) for name, pairs in rows.items() if name not in GROUPS]
        groups = [_row(name, pairs) for name, pairs in rows.items() if name in GROUPS]
        parts.append(number_table(columns, [*tasks, [], *groups], 1))
    parts.append("")
    if comparison.n_unpaired:
        parts.append(f"Episodes left out because the other run lacks them: {comparison.n_unpaired}.")
    if comparison.n_errors:
        parts.append(f"Pairs left out because one of them is an error: {comparison.n_errors}.")
    return Lines(*parts)


def _row(name: str, pairs: PairedDifference) -> list[str]:
    counts = [str(c) for c in (pairs.both, pairs.only_a, pairs.only_b, pairs.neither)]
    if not pairs.n:
        return [name, "0", "–", "–", "–", *counts]
    rate_a, rate_b = (pairs.both + pairs.only_a) / pairs.n, (pairs.both + pairs.only_b) / pairs.n
    difference = f"{100 * pairs.difference:+.0f} {pairs.interval.in_points()}"
    return [name, str(pairs.n), f"{100 * rate_a:.0f}", f"{100 * rate_b:.0f}", difference, *counts]


def _settings(comparison: Comparison) -> Iterable[Any]:
    """Every setting that differs, and whether the comparison is fair."""
    from rich.markup import escape
    from rich.table import Table

    found = comparison.settings
    if found.settings:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("setting that differs", "A", "B"):
            table.add_column(column, overflow="fold")
        for key, (a, b) in found.settings.items():
            table.add_row(*(escape(settings_text(value)) for value in (key, a, b)))
        yield table
        yield ""
    if not found.recorded:
        yield "One of the two has no record of what its agent was run with: run it again to compare settings."
    elif found.equal_but_for_the_network:
        yield "Equal settings: pool, poses, retrieval and replanning interval are the same in both."
    else:
        names = escape(", ".join(map(settings_text, found.of_the_run)))
        yield f"Not equal settings: {names} differ, besides what the agents are."
        policy = next((name for name in comparison.agents if name not in WITHOUT_SETTINGS), None)
        if REPLAY in comparison.agents and policy is not None:
            yield f"An equal control: recap eval replay --settings-of {escape(policy)}, all else as here."
