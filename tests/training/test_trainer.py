"""The training loop: complete runs of the smallest network."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recap.errors import InputError, RunDirectoryError
from recap.policies.checkpoint import from_pretrained, read_training
from recap.run_directory import hold_run_directory
from recap.training import trainer
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, load_data
from recap.training.networks import compile_blocks, cosine, describe_plan
from recap.training.presets import preset
from recap.training.processes import Stopped
from recap.training.records import read_metrics
from recap.training.trainer import Outcome, train

Configure = Callable[..., TrainConfig]
STATE = ("policy.inputs=S", "n_iterations=6", "validate_every=3", "save_every=2", "batch_size=8")


def run(config: TrainConfig, out: Path, data: TrainingData, **options: Any) -> Outcome:
    return train(config, out, data=data, device="cpu", **options)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "state.safetensors")


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    return [row for row in read_metrics(out) if name in row]


@pytest.fixture(scope="module")
def straight(
    configure: Configure, state_data: TrainingData, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run of six iterations without interruption."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    run(configure(*STATE), out, state_data)
    return out


def test_a_run_with_images_and_state_writes_all_its_files(
    configure: Configure, data: TrainingData, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    notes: list[str] = []
    tried: list[int] = []

    def roll_out(iteration: int, policy: object) -> dict[str, float]:
        tried.append(iteration)
        return {"success_0.85": 0.5}

    out = tmp_path / "run"
    outcome = run(
        configure("n_iterations=4", "validate_every=2", "accumulate=2"),
        out,
        data,
        progress=lambda what, done, total, note: [told.append((what, done, total)), notes.append(note)][0],
        rollout=roll_out,
        rollout_every=2,
    )
    for name in (
        "config.json",
        "run.json",
        "metrics.jsonl",
        "samples.png",
        "state.safetensors",
        "autoencoder",
    ):
        assert (out / name).exists(), name
    for name in ("best", "last"):
        assert from_pretrained(out / name).config == configure().policy
    assert (outcome.iterations, outcome.best, outcome.last) == (4, out / "best", out / "last")
    assert [row["iteration"] for row in rows(out, "held_out/action")] == [2, 4]
    assert outcome.best_loss == min(row["held_out/action"] for row in rows(out, "held_out/action"))
    assert rows(out, "loss/future_frame/top")[0]["iteration"] == 4
    assert tried == [2, 4]
    assert rows(out, "rollout")[0]["rollout"] == {"success_0.85": 0.5}
    assert ("autoencoder", 4, 4) in told
    assert told[-1] == ("iterations", 4, 4)
    losses = {row.split()[0] for row in notes[-1].removeprefix("loss ").split(", ")}
    assert {"action", "held-out"} < losses, notes[-1]
    facts = json.loads((out / "run.json").read_text("utf-8"))
    assert facts["demonstrations"] == "4 of the target, 2 held out, 6 of the pool"
    assert facts["moments"] == 48
    card = (out / "best" / "README.md").read_text("utf-8")
    assert "Preset: debug." in card
    trained, sides = read_training(out / "best")
    assert trained["retrieval_dropout"] == configure().augment.retrieval_dropout
    assert {side: len(ids) for side, ids in sides.items()} == {"train": 4, "held_out": 2}
    assert not sides["train"] & sides["held_out"]


def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    def stop_at_3(what: str, done: int, total: int, note: str) -> None:
        if (what, done) == ("iterations", 3):
            raise KeyboardInterrupt

    config, out = configure(*STATE), tmp_path / "run"
    with pytest.raises(
        KeyboardInterrupt, match="stopped at iteration 3 of 6: kept; the same command resumes"
    ):
        run(config, out, state_data, progress=stop_at_3)
    assert not (out / "last").exists()
    outcome = run(config, out, state_data)
    assert outcome.iterations == 6
    one, other = weights(straight), weights(out)
    assert all(torch.equal(value, other[key]) for key, value in one.items())
    assert rows(out, "held_out/action") == rows(straight, "held_out/action")
    assert from_pretrained(out / "last").fingerprint == from_pretrained(straight / "last").fingerprint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_during_a_step_stops_after_the_step(
    number: signal.Signals,
    configure: Configure,
    state_data: TrainingData,
    straight: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smooth = trainer._Run._update_ema

    def pressed(self: Any) -> None:
        if self.iteration == 2:  # after the optimizer step, before the smoothing
            os.kill(os.getpid(), number)
        smooth(self)

    config, out = configure(*STATE), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(trainer._Run, "_update_ema", pressed)
        with pytest.raises(Stopped, match="stopped at iteration 3 of 6") as stop:
            run(config, out, state_data)
    assert stop.value.number == number
    run(config, out, state_data)
    assert all(torch.equal(value, weights(out)[key]) for key, value in weights(straight).items())


def test_signals_during_saving_wait_until_the_state_is_written(
    configure: Configure, state_data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = trainer.save_state

    def pressed(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(*arguments, **options)

    def stop_at_1(what: str, done: int, total: int, note: str) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(trainer, "save_state", pressed)
    with pytest.raises(Stopped, match="stopped at iteration 1 of 6"):
        run(configure(*STATE), tmp_path / "run", state_data, progress=stop_at_1)
    assert (tmp_path / "run/state.safetensors").exists()


def test_a_run_that_fails_in_its_first_step_leaves_no_run_directory(
    configure: Configure, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, *_: object) -> None:
        raise MemoryError("the device is full")

    config = configure("n_iterations=2", "batch_size=8")
    with monkeypatch.context() as patch:
        patch.setattr(trainer._Run, "_step", full)
        with pytest.raises(MemoryError):
            run(config, tmp_path / "runs/run", data)
    assert not (tmp_path / "runs").exists(), "no training step was completed"
    with monkeypatch.context() as patch:
        patch.setattr(trainer._Run, "_checkpoint", full)
        with pytest.raises(MemoryError):
            run(config, tmp_path / "run", data)
    assert (tmp_path / "run/metrics.jsonl").exists(), "a run with completed steps is kept"


def test_a_run_stops_after_max_seconds_without_error_and_resumes(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    config, out = configure(*STATE), tmp_path / "run"
    for n in (1, 2):
        assert run(config, out, state_data, max_seconds=0).iterations == n
    assert run(config, out, state_data).iterations == 6
    assert all(torch.equal(value, weights(out)[key]) for key, value in weights(straight).items())
    # The logged loss is a mean over the iterations that were run.
    (row,) = rows(out, "loss/action")
    (whole,) = rows(straight, "loss/action")
    assert row["loss/action"] == pytest.approx(whole["loss/action"], rel=0.5)


def test_save_every_zero_keeps_no_state_to_resume_from(
    configure: Configure, state_data: TrainingData, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run(configure(*STATE, "save_every=0"), out, state_data).iterations == 6
    assert {"best", "last"} <= {path.name for path in out.iterdir()}
    assert not (out / "state.safetensors").exists()


def test_repeating_a_finished_run_changes_nothing(
    configure: Configure, state_data: TrainingData, straight: Path
) -> None:
    before = weights(straight)
    assert run(configure(*STATE), straight, state_data).iterations == 6
    assert all(torch.equal(value, weights(straight)[key]) for key, value in before.items())


def test_another_seed_trains_another_policy(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    run(configure(*STATE, "seed=1"), tmp_path / "run", state_data)
    assert (
        from_pretrained(tmp_path / "run/last").fingerprint != from_pretrained(straight / "last").fingerprint
    )


def test_fine_tuning_starts_from_the_given_weights_and_statistics(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    base = from_pretrained(straight / "last")
    few = load_data(configure("policy.inputs=S", "n_demonstrations=3"))
    begin = (*STATE, f"init={straight / 'last'}", "learning_rate=1e-12", "n_iterations=1")
    run(configure(*begin), tmp_path / "still", few)
    still = from_pretrained(tmp_path / "still/last")
    theirs = still.model.state_dict()
    for key, value in base.model.state_dict().items():
        assert torch.allclose(value, theirs[key], atol=1e-6), key
    for name, values in base.statistics.std.items():
        assert (still.statistics.std[name] == values).all(), (
            "statistics of the base policy, not of the few demonstrations"
        )
    run(configure(*begin[:-2]), tmp_path / "moved", few)
    assert from_pretrained(tmp_path / "moved/last").fingerprint != base.fingerprint


def test_fine_tuning_a_policy_of_another_kind_is_an_error(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    config = configure(*STATE, f"init={straight / 'last'}", "policy.residual=false")
    with pytest.raises(InputError, match=r"has another residual \(True, now False\): train the preset"):
        run(config, tmp_path / "run", state_data)


def test_fine_tuning_may_change_the_retrieval_within_the_same_frame(
    configure: Configure, straight: Path, tmp_path: Path
) -> None:
    """From pusht-object to pusht-contact: the frame is the same; the checkpoint has the new retrieval."""
    begin = (*STATE, f"init={straight / 'last'}")
    contact = ("policy.retrieval_name=pusht-contact", "policy.embodiment=triangle")
    config = configure(*begin, *contact, "n_iterations=1")
    data = load_data(config)
    run(config, tmp_path / "run", data)
    assert from_pretrained(tmp_path / "run/last").stamp.name == "pusht-contact"
    world = ("policy.retrieval_name=pusht-world", "policy.canonical=false")
    with pytest.raises(InputError, match="has another retrieval_name"):
        run(configure(*begin, *world), tmp_path / "other", data)


def test_accumulated_steps_equal_one_batch(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    run(configure(*STATE, "accumulate=4"), tmp_path / "run", state_data)
    (one,), (four,) = rows(straight, "loss/action"), rows(tmp_path / "run", "loss/action")
    assert four["loss/future_proprio"] == pytest.approx(one["loss/future_proprio"], rel=1e-4)


def test_training_stops_when_the_held_out_loss_stops_improving(
    configure: Configure, state_data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr(trainer, "validate", lambda *_: ({"action": next(losses)}, 0.0))
    config = configure("policy.inputs=S", "n_iterations=20", "validate_every=1", "patience=2", "batch_size=4")
    outcome = run(config, tmp_path / "run", state_data)
    assert (outcome.iterations, outcome.best_iteration, outcome.best_loss) == (4, 2, 1.0)
    body = json.loads((outcome.best / "config.json").read_text("utf-8"))
    assert body["training"]["iteration"] == 2


def test_a_run_directory_in_use_or_of_another_run_is_an_error(
    configure: Configure, state_data: TrainingData, straight: Path, tmp_path: Path
) -> None:
    config = configure(*STATE)
    with (
        hold_run_directory(tmp_path / "held", config.to_json()),
        pytest.raises(RunDirectoryError, match="is in use by another process"),
    ):
        run(config, tmp_path / "held", state_data)
    with pytest.raises(RunDirectoryError, match="holds a run with another learning_rate"):
        run(replace(config, learning_rate=1.0), straight, state_data)


def test_a_batch_that_accumulate_does_not_divide_is_an_error(
    configure: Configure, state_data: TrainingData, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="batch_size 8 cannot be accumulated in 3 steps"):
        run(configure(*STATE, "accumulate=3"), tmp_path / "run", state_data)


def test_the_learning_rate_warms_up_linearly_and_decays_as_a_cosine() -> None:
    rates = [cosine(1.0, i, 100, 10) for i in range(101)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0)


def test_the_plan_needs_no_weights() -> None:
    plan = describe_plan(preset("cosmos-2b"), 8)
    assert round(plan["parameters"] / 1e9, 3) == 2.059
    assert plan["batch"] == "16 × 4 × 8 = 512"
    assert plan["slots"][-3:] == ["action *", "future_frame/top *", "future_proprio *"]
    assert plan["tokens"] == 9 * 14 * 14
    assert plan["samples"] == 20_000 * 512


def test_prepared_data_are_reused_by_runs_with_the_same_settings(
    configure: Configure, files: tuple[str, str], tmp_path: Path
) -> None:
    def prepared(name: str, *changes: str) -> list[str]:
        told: list[str] = []
        config = configure("n_iterations=1", "validate_every=1", "autoencoder_iterations=2", *changes)
        train(config, tmp_path / name, device="cpu", notify=told.append)
        assert told[0].partition(" s until the first iteration: ")[1], told
        facts = json.loads((tmp_path / name / "preparation.json").read_text("utf-8"))
        assert facts["seconds"].keys() >= {"reading", "first step"}
        return list(facts["reused"])

    data = ["retrieval pairs", "moments", "pictures"]
    assert prepared("first") == []
    assert prepared("second", "seed=1") == [*data, "autoencoder", "encoding"]
    assert prepared("straight", "augment.mirror=false") == [*data, "autoencoder"], (
        "mirroring changes the latents"
    )
    assert prepared("longer", "autoencoder_iterations=3") == data, "another autoencoder encodes differently"
    assert prepared("varied", "augment.image_copies=1") == [*data, "autoencoder"]
    assert prepared("again", "augment.image_copies=1", "seed=2") == [*data, "autoencoder", "encoding"]


def test_only_the_transformer_blocks_are_compiled(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda part, **_: compiled.append(type(part).__name__))
    policy = configure().policy
    compile_blocks(policy.network.model()(policy), policy.network.blocks)
    assert compiled == ["CosmosTransformerBlock"] * policy.network.num_layers
