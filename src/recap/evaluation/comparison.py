"""Two evaluations side by side, paired by task and start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recap.assembly import EXPERT, HOLD, REPLAY
from recap.errors import InputError
from recap.evaluation.settings import Differences, differences, settings_text
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import PairedDifference, paired_difference
from recap.evaluation.summary import succeeded
from recap.evaluation.tables import number_table
from recap.evaluation.worlds import SUCCESS
from recap.types import EpisodeResult

if TYPE_CHECKING:
    from rich.console import RenderableType

GROUPS = ("seen", "unseen", "all")
WITHOUT_SETTINGS = (REPLAY, EXPERT, HOLD)  # of their own, to be taken over


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired differences, B less A, and what one must know to read them."""

    agents: tuple[str, str]
    settings: Differences
    thresholds: dict[str, dict[str, PairedDifference]]  # threshold -> task or group -> difference
    n_unpaired: int  # trials that only one of the two has
    n_errors: int  # shared trials left out because one of the two ended in an error

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where nothing is known."""
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
    """Pair two evaluations over the trials they share.

    Args:
        settings: what the agent of each was run with, from its provenance.
    """
    spec_a, spec_b = a[0], b[0]
    of_a = {(r.task, r.seed): r for r in a[1]}
    of_b = {(r.task, r.seed): r for r in b[1]}
    shared = [key for key in of_a if key in of_b]
    thresholds = [threshold_key(t) for t in spec_a.thresholds if t in spec_b.thresholds]
    if not shared:
        raise InputError("the two evaluations share no task and seed: compare runs of the same trials")
    if not thresholds:
        raise InputError("the two evaluations share no success threshold: evaluate both at the same one")
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
    """Every setting in which the two differ, and whether the comparison is an equal one."""
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
        yield "Equal settings: pool, poses, retrieval and look interval are the same in both."
    else:
        names = escape(", ".join(map(settings_text, found.of_the_run)))
        yield f"Not equal settings: {names} differ, besides what the agents are."
        policy = next((name for name in comparison.agents if name not in WITHOUT_SETTINGS), None)
        if REPLAY in comparison.agents and policy is not None:
            yield f"An equal control: recap eval replay --settings-of {escape(policy)}, all else as here."
