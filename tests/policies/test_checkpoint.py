"""Checkpoints: saving and loading a policy.

The golden file holds inputs and outputs of a policy with weights set by a formula. After a change that is
meant to change predictions, write it again with `PYTHONPATH=tests python tests/policies/test_checkpoint.py`.
"""

import json
import resource
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recap.errors import DatasetError, InputError, RecapError
from recap.policies.autoencoder import FrameEncoder, build_autoencoder
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.policies.policy import TrainedPolicy
from recap.policies.wam import WorldActionModel
from recap.sums import file_sha256
from recap.types import Conditioning, FrameRef, Observation
from recap_worlds.pusht.robot import TOP_DOWN
from toy_policy import moments, toy_config, toy_policy, toy_stamp, toy_statistics

GOLDEN = Path(__file__).parent / "golden" / "tiny.safetensors"


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return toy_policy()


@pytest.fixture
def saved(policy: TrainedPolicy, tmp_path: Path) -> Path:
    save_pretrained(policy, tmp_path / "tiny", {"preset": "debug", "batch_size": 16})
    return tmp_path / "tiny"


def actions(policy: TrainedPolicy) -> np.ndarray[Any, Any]:
    chunks = policy.predict_action_chunk(*moments(policy, 2), torch.Generator().manual_seed(0))
    return np.stack([chunk.actions for chunk in chunks])


def test_a_loaded_policy_predicts_bitwise_the_same(policy: TrainedPolicy, saved: Path) -> None:
    loaded = from_pretrained(saved)
    assert loaded.config == policy.config
    assert loaded.stamp == policy.stamp
    assert loaded.fingerprint == policy.fingerprint
    assert np.array_equal(actions(loaded), actions(policy))


def test_a_checkpoint_without_images_has_no_autoencoder(tmp_path: Path) -> None:
    state = toy_policy(toy_config(inputs="S"))
    save_pretrained(state, tmp_path / "state")
    assert not any(key.startswith("autoencoder") for key in load_file(tmp_path / "state/model.safetensors"))
    assert np.array_equal(actions(from_pretrained(tmp_path / "state")), actions(state))


def test_a_half_precision_checkpoint_predicts_nearly_the_same(
    policy: TrainedPolicy, tmp_path: Path, saved: Path
) -> None:
    save_pretrained(policy, tmp_path / "half", half=True)
    size, whole = ((p / "model.safetensors").stat().st_size for p in (tmp_path / "half", saved))
    assert size < 0.6 * whole
    assert np.abs(actions(from_pretrained(tmp_path / "half")) - actions(policy)).max() < 1.0  # px


def test_the_model_card_describes_the_policy(saved: Path) -> None:
    card = (saved / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: recap\n")
    for words in ("# tiny", "0.2 M network", "8 actions of 2 numbers, a residual", "Batch size: 16."):
        assert words in card


def test_saving_replaces_an_existing_checkpoint(policy: TrainedPolicy, saved: Path) -> None:
    other = toy_policy(seed=1)
    save_pretrained(other, saved)
    assert from_pretrained(saved).fingerprint == other.fingerprint != policy.fingerprint
    assert [p.name for p in saved.parent.iterdir()] == ["tiny"], "no other folder is left"


def test_a_full_disk_keeps_the_existing_checkpoint(policy: TrainedPolicy, saved: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # no file may grow larger
    try:
        with pytest.raises(DatasetError, match=r"cannot write .*File too large.*: what was there"):
            save_pretrained(toy_policy(seed=1), saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert from_pretrained(saved).fingerprint == policy.fingerprint
    assert [p.name for p in saved.parent.iterdir()] == ["tiny"]


def test_a_checkpoint_of_a_killed_save_is_restored(
    policy: TrainedPolicy, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    saved.rename(saved.with_name(".tiny.old"))
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(DatasetError, match="cannot write"):
        save_pretrained(policy, saved)
    assert from_pretrained(saved).fingerprint == policy.fingerprint


def config_with(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        body = json.loads((folder / "config.json").read_text("utf-8"))
        change(body)
        (folder / "config.json").write_text(json.dumps(body), "utf-8")

    return damage


def weights_with(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")
        digest = file_sha256(folder / "model.safetensors")
        config_with(lambda body: body.update(weights_sha256=digest))(folder)

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: (p / "config.json").write_text("{torn"), "is damaged"),
        (lambda p: (p / "model.safetensors").write_bytes(b"torn"), "is damaged"),
        (lambda p: (p / "model.safetensors").unlink(), "is damaged"),
        (config_with(lambda b: b.update(format="recap-policy-9")), "is not of format recap-policy-2"),
        (config_with(lambda b: b["policy"].pop("retrieval_name")), "lacks 'retrieval_name'"),
        (config_with(lambda b: b["policy"]["image"].pop("span")), "lacks 'image.span'"),
        (config_with(lambda b: b["policy"].pop("network")), "the policy's network is missing"),
        (config_with(lambda b: b["policy"].update(colour=1)), "has an unknown key 'colour'"),
        (
            config_with(lambda b: b["policy"]["robot"].pop("proprio")),
            "robot .*missing required field `proprio`",
        ),
        (config_with(lambda b: b["policy"]["robot"]["proprio"][0].update(kind="arm")), "unknown kind 'arm'"),
        (
            config_with(lambda b: b["policy"]["robot"]["proprio"][0].update(x=1)),
            "robot has an unknown key 'proprio.0.x'",
        ),
        (config_with(lambda b: b["policy"].update(robot=5)), "robot is missing, or holds no settings"),
        (config_with(lambda b: b["policy"].update(embodiment=5)), "at 'embodiment'"),
        (config_with(lambda b: b["policy"].update(subtrajectories="no")), "at 'subtrajectories'"),
        (config_with(lambda b: b["policy"]["image"].update(size=64.5)), "at 'image.size'"),
        (config_with(lambda b: b["policy"].update(chunk_size="eight")), "at 'chunk_size'"),
        (config_with(lambda b: b["policy"].update(inputs="X")), "at 'inputs': invalid enum value 'X'"),
        (config_with(lambda b: b.update(retrieval=None)), "the policy's retrieval is missing"),
        (config_with(lambda b: b["retrieval"].update(scales={"turn": "wide"})), "at 'scales"),
        (config_with(lambda b: b.update(autoencoder=None)), "has no autoencoder"),
        (config_with(lambda b: b["policy"]["network"].update(num_layers=3)), "lack 'transformer_blocks.2"),
        (weights_with(lambda w: w.pop("network.proj_out.weight")), "lack 'proj_out.weight'"),
        (
            weights_with(lambda w: w.pop("autoencoder.decoder.conv_in.weight")),
            "lack 'decoder.conv_in.weight'",
        ),
        (weights_with(lambda w: w.pop("statistics.action.mean")), "statistics lack slot 'action'"),
        (weights_with(lambda w: w.pop("statistics.action.std")), "statistics lack slot 'action'"),
        (weights_with(lambda w: w.update({"statistics.action.max": torch.ones(16)})), "unknown weight"),
        (weights_with(lambda w: w.update(extra=torch.ones(1))), "has an unknown weight 'extra'"),
    ],
)
def test_a_damaged_checkpoint_is_an_error_of_one_line(
    damage: Callable[[Path], None], words: str, saved: Path
) -> None:
    damage(saved)
    with pytest.raises(RecapError, match=words) as caught:
        from_pretrained(saved)
    assert "\n" not in str(caught.value)


def test_a_folder_or_name_that_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no checkpoint in .*: it has no config.json; recap train makes one"
    ):
        from_pretrained(tmp_path)
    with pytest.raises(InputError, match="no policy 'pusht-nono': did you mean 'pusht-nano'"):
        from_pretrained("pusht-nono")


# --- the golden file ---


def set_by_formula(network: nn.Module) -> None:
    """Pseudo-random weights from a formula, scaled by the number of inputs."""
    with torch.no_grad():
        for number, (_, value) in enumerate(sorted(network.named_parameters())):
            place = torch.arange(value.numel(), dtype=torch.float64) + 1000 * number
            spread = 2 * torch.frac(torch.sin(place * 12.9898).abs() * 43758.5453) - 1
            scale = (3 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.5
            shift = 0.0 if value.ndim > 1 else 0.5
            value.copy_((shift + spread * scale).reshape(value.shape).float())


def golden_policy() -> TrainedPolicy:
    config = toy_config(image=replace(TOP_DOWN, camera_size=32, size=16))
    model = WorldActionModel(config)
    set_by_formula(model.network)
    autoencoder = build_autoencoder(base_dim=8)
    set_by_formula(autoencoder)
    return TrainedPolicy(model, toy_statistics(config), toy_stamp(), FrameEncoder(autoencoder))


def golden_inputs(n: int = 2) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    model = golden_policy().model
    inputs = {
        "image": rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
        "frame": rng.uniform(-1, 1, (n, 3)) * [100, 100, 3] + [256, 256, 0],
        "now": rng.normal(0, 50, (n, 2)),
        "object_now": np.zeros((n, 3)),
        "goal_now": rng.normal(0, 50, (n, 3)),
        "actions": rng.normal(0, 50, (n, 1, 8, 2)),
        "proprio": rng.normal(0, 50, (n, 1, 8, 2)),
        "objects": rng.normal(0, 5, (n, 1, 8, 3)),
        "goals": rng.normal(0, 50, (n, 1, 3)),
        "frames": rng.normal(0, 50, (n, 1, 3)),
        "latents": rng.normal(0, 1, (n, 2, 16, 2, 2)),
        **{f"noise.{s.name}": rng.normal(0, 1, (n, *model.shape(s))) for s in model.denoised},
    }
    return {
        name: torch.from_numpy(v if v.dtype == np.uint8 else v.astype(np.float32))
        for name, v in inputs.items()
    }


def golden_outputs(policy: TrainedPolicy, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Predictions for the stored inputs and noise."""
    names = {f.name for f in fields(Conditioning)} & set(stored)
    ref = FrameRef("demonstration", 0)
    observations, given = [], []
    for i, image in enumerate(stored["image"].numpy()):
        arrays: dict[str, Any] = {name: stored[name][i].numpy() for name in names}
        valid = np.ones((1, 8), np.bool_)
        given.append(Conditioning(**arrays, valid=valid, refs=(ref,), last_refs=(ref,)))
        observations.append(
            Observation(np.zeros(2, np.float32), "push the block", 0.0, {"top": np.ascontiguousarray(image)})
        )
    noise = {name[6:]: value for name, value in stored.items() if name.startswith("noise.")}
    policy._noise = lambda n, generator: noise  # type: ignore[method-assign]
    chunks = policy.predict_action_chunk(observations, given)
    found = {
        "out.residual": np.stack([chunk.residual for chunk in chunks]),
        "out.state": np.stack([c.predicted_state for c in chunks if c.predicted_state is not None]),
        "out.latents": np.stack([c.predicted_latents for c in chunks if c.predicted_latents is not None]),
    }
    return {name: torch.from_numpy(value) for name, value in found.items()}


def test_predictions_equal_the_golden_file(tmp_path: Path) -> None:
    stored = load_file(GOLDEN)
    save_pretrained(golden_policy(), tmp_path / "golden")
    policy = from_pretrained(tmp_path / "golden")
    for name, value in golden_outputs(policy, stored).items():
        assert value.abs().max() > 0.01, "the prediction is not zero"
        assert torch.allclose(value, stored[name], rtol=1e-4, atol=1e-4 * float(stored[name].abs().max())), (
            name
        )


def test_a_changed_weight_changes_the_golden_predictions() -> None:
    stored = load_file(GOLDEN)
    policy = golden_policy()
    with torch.no_grad():
        policy.model.get_parameter("network.transformer_blocks.0.attn1.to_v.weight").mul_(1.5)
    assert not torch.allclose(
        golden_outputs(policy, stored)["out.residual"], stored["out.residual"], rtol=1e-3
    )


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    inputs = golden_inputs()
    save_file(inputs | golden_outputs(golden_policy(), inputs), GOLDEN)
    GOLDEN.chmod(0o644)
