"""The list of past evaluations."""

import json
from pathlib import Path

import pytest

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.run_directory import open_run
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.summary import summarise
from recap.types import EpisodeResult
from recap_apps.studio.results import Results

SPEC = EvalSpec(
    AgentConfig("hold"),
    "pusht",
    {"pusher": "triangle"},
    tasks=("-30", "30"),
    seeds=tuple(range(500, 510)),
)


def write_run(path: Path, n_solved: int = 6) -> None:
    """Writes an evaluation that solves the first starts of each goal after 40, 50, … steps."""
    with open_run(path, SPEC) as run:
        for trial in run.missing():
            i = trial.seed - 500
            first = {"0.85": 40 + 10 * i if i < n_solved else None, "0.95": None}
            run.append(EpisodeResult(trial.task, trial.seed, "failure", 300, {"coverage": 0.9}, first))
        results = run.sorted_results()
        run.write_info(summarise(SPEC, results).to_json())


def test_an_evaluation_is_listed_with_confidence_intervals(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "first")
    (told,) = Results(tmp_path).list()
    assert told["name"] == "a/first"
    assert told["agent"] == "hold"
    assert (told["env"], told["pusher"], told["block"]) == ("pusht", "triangle", "tee")
    assert told["n"] == 20
    everything = told["groups"][-1]["success"]["0.85"]
    assert everything["successes"] == 12
    assert everything["low"] < 0.6 < everything["high"]
    assert [task["name"] for task in told["tasks"]] == ["-30", "+30"]


def test_a_success_curve_rises_to_the_rate_within_its_band(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (told,) = Results(tmp_path).list()
    curve = told["curves"]["0.85"]
    shares = [share for _, share, _, _ in curve]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 0.6
    assert all(low <= share <= high for _, share, low, high in curve)
    assert {step: share for step, share, _, _ in curve}[50] == 0.2


def test_evaluations_are_listed_newest_first_and_reread_when_changed(tmp_path: Path) -> None:
    import os

    write_run(tmp_path / "old")
    write_run(tmp_path / "new")
    os.utime(tmp_path / "old" / "eval_info.json", (1, 1))
    results = Results(tmp_path)
    assert [run["name"] for run in results.list()] == ["new", "old"]
    info = json.loads((tmp_path / "new" / "eval_info.json").read_text())
    info["episodes"][0]["first_step"]["0.85"] = None
    (tmp_path / "new" / "eval_info.json").write_text(json.dumps(info))
    assert results.list()[0]["groups"][-1]["success"]["0.85"]["successes"] == 11


def test_an_evaluation_of_another_world_is_listed_too(tmp_path: Path) -> None:
    spec = EvalSpec(AgentConfig("hold"), "dualarm", tasks=("lift_pot", "move_can_pot"), seeds=(500,))
    with open_run(tmp_path / "arms", spec) as run:
        for trial in run.missing():
            first = {threshold_key(t): None for t in spec.thresholds}
            run.append(EpisodeResult(trial.task, trial.seed, "failure", 9, {"success": 0.0}, first))
        run.write_info(summarise(spec, run.sorted_results()).to_json())
    (told,) = Results(tmp_path).list()
    assert (told["env"], told["pusher"], told["block"]) == ("dualarm", "", "")
    assert [task["name"] for task in told["tasks"]] == list(spec.task_keys)
    steps = [step for step, *_ in told["curves"][threshold_key(spec.thresholds[0])]]
    assert max(map(spec.steps_of, spec.tasks)) - 10 < steps[-1]


def test_an_unreadable_evaluation_has_an_error_and_others_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "eval_info.json").write_text("{}")
    told = {run["name"]: run for run in Results(tmp_path).list()}
    assert "error" not in told["good"]
    assert "not an evaluation" in told["bad"]["error"]


def test_only_reports_beside_an_evaluation_are_served(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    page = tmp_path / "runs" / "one" / "report.html"
    page.write_text("<h1>report</h1>")
    (tmp_path / "runs" / "loose.html").write_text("no")
    (tmp_path / "secret.html").write_text("no")
    results = Results(tmp_path / "runs")
    assert results.list()[0]["reports"] == ["one/report.html"]
    assert results.report("one/report.html") == page.resolve()
    for path in (
        "../secret.html",
        "loose.html",
        "one/eval_info.json",
        "one/other.html",
        "/etc/passwd",
        "one",
    ):
        with pytest.raises(InputError, match="no report"):
            results.report(path)


def test_a_missing_folder_has_no_results(tmp_path: Path) -> None:
    assert Results(tmp_path / "nowhere").list() == []
