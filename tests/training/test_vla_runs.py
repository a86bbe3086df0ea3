"""A policy of the π0 type is trained, saved, resumed and rolled out by the same code as any other."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import from_pretrained
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, load_data
from recap.training.networks import describe_plan
from recap.training.presets import preset
from recap.training.records import read_metrics
from recap.training.trainer import train
from recap_pi0.config import Pi05NetworkConfig
from recap_pi0.vla import VisionLanguageActionModel

Make = Callable[..., TrainConfig]
CPU = torch.device("cpu")
IN_WORLD = ("policy.retrieval_name=pusht-world", "policy.canonical=false")


@pytest.fixture(scope="module")
def make(files: tuple[str, str]) -> Make:
    """The preset debug-pi0 on the small data."""

    def configured(*changes: str) -> TrainConfig:
        return replace(preset("debug-pi0", ["batch_size=8", *changes]), target=files[0], pool=files[1])

    return configured


@pytest.fixture(scope="module")
def pixels(make: Make, tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_data(make())


@pytest.fixture(scope="module")
def straight(make: Make, pixels: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four iterations without interruption."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    train(make("n_iterations=4", "validate_every=2"), out, data=pixels, device="cpu")
    return out


def test_a_run_writes_a_checkpoint_and_no_autoencoder(straight: Path, make: Make) -> None:
    for name in ("config.json", "run.json", "metrics.jsonl", "state.safetensors"):
        assert (straight / name).exists(), name
    assert not (straight / "autoencoder").exists()
    for name in ("best", "last"):
        policy = from_pretrained(straight / name)
        assert isinstance(policy.model, VisionLanguageActionModel)
        assert policy.config == make().policy
    judged = [row for row in read_metrics(straight) if "held_out/action" in row]
    assert [row["iteration"] for row in judged] == [2, 4]
    assert {name for name in judged[0] if name.startswith("held_out/")} == {
        "held_out/action",
        "held_out/action_rms",
        "held_out/replay_rms",
    }, "no losses of images or states"


def test_the_pi05_network_trains_its_adaptive_norms(make: Make, pixels: TrainingData, tmp_path: Path) -> None:
    config = make("n_iterations=2", "validate_every=2", "policy.noise=logit_normal", "policy.noise_shift=3")
    sizes = Pi05NetworkConfig(**asdict(config.policy.network))  # type: ignore[call-overload]
    config = replace(config, policy=replace(config.policy, network=sizes))
    train(config, tmp_path / "run", data=pixels, device="cpu")
    policy = from_pretrained(tmp_path / "run/last")
    assert policy.config == config.policy
    assert (policy.config.network.backbone, policy.config.noise) == ("pi05", "logit_normal")
    gates = [v for k, v in policy.model.state_dict().items() if k.endswith("layernorm.dense.weight")]
    assert all(gate.any() for gate in gates), "they are initialised to zero"


def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(
    straight: Path, make: Make, pixels: TrainingData, tmp_path: Path
) -> None:
    def stop_at_2(what: str, done: int, total: int, note: str) -> None:
        if (what, done) == ("iterations", 2):
            raise KeyboardInterrupt

    config, out = make("n_iterations=4", "validate_every=2"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match="stopped at iteration 2 of 4"):
        train(config, out, data=pixels, device="cpu", progress=stop_at_2)
    train(config, out, data=pixels, device="cpu")
    one, other = (load_file(folder / "state.safetensors") for folder in (straight, out))
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in one.items())
    train(replace(config, seed=1), tmp_path / "other", data=pixels, device="cpu")
    assert (
        from_pretrained(tmp_path / "other/last").fingerprint != from_pretrained(straight / "last").fingerprint
    )


def rolled_out(checkpoint: Path, pool: str, n_steps: int) -> list[float]:
    """The coverage of a short episode, run as by `recap eval`."""
    board: dict[str, Any] = {"options": {"pusher": "triangle"}, "tasks": ("+45",), "seeds": (500,)}
    spec = EvalSpec(AgentConfig(str(checkpoint)), "pusht", max_steps=n_steps, pool=pool, **board)
    agent = make_agent(spec)
    assert agent.image_size == 96
    results = list(run_trials(agent, spec, spec.trials(), 1))
    assert [(result.outcome, result.steps) for result in results] == [("failure", n_steps)]
    return [result.metrics["coverage"] for result in results]


def test_a_checkpoint_is_rolled_out_by_its_path(straight: Path, files: tuple[str, str]) -> None:
    first = rolled_out(straight / "last", files[1], 6)
    assert first == rolled_out(straight / "last", files[1], 6), "the episode of a seed is reproducible"


def test_training_without_retrieval_works(make: Make, files: tuple[str, str], tmp_path: Path) -> None:
    without = ("policy.residual=false", "policy.retrieval=false", *IN_WORLD)
    outcome = train(make("n_iterations=1", *without), tmp_path / "run", device="cpu")
    assert not from_pretrained(outcome.last).config.retrieval
    rolled_out(outcome.last, files[1], 3)


def test_training_starts_from_published_weights(make: Make, pixels: TrainingData, tmp_path: Path) -> None:
    from recap_pi0.config import PI0_DEBUG
    from recap_pi0.pi0 import build_pi0

    torch.manual_seed(7)
    network: Any = build_pi0(PI0_DEBUG, 16, 8)
    network.save_pretrained(tmp_path / "published")
    config = make("n_iterations=1", "learning_rate=1e-12", f"weights={tmp_path / 'published'}")
    outcome = train(config, tmp_path / "run", data=pixels, device="cpu")
    learned = from_pretrained(outcome.last).model.network.state_dict()
    assert all(torch.allclose(v, learned[key], rtol=0, atol=1e-9) for key, v in network.state_dict().items())


def test_images_and_mirrored_images_are_given_as_pixels(make: Make, pixels: TrainingData) -> None:
    config = make().policy
    stored = torch.from_numpy(pixels.pictures).permute(0, 3, 1, 2)
    source = BatchSource(pixels.train, stored, pixels.statistics, config, CPU)
    rows, dice = torch.arange(5), torch.Generator().manual_seed(0)
    batch = source.take(rows, NO_AUGMENT, dice)
    numbers = pixels.train.images["frame/top"][:5]
    expected = pixels.pictures[numbers].transpose(0, 3, 1, 2) / 127.5 - 1
    assert np.allclose(batch.values["frame/top"].numpy(), expected, atol=1e-6)
    assert set(batch.values) == {slot.name for slot in source.layout.slots}
    assert batch.text.shape == (5, config.network.n_text_tokens)  # type: ignore[union-attr]
    mirrored = source.take(rows, replace(NO_AUGMENT, mirror=True), torch.Generator().manual_seed(1))
    sides = {
        (np.allclose(row, one, atol=1e-6), np.allclose(row, one[..., ::-1], atol=1e-6))
        for row, one in zip(mirrored.values["frame/top"].numpy(), expected, strict=True)
    }
    assert sides == {(True, False), (False, True)}, "some images are mirrored and some are not"


def test_activation_checkpointing_is_an_error(make: Make, pixels: TrainingData, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="set checkpointing=false"):
        train(make("checkpointing=true"), tmp_path / "run", data=pixels, device="cpu")


def test_the_plan_needs_no_weights() -> None:
    plan = describe_plan(preset("pi0-base"))
    assert round(plan["parameters"] / 1e9, 1) == 3.5
    assert plan["slots"][-2:] == ["proprio", "action *"]
    assert plan["tokens"] == 3 * 256 + 48 + 9 + 9
    plan = describe_plan(preset("pusht-pi0-tiny-no-retrieval"))
    assert plan["slots"] == ["frame/top", "proprio", "action *"]
