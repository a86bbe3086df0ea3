"""Two evaluations side by side, paired by goal and start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recap.errors import InputError
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import PairedDifference, paired_difference
from recap.evaluation.summary import succeeded
from recap.evaluation.worlds import SUCCESS
from recap.types import EpisodeResult

if TYPE_CHECKING:
    from rich.console import RenderableType

GROUPS = ("seen", "unseen", "all")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired differences, B less A, and what one must know to read them."""

    config_differences: dict[str, tuple[Any, Any]]  # key -> value of A, value of B
    thresholds: dict[str, dict[str, PairedDifference]]  # threshold -> angle or group -> difference
    n_unpaired: int  # trials that only one of the two has
    n_errors: int  # shared trials left out because one of the two ended in an error

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where nothing is known."""
        return {
            "config_differences": {k: {"a": a, "b": b} for k, (a, b) in self.config_differences.items()},
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
    a: tuple[EvalSpec, Sequence[EpisodeResult]], b: tuple[EvalSpec, Sequence[EpisodeResult]]
) -> Comparison:
    """Pair two evaluations over the trials they share."""
    spec_a, spec_b = a[0], b[0]
    of_a = {(r.task, r.seed): r for r in a[1]}
    of_b = {(r.task, r.seed): r for r in b[1]}
    shared = [key for key in of_a if key in of_b]
    thresholds = [threshold_key(t) for t in spec_a.thresholds if t in spec_b.thresholds]
    if not shared:
        raise InputError(
            "the two evaluations share no goal or task and seed: compare runs of the same trials"
        )
    if not thresholds:
        raise InputError("the two evaluations share no success threshold: evaluate both at the same one")
    valid = [key for key in shared if "error" not in (of_a[key].outcome, of_b[key].outcome)]
    tasks = [key for key in spec_a.task_keys if key in {task for task, _ in shared}]
    seen = spec_a.seen_keys
    rows: dict[str, list[str]] = {task: [task] for task in tasks}
    groups = ([t for t in tasks if t in seen], [t for t in tasks if t not in seen], tasks)
    rows.update({name: members for name, members in zip(GROUPS, groups, strict=True) if members})
    values_a, values_b = spec_a.to_json(), spec_b.to_json()
    return Comparison(
        config_differences={k: (v, values_b.get(k)) for k, v in values_a.items() if v != values_b.get(k)},
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
    from rich.table import Table

    parts: list[Any] = []
    for key, (a, b) in comparison.config_differences.items():
        parts.append(f"{key}: {_short(a)} in A, {_short(b)} in B")
    for threshold, rows in comparison.thresholds.items():
        above = "" if threshold == threshold_key(SUCCESS) else f" > {threshold}"
        parts.append(f"\nSuccess{above} in per cent, B − A with its 95 % interval over start seeds")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("goal", no_wrap=True)
        for column in ("n", "A", "B", "B − A", "both", "only A", "only B", "neither"):
            table.add_column(column, justify="right", no_wrap=True)
        first_group = next(name for name in rows if name in GROUPS)
        for name, pairs in rows.items():
            if name == first_group:
                table.add_row()
            table.add_row(*_row(name, pairs))
        parts.append(table)
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
    low, high = pairs.interval
    difference = f"{100 * pairs.difference:+.0f} [{100 * low:+.0f}, {100 * high:+.0f}]"
    return [name, str(pairs.n), f"{100 * rate_a:.0f}", f"{100 * rate_b:.0f}", difference, *counts]


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 30 else f"{text[:24]}… ({len(value) if isinstance(value, list) else '…'})"
