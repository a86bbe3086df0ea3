from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from recap.evaluation.statistics import wilson
from recap.evaluation.summary import render_summary, summarise
from recap.types import EpisodeResult, Outcome
from specs import pusht_spec

SPEC = pusht_spec("hold", angles=(45.0, 0.0, -45.0), seeds=(48, 49, 50))


def result(
    task: str, seed: int, early: int | None, late: int | None, outcome: Outcome = "failure"
) -> EpisodeResult:
    steps = 300 if late is None else late
    return EpisodeResult(task, seed, outcome, steps, {"coverage": 0.5}, {"0.85": early, "0.95": late})


RESULTS = [
    result("-45", 48, 10, 20, "success"),
    result("-45", 49, 10, None),
    result("-45", 50, None, None, "error"),
    result("0", 48, None, None),
    result("0", 49, None, None),
    result("0", 50, None, None),
    result("+45", 48, 0, 40, "success"),
    result("+45", 49, 5, 60, "success"),
    result("+45", 50, None, None),
]


def test_the_summary_has_counts_and_intervals_per_task_and_group() -> None:
    summary = summarise(SPEC, RESULTS, wall_s=2.0, n_run=9)
    assert [g.name for g in summary.tasks] == ["-45", "0", "+45"]
    assert [g.name for g in summary.groups] == ["seen", "unseen", "all"]
    left, middle, right = summary.tasks
    assert [(r.k, r.n) for r in left.rates.values()] == [(2, 2), (1, 2)]
    assert left.rates["0.95"].interval == wilson(1, 2)
    assert (left.n_errors, left.mean_steps) == (1, 160)
    assert right.rates["0.85"].value == pytest.approx(2 / 3)
    seen, _, everything = summary.groups
    assert [(r.k, r.n) for r in seen.rates.values()] == [(4, 5), (3, 5)]
    assert [(r.k, r.n) for r in everything.rates.values()] == [(4, 8), (3, 8)]
    assert summary.n_errors == 1
    assert everything.free == {"0.85": ["+45:48"], "0.95": []}
    assert middle.rates["0.85"].interval == wilson(0, 3)


def test_without_variation_the_number_of_starts_bounds_the_interval() -> None:
    always = [result(task, seed, 3, 4, "success") for task in ("-45", "+45") for seed in SPEC.seeds]
    summary = summarise(pusht_spec("hold", angles=(-45.0, 45.0), seeds=SPEC.seeds), always)
    assert [g.name for g in summary.groups] == ["seen", "all"]
    assert summary.groups[0].rates["0.85"].interval == wilson(3, 3)


def test_the_json_summary_does_not_depend_on_the_run_time() -> None:
    plain = json.loads(json.dumps(summarise(SPEC, RESULTS, wall_s=2.0, n_run=9).to_json(), allow_nan=False))
    assert plain == summarise(SPEC, RESULTS, wall_s=5.0).to_json()
    assert plain["by_task"]["+45"]["success"]["0.85"]["successes"] == 2
    assert plain["all"]["errors"] == 1
    assert plain["all"]["already_past_at_start"]["0.85"] == ["+45:48"]


def test_with_only_errors_the_rate_is_null() -> None:
    spec = pusht_spec("hold", angles=(45.0,), seeds=(50,))
    summary = summarise(spec, [result("+45", 50, None, None, "error")])
    plain = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert plain["all"]["success"]["0.95"]["rate"] is None
    assert "–" in shown(render_summary(summary))


def shown(what: object) -> str:
    text = io.StringIO()
    Console(file=text, width=80).print(what)
    return text.getvalue()


def test_the_summary_table_fits_in_80_columns() -> None:
    text = shown(render_summary(summarise(SPEC, RESULTS, wall_s=2.0, n_run=9)))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines()]
    assert ["goal", "+45°", "2/3", "67%", "[20,", "94]", "2/3", "67%", "[20,", "94]", "0", "133"] in rows
    assert "Free successes at 0.85, already past it at the start: 1 (+45:48)." in text
    assert "Episodes that ended in an error: 1; they are in no rate above." in text
    assert "Ran 9 episodes in 2.0 s, 4.5 a second." in text
