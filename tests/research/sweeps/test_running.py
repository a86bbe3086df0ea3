"""A complete small sweep: collected, trained, fine-tuned, evaluated, reported and resumed."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recap.errors import RunDirectoryError
from recap.policies.checkpoint import from_pretrained
from recap.training.presets import preset
from recap_research.report.page import build_report
from recap_research.sweep.running import carry_out, describe, is_trained
from recap_research.sweep.sweep import Sweep, pusht
from recap_research.sweep.toy import shrink
from recap_worlds.pusht.collecting import CollectSpec

ROLLED = partial(pusht, seeds=range(500, 520), tasks=["0", "45"])
ALONE = "pusht-nano-no-retrieval-block"
UNION = preset("pusht-nano-co-training", ["policy.inputs=S"])
RUNS = {"alone-0", "tuned-0", "union-0", "union-1"}


def toy(folder: Path, **changes: Any) -> Sweep:
    sweep = Sweep(folder / "out", title="Toy")
    new = sweep.pool("new", CollectSpec("triangle", (0.0,), 50, first_seed=190_000, image_size=0))
    tuned = preset(ALONE, [f"init={sweep.policy('alone-0')}", f"target={new}"])
    sweep.roll_out("replay", ROLLED("replay"))
    sweep.train("alone", preset(ALONE), {"all": ROLLED}, label="no retrieval")
    sweep.train("tuned", tuned, {"all": ROLLED})
    sweep.train("union", UNION, {"all": ROLLED}, (0, 1), paper="co-training")
    sweep.part("A table", ["replay", "alone", "tuned", "union"], "replay")
    shrink(sweep)
    return sweep


def run(sweep: Sweep, deadline: float = 1e12, workers: int = 0) -> tuple[bool, list[str]]:
    said: list[str] = []
    sweep.collect(1, lambda *words: None)
    whole = carry_out(sweep, workers, deadline, lambda *words: said.append(" ".join(map(str, words))), "cpu")
    return whole, said


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a sweep that was stopped before any training, then run to the end."""
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        whole, said = run(toy(folder), deadline=0)
        assert not whole
        assert {"no time for alone-0", "no time for tuned-0", "no time for replay"} <= set(said)
        whole, said = run(toy(folder))
        assert whole, said
        yield folder


@pytest.fixture
def never_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("recap.training.trainer.train", never)


def test_every_policy_is_trained_and_evaluated(done: Path) -> None:
    sweep = toy(done)
    assert {r.name for r in sweep.runs if is_trained(sweep, r)} == RUNS
    for one in sweep.runs:
        policy = from_pretrained(sweep.policy(one.name))
        (evaluation,) = one.evaluations
        info = json.loads((sweep.folder(evaluation) / "eval_info.json").read_text("utf-8"))
        assert info["provenance"]["checkpoint"] == policy.fingerprint
        assert [e["outcome"] for e in info["episodes"]] == ["failure"] * 2
    assert all("done" in line or "trained, evaluated" in line for line in describe(sweep))


def test_fine_tuning_keeps_the_statistics_and_the_autoencoder(done: Path) -> None:
    base, tuned = (from_pretrained(toy(done).policy(name)) for name in ("alone-0", "tuned-0"))
    assert tuned.fingerprint != base.fingerprint
    for name, values in base.statistics.mean.items():
        assert (tuned.statistics.mean[name] == values).all()
    assert base.encoder is not None
    assert tuned.encoder is not None
    theirs = tuned.encoder.state_dict()
    assert all((value == theirs[key]).all() for key, value in base.encoder.state_dict().items())


def test_the_results_have_a_row_with_costs_for_each_agent(done: Path) -> None:
    rows = json.loads((done / "out/results/toy.json").read_text("utf-8"))["rows"]
    found = {row["name"]: row for row in rows}
    assert [found[name]["seeds"] for name in ("replay", "alone", "union")] == [1, 1, 2]
    assert found["union"]["success"]["unseen > 0.85"]["models"] == [0.0, 0.0]
    assert found["union"]["pool_demonstrations_s"] > found["union"]["target_demonstrations_s"] > 0
    assert found["replay"]["gpu_s"] is None
    assert found["tuned"]["gpu_s"] > 0


def test_the_report_page_contains_the_results_of_the_sweep(done: Path) -> None:
    page = build_report(done / "out/evaluations")
    for words in ("Toy", "A table", "2 trainings", "union, seed 1", "no retrieval", "Co-train"):
        assert words in page


def test_a_second_sweep_in_the_same_folder_keeps_the_first_ones_parts(done: Path) -> None:
    sweep = toy(done)
    sweep.title, sweep.parts = "Second", []
    sweep.part("Another", ["replay"])
    run(sweep)
    body = json.loads((done / "out/evaluations/report.json").read_text("utf-8"))
    assert [part["title"] for part in body["parts"]] == ["A table", "Another"]
    assert body["title"] == "Evidence"


@pytest.mark.usefixtures("never_trains")
def test_finished_runs_are_not_repeated_even_without_their_training_files(done: Path) -> None:
    assert run(toy(done))[0]
    (done / "out/training").rename(done / "training")
    try:
        whole, said = run(toy(done))
        assert whole
        assert {f"{name} is done" for name in RUNS} <= set(said)
    finally:
        (done / "training").rename(done / "out/training")


@pytest.mark.usefixtures("never_trains")
def test_a_lost_evaluation_is_repeated_without_training(done: Path) -> None:
    folder = done / "out/evaluations/tuned-0-all"
    kept = (folder / "eval_info.json").read_bytes()
    for workers in (0, 2):
        episodes = (folder / "episodes.jsonl").read_text("utf-8").splitlines(keepends=True)
        (folder / "eval_info.json").unlink()
        (folder / "episodes.jsonl").write_text(episodes[0])
        assert run(toy(done), workers=workers)[0]
        assert (folder / "eval_info.json").read_bytes() == kept, "bitwise the same episodes"


def test_a_lost_base_policy_of_a_fine_tune_is_trained_again(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stop(config: Any, out: Path, **_: object) -> None:
        asked.append(out.name)
        raise KeyboardInterrupt

    monkeypatch.setattr("recap.training.trainer.train", stop)
    lost = ("training", "evaluations/tuned-0-all")
    for number, folder in enumerate(lost):
        (done / "out" / folder).rename(done / f"lost-{number}")
    try:
        with pytest.raises(KeyboardInterrupt):
            run(toy(done))
    finally:
        for number, folder in enumerate(lost):
            (done / f"lost-{number}").rename(done / "out" / folder)
    assert asked == ["alone-0"]


@pytest.mark.usefixtures("never_trains")
def test_a_run_with_other_settings_under_the_same_name_is_an_error_before_the_start(done: Path) -> None:
    sweep = Sweep(done / "out")
    sweep.roll_out("early", ROLLED("replay"))
    sweep.train("alone", preset(ALONE, ["learning_rate=1e-3"]), {"more": ROLLED})
    shrink(sweep)
    with pytest.raises(RunDirectoryError, match="holds a run with another learning_rate"):
        run(sweep)
    assert not sweep.folder(sweep.agents[0]).exists()


def test_another_evaluation_of_the_same_name_fails_and_the_first_is_kept(done: Path) -> None:
    sweep = Sweep(done / "out")
    sweep.roll_out("replay", ROLLED("replay", retrieval="world"))
    shrink(sweep)
    (evaluation,) = sweep.agents
    kept = (sweep.folder(evaluation) / "eval_info.json").read_bytes()
    whole, said = run(sweep)
    assert not whole
    assert any(line.startswith("FAILED replay RunDirectoryError") for line in said)
    assert (sweep.folder(evaluation) / "eval_info.json").read_bytes() == kept


def test_an_evaluation_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "out")
    sweep.roll_out("lost", ROLLED(sweep.policy("nobody")))
    sweep.roll_out("replay", ROLLED("replay"))
    shrink(sweep)
    whole, said = run(sweep)
    assert not whole
    assert any(line.startswith("FAILED lost") for line in said)
    assert any(line.startswith("EVALUATED replay") for line in said)
