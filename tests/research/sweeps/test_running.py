"""A whole sweep in miniature: collected, trained, fine-tuned, evaluated, reported, and resumed."""

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
    """The sweep stopped before any training, then carried out."""
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


def test_a_fine_tune_keeps_the_statistics_and_the_autoencoder(done: Path) -> None:
    base, tuned = (from_pretrained(toy(done).policy(name)) for name in ("alone-0", "tuned-0"))
    assert tuned.fingerprint != base.fingerprint
    for name, values in base.statistics.mean.items():
        assert (tuned.statistics.mean[name] == values).all()
    assert base.encoder is not None
    assert tuned.encoder is not None
    theirs = tuned.encoder.state_dict()
    assert all((value == theirs[key]).all() for key, value in base.encoder.state_dict().items())


def test_the_results_are_a_row_each_with_what_they_cost(done: Path) -> None:
    rows = json.loads((done / "out/results/toy.json").read_text("utf-8"))["rows"]
    found = {row["name"]: row for row in rows}
    assert [found[name]["seeds"] for name in ("replay", "alone", "union")] == [1, 1, 2]
    assert found["union"]["success"]["unseen > 0.85"]["models"] == [0.0, 0.0]
    assert found["union"]["pool_demonstrations_s"] > found["union"]["target_demonstrations_s"] > 0
    assert found["replay"]["gpu_s"] is None
    assert found["tuned"]["gpu_s"] > 0


def test_one_command_makes_the_page(done: Path) -> None:
    page = build_report(done / "out/evaluations")
    for words in ("Toy", "A table", "2 trainings", "union, seed 1", "no retrieval", "Co-train"):
        assert words in page


def test_another_sweep_in_the_same_place_keeps_the_parts_of_the_first(done: Path) -> None:
    sweep = toy(done)
    sweep.title, sweep.parts = "Second", []
    sweep.part("Another", ["replay"])
    run(sweep)
    body = json.loads((done / "out/evaluations/report.json").read_text("utf-8"))
    assert [part["title"] for part in body["parts"]] == ["A table", "Another"]
    assert body["title"] == "Evidence"


@pytest.mark.usefixtures("never_trains")
def test_what_is_there_is_not_done_again_and_large_files_may_be_left_behind(done: Path) -> None:
    assert run(toy(done))[0]
    (done / "out/training").rename(done / "training")
    try:
        whole, said = run(toy(done))
        assert whole
        assert {f"{name} is done" for name in RUNS} <= set(said)
    finally:
        (done / "training").rename(done / "out/training")


@pytest.mark.usefixtures("never_trains")
def test_a_lost_evaluation_is_run_again_without_training_also_by_workers(done: Path) -> None:
    folder = done / "out/evaluations/tuned-0-all"
    kept = (folder / "eval_info.json").read_bytes()
    for workers in (0, 2):
        episodes = (folder / "episodes.jsonl").read_text("utf-8").splitlines(keepends=True)
        (folder / "eval_info.json").unlink()
        (folder / "episodes.jsonl").write_text(episodes[0])
        assert run(toy(done), workers=workers)[0]
        assert (folder / "eval_info.json").read_bytes() == kept, "the same episodes, to the bit"


def test_a_policy_that_another_goes_on_from_is_trained_again_when_it_is_lost(
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
def test_a_name_with_other_settings_is_refused_before_anything_is_done(done: Path) -> None:
    sweep = Sweep(done / "out")
    sweep.roll_out("early", ROLLED("replay"))
    sweep.train("alone", preset(ALONE, ["learning_rate=1e-3"]), {"more": ROLLED})
    shrink(sweep)
    with pytest.raises(RunDirectoryError, match="holds a run with another learning_rate"):
        run(sweep)
    assert not sweep.folder(sweep.agents[0]).exists()


def test_another_evaluation_of_the_same_name_is_refused_and_the_first_kept(done: Path) -> None:
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
