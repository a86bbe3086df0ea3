"""π0.5: the time step in the action expert's norms, the state as tokens, and published weights."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recap.errors import DatasetError
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.policies.config import PolicyConfig
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap_pi0.config import PI0_DEBUG, Pi05NetworkConfig
from recap_pi0.pi0 import NO_WORD, published_names
from recap_pi0.pi05 import NAMES, Pi05, load_pretrained_pi05, state_bins
from recap_pi0.vla import Pi05ActionModel
from recap_worlds.pusht.robot import TOP_DOWN
from toy_policy import moments, toy_config, toy_stamp, toy_statistics

SIZES = Pi05NetworkConfig(**asdict(PI0_DEBUG))
NORM = "paligemma_with_expert.gemma_expert.model.layers.1.input_layernorm.dense.weight"


def config_of(**changes: Any) -> PolicyConfig:
    pixels = replace(TOP_DOWN, size=16, channels=3, scale=1)
    usual = {"network": SIZES, "image": pixels, "future_image": False, "future_state": False}
    return toy_config(**{**usual, **changes})


def model_of(seed: int = 0) -> Pi05ActionModel:
    """A model with random gate weights: the gates of a new one are zero, so its layers have no effect."""
    torch.manual_seed(seed)
    model = config_of().network.model()(config_of()).eval()
    assert isinstance(model, Pi05ActionModel)
    for name, value in model.named_parameters():
        if ".dense." in name:
            torch.nn.init.normal_(value, std=0.2)
    return model


def batch_of(model: Pi05ActionModel, n: int = 2) -> Batch:
    draw = torch.Generator().manual_seed(0)
    values = {s.name: torch.randn(n, *model.shape(s), generator=draw) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool)
    return Batch(values, present, model.task_encoder(model.config)(["push the block", "push"][:n]))


def velocity(model: Pi05ActionModel, batch: Batch, level: float, noise: dict[str, Tensor]) -> Tensor:
    with torch.inference_mode():
        return model(batch, noise, torch.full((len(batch),), level))["action"]


def published(model: Pi05ActionModel) -> dict[str, Tensor]:
    """Weights as openpi saves them: its names, the embedding as lm_head, and an unused expert head."""
    names = {"model.vlm.vision_tower.": "paligemma_with_expert.paligemma.model.vision_tower.vision_model."}
    names |= {"model.vlm.": "paligemma_with_expert.paligemma.model."}
    names |= {"model.dit.": "paligemma_with_expert.gemma_expert.model."}
    found: dict[str, Tensor] = {}
    for key, value in model.network.state_dict().items():
        ours = next((start for start in names if key.startswith(start)), "")
        found[names.get(ours, "") + key.removeprefix(ours)] = value.clone()
    words = found.pop("paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight")
    found["paligemma_with_expert.paligemma.lm_head.weight"] = words
    found["paligemma_with_expert.gemma_expert.lm_head.weight"] = torch.zeros(64, 64)
    return found


def test_the_time_step_affects_the_actions_only_through_the_norms() -> None:
    model = model_of()
    batch, noise = batch_of(model), model.draw_noise(2, torch.Generator().manual_seed(1), torch.device("cpu"))
    assert not torch.allclose(velocity(model, batch, 0.2, noise), velocity(model, batch, 0.8, noise))
    for name, value in model.named_parameters():
        if ".dense.weight" in name:
            torch.nn.init.zeros_(value)
    assert torch.allclose(velocity(model, batch, 0.2, noise), velocity(model, batch, 0.8, noise))


def test_a_new_networks_gates_are_zero() -> None:
    torch.manual_seed(0)
    network = Pi05(SIZES, 16, 8)
    layer: Any = network.model.dit.layers[0]
    x, condition = torch.randn(1, 3, 64), torch.randn(1, 64)
    normed, gate = layer.input_layernorm(x, condition)
    assert torch.allclose(normed, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), atol=1e-5)
    assert not gate.any()


def test_every_action_attends_to_every_other() -> None:
    model = model_of()
    batch, noise = batch_of(model, 1), model.draw_noise(1, None, torch.device("cpu"))
    before = velocity(model, batch, 0.5, noise)
    last = {"action": noise["action"].clone()}
    last["action"][:, -1] += 1.0
    assert not torch.allclose(velocity(model, batch, 0.5, last)[:, :2], before[:, :2])


def test_the_state_becomes_tokens_after_the_instruction() -> None:
    assert state_bins(torch.tensor([-9.0, -7 / 3, 0.0, 7 / 3, 9.0])).tolist() == [0, 0, 128, 255, 255]
    model = model_of()
    batch = batch_of(model)
    words, width = model.words(batch), model.layout["proprio"].width
    assert words.shape == (2, 8 + width + 1), (
        "the instruction, a token per state number, and the action prompt"
    )
    assert torch.equal(words[:, :8], batch.text)
    assert (words[1, 2:8] == NO_WORD).all(), "padding between them is masked"
    other = batch_of(model)
    other.values["proprio"][0, 0] += 1.0
    changed = (model.words(other) != words).nonzero().tolist()
    assert changed == [[0, 8]]
    noise = model.draw_noise(2, torch.Generator().manual_seed(1), torch.device("cpu"))
    moved = velocity(model, other, 0.5, noise) - velocity(model, batch, 0.5, noise)
    assert moved[0].abs().max() > 0
    assert not moved[1].any()


@pytest.mark.parametrize("prefix", ["", "model."])
def test_weights_under_the_published_names_are_loaded_completely(prefix: str, tmp_path: Path) -> None:
    theirs = model_of(7)
    save_file({prefix + k: v for k, v in published(theirs).items()}, tmp_path / "model.safetensors")
    assert prefix + NORM in load_file(tmp_path / "model.safetensors")
    ours = model_of(0)
    ours.load_published(str(tmp_path))
    wanted = theirs.network.state_dict()
    assert all(torch.equal(value, wanted[key]) for key, value in ours.network.state_dict().items())


def test_weights_that_do_not_fit_are_an_error_with_the_name(tmp_path: Path) -> None:
    model = model_of()
    weights = published(model)
    for changed, words in (
        ({k: v for k, v in weights.items() if k != NORM}, "lack 'model.dit.layers.1.input_layernorm.dense"),
        ({**weights, "state_proj.weight": torch.ones(1)}, "have an unknown 'state_proj.weight'"),
        ({**weights, NORM: weights[NORM][:-1].clone()}, "have another shape of"),
    ):
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(DatasetError, match=words):
            load_pretrained_pi05(model.network, str(tmp_path))
    assert set(published_names(weights, NAMES)) == set(model.network.state_dict())


def test_a_policy_loaded_from_its_checkpoint_acts_the_same(tmp_path: Path) -> None:
    model = model_of()
    policy = TrainedPolicy(model, toy_statistics(model.config), toy_stamp(model.config.retrieval_name), None)
    save_pretrained(policy, tmp_path / "policy")
    again = from_pretrained(tmp_path / "policy")
    assert isinstance(again.config.network, Pi05NetworkConfig)
    assert again.fingerprint == policy.fingerprint
    seen, given = moments(policy, 2)
    one, two = (
        p.predict_action_chunk(seen, given, torch.Generator().manual_seed(0))[1] for p in (policy, again)
    )
    assert (one.actions == two.actions).all()


def test_every_trainable_parameter_gets_a_gradient() -> None:
    model = model_of().train()
    batch = batch_of(model)
    noise = model.draw_noise(2, torch.Generator().manual_seed(1), torch.device("cpu"))
    model.losses(batch, noise, torch.tensor([0.3, 0.7]))["action"].mean().backward()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
