"""Kept outcomes of episodes, and comparisons of policies with equal controls only."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from pathlib import Path

import controls
import controls_page
import pytest
from toy_report import pusht, results, write_run

from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import provenance
from recap.evaluation.summary import succeeded

SPEC = pusht("pusht-small", {"pusher": "triangle"}, tasks=("-30", "0"), seeds=tuple(range(500, 506)))
SAME = {"n_action_steps": 8, "retrieval": "pusht-contact"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OUTCOMES", "CONTROLS", "ROWS"):
        monkeypatch.setattr(controls, name, tmp_path / f"{name}.json")
    row = {"part": "p", "what": "w", "policy": ["plan/ours"], "same": "plan/same", "plain": None}
    (tmp_path / "ROWS.json").write_text(json.dumps([row]))
    (tmp_path / "controls_report.json").write_text(json.dumps({"title": "Kept"}))
    return tmp_path


def write(place: Path, name: str, agent: str, settings: dict[str, object], rate: float) -> None:
    spec = SPEC.with_agent(policy=agent)
    write_run(place / "plan/evaluations" / name, spec, results(spec, rate, 3), settings=settings)


def test_kept_outcomes_equal_the_results_of_the_run(place: Path) -> None:
    write(place, "ours", "pusht-small", {**SAME, "policy.residual": True}, 0.8)
    controls.keep([place / "plan"])
    entry = json.loads((place / "OUTCOMES.json").read_text())["runs"]["plan/ours"]
    assert {len(digits) for digits in entry["outcomes"].values()} == {6}
    _, kept = controls.unpack(entry)
    _, were = read_info(place / "plan/evaluations/ours")
    for threshold in ("0.85", "0.95"):
        assert {(r.task, r.seed): succeeded(r, threshold) for r in kept} == {
            (r.task, r.seed): succeeded(r, threshold) for r in were
        }
    controls.restore(place / "again")
    spec, restored = read_info(place / "again/plan/ours")
    assert spec == SPEC
    assert {(r.task, r.seed, r.outcome) for r in restored} == {(r.task, r.seed, r.outcome) for r in kept}


def test_a_control_with_the_policys_settings_is_paired_with_it(place: Path) -> None:
    write(place, "ours", "pusht-small", {**SAME, "policy.residual": True}, 0.9)
    write(place, "same", "replay", SAME, 0.3)
    controls.keep([place / "plan"])
    controls.compare()
    (row,) = json.loads((place / "CONTROLS.json").read_text())["rows"]
    cell = row["thresholds"]["0.85"]
    assert cell["policy"]["n"] == cell["same"]["n"] == 12
    difference = (cell["policy"]["successes"][0] - cell["same"]["successes"][0]) / 12
    assert cell["over_same"]["difference"] == pytest.approx(difference)


@pytest.mark.parametrize("change", [{"n_action_steps": 4}, {"retrieval.subtrajectories": False}])
def test_a_control_with_other_settings_is_an_error(place: Path, change: dict[str, object]) -> None:
    write(place, "ours", "pusht-small", {**SAME, "policy.residual": True}, 0.9)
    write(place, "same", "replay", {**SAME, **change}, 0.3)
    controls.keep([place / "plan"])
    with pytest.raises(InputError, match=f"no equal control of plan/ours: {next(iter(change))} differ"):
        controls.compare()


def test_every_comparison_in_the_results_has_an_equal_control() -> None:
    body = controls.read_outcomes()
    rows = [controls.Row(**entry) for entry in json.loads(controls.ROWS.read_text("utf-8"))]
    assert len(rows) > 50
    for row in rows:
        controls.check(row, body["runs"], body["settings"])


def test_records_of_older_versions_are_read_as_current_specs() -> None:
    runs = controls.read_outcomes()["runs"]
    spec, results = controls.unpack(runs["beyond/contact-noise-2-same"])
    again = pusht(
        "replay", {"pusher": "triangle"}, seeds=tuple(range(42, 62)), pose_noise=(2.0, 2.0)
    ).with_agent(settings_of="pusht-small")
    assert spec == again
    assert len(results) == 9 * 20
    spec, _ = controls.unpack(runs["baselines/replay-oracle-same"])
    asked = {"retrieval": "world-oracle", "subtrajectories": True, "n_action_steps": 4}
    assert spec == pusht("replay", {"pusher": "triangle"}).with_agent(**asked)
    spec, _ = controls.unpack(runs["arms/run-dualarm-small"])
    assert (spec.env, spec.options["embodiment"], spec.thresholds) == ("dualarm", "viperx", (0.5,))
    assert controls.today(spec.to_json()) == spec.to_json(), "current specs stay unchanged"


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("beyond/contact-noise-0-same", None),
        ("beyond/aligned-noise-0", None),
        ("world/single-same", None),
        ("baselines/replay-oracle-same", None),
        ("arms/run-replay_--settings-of_dualarm-small", "dualarm-debug-ur5e"),
    ],
)
def test_a_control_run_now_has_the_settings_of_its_earlier_record(name: str, pool: str | None) -> None:
    body = controls.read_outcomes()
    entry = body["runs"][name]
    spec, _ = controls.unpack(entry)
    today = provenance(make_agent(replace(spec, pool=pool)))["settings"]
    assert json.loads(json.dumps(today)) == body["settings"][entry["settings"]]


def test_the_page_starts_with_the_summary_and_contains_every_comparison() -> None:
    html = controls_page.PAGE.read_text("utf-8")
    rows = json.loads(controls.CONTROLS.read_text("utf-8"))["rows"]
    assert html.index('id="c0"') < html.index('id="c1"') < html.index('id="s0"')
    for row in rows:
        for cell in row["thresholds"].values():
            assert cell["over_same"]["text"] in html
    for question, *_ in json.loads(controls_page.SUMMARY.read_text("utf-8")):
        assert escape(question) in html
