from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from recap.errors import InputError
from recap.evaluation.comparison import compare, render_comparison
from recap.evaluation.spec import EvalSpec
from recap.types import EpisodeResult

SPEC = EvalSpec("one", angles=(0.0, 45.0), seeds=(1, 2, 3))


def results(passed: dict[str, str], seeds: tuple[int, ...] = SPEC.seeds) -> list[EpisodeResult]:
    """One letter a seed: `+` past both thresholds, `~` past the first, `-` neither, `!` an error."""
    out = []
    for task, letters in passed.items():
        for seed, letter in zip(seeds, letters, strict=True):
            steps = {"0.85": 7 if letter in "+~" else None, "0.95": 9 if letter == "+" else None}
            outcome = {"+": "success", "!": "error"}.get(letter, "failure")
            out.append(EpisodeResult(task, seed, outcome, 9, 0.5, steps))  # type: ignore[arg-type]
    return out


A = (SPEC, results({"0": "+~-", "+45": "+-+"}))
B = (replace(SPEC, agent="two"), results({"0": "+++", "+45": "-!+"}))


def test_counts_by_hand() -> None:
    comparison = compare(A, B)
    assert comparison.config_differences == {"agent": ("one", "two")}
    assert (comparison.n_errors, comparison.n_unpaired) == (1, 0)
    late = comparison.thresholds["0.95"]
    assert list(late) == ["0", "+45", "seen", "unseen", "all"]
    assert [getattr(late["0"], c) for c in ("both", "only_a", "only_b", "neither")] == [1, 0, 2, 0]
    assert [getattr(late["all"], c) for c in ("both", "only_a", "only_b", "neither")] == [2, 1, 2, 0]
    assert late["all"].difference == pytest.approx(1 / 5)
    assert comparison.thresholds["0.85"]["0"].difference == pytest.approx(1 / 3)
    plain = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert plain["b_minus_a"]["0.95"]["+45"]["only_a"] == 1


def test_only_shared_trials_are_paired() -> None:
    fewer = replace(SPEC, angles=(45.0,), seeds=(2, 3, 4))
    comparison = compare(A, (fewer, results({"+45": "++-"}, fewer.seeds)))
    assert comparison.thresholds["0.95"]["all"].n == 2
    assert comparison.n_unpaired == 5
    assert comparison.config_differences["angles"] == ([0.0, 45.0], [45.0])


def test_nothing_shared_is_refused() -> None:
    with pytest.raises(InputError, match="share no goal or task and seed"):
        compare(A, (replace(SPEC, angles=(7.0,)), results({"+7": "+++"})))
    with pytest.raises(InputError, match="share no success threshold"):
        compare(A, (replace(SPEC, thresholds=(0.5,)), B[1]))


def test_the_table_fits_in_80_columns() -> None:
    text = io.StringIO()
    Console(file=text, width=80).print(render_comparison(compare(A, B)))
    assert max(map(len, text.getvalue().splitlines())) <= 80
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["0", "3", "33", "100", "+67", "[+0,", "+100]", "1", "0", "2", "0"] in rows
    assert "agent: one in A, two in B" in text.getvalue()
    assert "Pairs left out because one of them is an error: 1." in text.getvalue()
