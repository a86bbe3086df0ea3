"""A whole plan in miniature: collected, trained, fine-tuned, evaluated, reported, and resumed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recap.errors import RunDirectoryError
from recap.policies.checkpoint import from_pretrained
from recap_research.plans import preparing
from recap_research.plans.ledger import Ledger
from recap_research.plans.plan import Plan, read_plan
from recap_research.plans.running import finished_runs, run_plan
from recap_research.plans.toy import shrink
from recap_research.report.page import build_report

SEEDS = {"seeds": [500, 520], "tasks": ["0", "45"]}
STATE = ["policy.inputs=S"]
BODY: dict[str, Any] = {
    "title": "Rehearsal",
    "pools": {"new": {"pusher": "triangle", "angles": [0], "per_angle": 50, "first_seed": 190_000}},
    "evaluate": {"all": SEEDS},
    "runs": [
        {"name": "alone", "preset": "pusht-nano-no-retrieval-block", "label": "no retrieval"},
        {
            "name": "tuned",
            "preset": "pusht-nano-no-retrieval-block",
            "set": ["init={out}/checkpoints/alone-0", "target={out}/pools/new.safetensors"],
        },
        {
            "name": "union",
            "preset": "pusht-nano-co-training",
            "set": STATE,
            "seeds": [0, 1],
            "paper": "co-training",
        },
    ],
    "agents": {"replay": SEEDS},
    "parts": [{"title": "A table", "runs": ["replay", "alone", "tuned", "union"], "reference": "replay"}],
}
RUNS = {"alone-0", "tuned-0", "union-0", "union-1"}


def toy(folder: Path, **changes: Any) -> tuple[Plan, Path]:
    file = folder / "plan.json"
    file.write_text(json.dumps({**BODY, **changes}))
    return shrink(read_plan(file, folder / "out"), folder / "out"), folder / "out"


def carry_out(plan: Plan, out: Path, stop_after: float = 1e9) -> tuple[bool, list[str]]:
    told: list[str] = []
    whole = run_plan(
        plan,
        out,
        workers=0,
        stop_after=stop_after,
        log=lambda *words: told.append(" ".join(map(str, words))),
        device="cpu",
    )
    return whole, told


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The plan stopped before any training, then carried out."""
    folder = tmp_path_factory.mktemp("plan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        plan, out = toy(folder)
        whole, told = carry_out(plan, out, stop_after=0)
        assert not whole
        assert {"no time for alone-0", "no time for tuned-0"} <= set(told)
        assert (out / "evaluations/replay/eval_info.json").exists(), "what needs no training is there"
        whole, told = carry_out(plan, out)
        assert whole, told
        yield folder


def test_every_policy_is_trained_and_evaluated(done: Path) -> None:
    plan, out = toy(done)
    assert finished_runs(plan, out) == RUNS
    for run in plan.runs:
        policy = from_pretrained(out / "checkpoints" / run.name)
        (evaluation,) = run.evaluations
        info = json.loads((out / "evaluations" / evaluation.name / "eval_info.json").read_text("utf-8"))
        assert info["provenance"]["checkpoint"] == policy.fingerprint
        assert [e["outcome"] for e in info["episodes"]] == ["failure"] * 2


def test_a_fine_tune_keeps_the_statistics_and_the_autoencoder(done: Path) -> None:
    base, tuned = (from_pretrained(done / "out/checkpoints" / name) for name in ("alone-0", "tuned-0"))
    assert tuned.fingerprint != base.fingerprint
    for name, values in base.statistics.mean.items():
        assert (tuned.statistics.mean[name] == values).all()
    assert base.encoder is not None
    assert tuned.encoder is not None
    theirs = tuned.encoder.state_dict()
    assert all((value == theirs[key]).all() for key, value in base.encoder.state_dict().items())


def test_the_ledger_has_every_piece(done: Path) -> None:
    rows = Ledger(done / "out").rows()
    trained = {row["run"]: row for row in rows if "run" in row}
    assert set(trained) == RUNS | {"autoencoder block"}
    for row in trained.values():
        assert row["data_s"] >= 0
        assert row["training_s"] > 0
    assert trained["tuned-0"]["demonstrations_s"] > 0
    evaluated = {row["evaluation"] for row in rows if "evaluation" in row}
    assert evaluated == {"replay", *(f"{name}-all" for name in RUNS)}


def test_the_results_are_a_row_each_with_what_they_cost(done: Path) -> None:
    rows = json.loads((done / "out/results/rehearsal.json").read_text("utf-8"))["rows"]
    found = {row["name"]: row for row in rows}
    assert [found[name]["seeds"] for name in ("replay", "alone", "union")] == [1, 1, 2]
    assert found["union"]["success"]["unseen > 0.85"]["models"] == [0.0, 0.0]
    assert found["union"]["pool_demonstrations_s"] > found["union"]["target_demonstrations_s"] > 0
    assert found["replay"]["gpu_s"] is None
    assert found["tuned"]["gpu_s"] > 0
    table = (done / "out/results/rehearsal.md").read_text("utf-8")
    assert "| no retrieval | 1 | 0.0 [0, 80]" in table
    assert "A table: gains" in table
    assert "| union | 2 | +0.0 [" in table
    assert "| `init` | none | alone-0 | none |" in table


def test_one_command_makes_the_page(done: Path) -> None:
    page = build_report(done / "out/evaluations")
    for words in ("Rehearsal", "A table", "2 trainings", "union, seed 1", "no retrieval", "Co-train"):
        assert words in page


def test_another_plan_in_the_same_place_keeps_the_parts_of_the_first(done: Path) -> None:
    parts = [{"title": "Another", "runs": ["replay"]}]
    carry_out(*toy(done, runs=[], parts=parts, title="Second"))
    contents = json.loads((done / "out/evaluations/report.json").read_text("utf-8"))
    assert [part["title"] for part in contents["parts"]][-1] == "Another"
    assert len(contents["parts"]) == 2
    assert contents["title"] == "Evidence", "it is no longer of one plan"


def test_what_is_done_is_not_done_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("loaded again")

    monkeypatch.setattr(preparing, "load_data", never)
    plan, out = toy(done)
    lines = Ledger(out).rows()
    assert carry_out(plan, out)[0]
    assert Ledger(out).rows() == lines
    # Large files may be left behind where everything is evaluated.
    for folder in ("training", "checkpoints", "autoencoders"):
        (out / folder).rename(out.parent / folder)
    try:
        assert finished_runs(plan, out) == RUNS
        assert carry_out(plan, out)[0]
    finally:
        for folder in ("training", "checkpoints", "autoencoders"):
            (out.parent / folder).rename(out / folder)


def test_a_lost_evaluation_is_run_again_without_training(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, out = toy(done)
    folder = out / "evaluations/tuned-0-all"
    kept = (folder / "eval_info.json").read_bytes()
    episodes = (folder / "episodes.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "eval_info.json").unlink()
    (folder / "episodes.jsonl").write_text(episodes[0])
    assert finished_runs(plan, out) == RUNS - {"tuned-0"}
    monkeypatch.setattr(preparing, "load_data", None)
    assert carry_out(plan, out)[0]
    assert (folder / "eval_info.json").read_bytes() == kept, "the same episodes, to the bit"


def test_a_policy_that_another_goes_on_from_is_trained_again_when_it_is_lost(done: Path) -> None:
    plan, out = toy(done)
    lost = ("checkpoints", "evaluations/tuned-0-all")
    for number, folder in enumerate(lost):
        (out / folder).rename(done / f"lost-{number}")
    try:
        assert finished_runs(plan, out) == {"union-0", "union-1"}
    finally:
        for number, folder in enumerate(lost):
            (done / f"lost-{number}").rename(out / folder)


def test_a_name_with_other_settings_is_refused_before_anything_is_done(done: Path) -> None:
    runs = [{**BODY["runs"][0], "set": ["learning_rate=1e-3"]}]
    plan, out = toy(done, runs=runs, parts=[])
    began = time.monotonic()
    with pytest.raises(RunDirectoryError, match="holds a run alone-0 with another learning_rate"):
        carry_out(plan, out)
    assert time.monotonic() - began < 5
