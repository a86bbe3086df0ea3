"""The lean network and sampler give the same results as the stock network."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from recap.policies.config import SamplingConfig
from recap.policies.lean_sampling import LeanSampler
from recap.policies.network import build_network
from recap.policies.wam import WorldActionModel
from toy_policy import random_batch, toy_config, toy_policy

CPU = torch.device("cpu")


def stock_and_lean(**changes: object) -> tuple[WorldActionModel, WorldActionModel]:
    """The network of diffusers and the lean one, with the same weights."""
    torch.manual_seed(0)
    config = toy_config(**changes)
    ours = WorldActionModel(config)
    for parameter in ours.parameters():  # the initial modulation weights are zero
        torch.nn.init.normal_(parameter, std=0.1)
    stock = WorldActionModel(config, network=build_network(ours.sizes, config.image.channels))
    stock.load_state_dict(ours.state_dict())
    return stock.eval(), ours.eval()


def far(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def padded() -> WorldActionModel:
    """A model with the padding mask and the text projection of the published network."""
    config = toy_config()
    sizes = replace(
        config.network,
        concat_padding_mask=True,
        use_crossattn_projection=True,
        crossattn_proj_in_channels=config.network.text_embed_dim,
        encoder_hidden_states_channels=config.network.text_embed_dim,
    )
    torch.manual_seed(0)
    model = WorldActionModel(replace(config, network=sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


@pytest.mark.parametrize("inputs", ["I", "I+S", "S"])
def test_the_lean_network_predicts_the_same_as_the_stock_network(inputs: str) -> None:
    stock, ours = stock_and_lean(inputs=inputs)
    batch = random_batch(ours, 3)
    batch.present[1, 0] = False
    noise, level = ours.draw_noise(3, None, CPU), torch.rand(3)
    wanted, found = stock(batch, noise, level), ours(batch, noise, level)
    for name in wanted:
        assert wanted[name].norm() > 0.1
        assert far(found[name], wanted[name]) < 1e-5


def test_the_lean_network_has_the_same_gradients() -> None:
    stock, ours = stock_and_lean()
    batch = random_batch(ours, 2)
    noise, level = ours.draw_noise(2, None, CPU), torch.rand(2)
    for model in (stock, ours):
        sum(loss.mean() for loss in model.losses(batch, noise, level).values()).backward()  # type: ignore[union-attr]
    for (name, a), b in zip(stock.named_parameters(), ours.parameters(), strict=True):
        if a.grad is None or a.grad.norm() < 1e-7:  # queries and keys of a single token get no gradient
            assert b.grad is None or b.grad.norm() < 1e-7, name
        else:
            assert b.grad is not None, name
            assert far(b.grad, a.grad) < 1e-4, name


def test_an_instruction_of_several_tokens_is_attended_to() -> None:
    stock, ours = stock_and_lean()
    batch = random_batch(ours, 2)
    longer = replace(batch, text=torch.cat([batch.text, 3 * batch.text.flip(-1)], dim=1))
    noise, level = ours.draw_noise(2, None, CPU), torch.rand(2)
    wanted, short = stock(longer, noise, level)["action"], ours(batch, noise, level)["action"]
    assert far(ours(longer, noise, level)["action"], wanted) < 1e-5
    assert far(short, wanted) > 1e-3


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": "I"},
        {"inputs": "I+S", "future_change": True},
        {"inputs": "S"},
        {"inputs": "I", "network": replace(toy_config().network, coordinates=True)},
        {"inputs": "I", "network": replace(toy_config().network, coordinates=True, beside=True)},
        {"inputs": "I", "future_clean": True},
    ],
)
def test_the_lean_sampler_equals_the_models_sampler(changes: dict[str, object]) -> None:
    _, model = stock_and_lean(**changes)
    if "future_change" in changes:
        model.deviations = {"future_frame/top": torch.full((16, 1, 1), 0.25)}
    batch, noise = random_batch(model, 3), model.draw_noise(3, None, CPU)
    batch.present[1, 0] = False
    config = SamplingConfig(n_steps=3, temperature=0.5)
    wanted = model.sample(batch, noise, config)
    found = LeanSampler(model, torch.float32)(batch, noise, config)
    assert wanted.keys() == found.keys()
    for name in wanted:
        assert far(found[name], wanted[name]) < 1e-5, name


def test_the_lean_sampler_supports_the_padding_mask_and_text_projection() -> None:
    model = padded()
    batch, noise = random_batch(model, 2), model.draw_noise(2, None, CPU)
    config = SamplingConfig(n_steps=2)
    wanted = model.sample(batch, noise, config)
    found = LeanSampler(model, torch.float32)(batch, noise, config)
    assert all(far(found[name], wanted[name]) < 1e-5 for name in wanted)


def test_bfloat16_sampling_differs_only_by_rounding() -> None:
    _, model = stock_and_lean()
    batch, noise = random_batch(model, 2), model.draw_noise(2, None, CPU)
    config = SamplingConfig(n_steps=2)
    wanted = model.sample(batch, noise, config)["action"]
    found = LeanSampler(model, torch.bfloat16)(batch, noise, config)["action"]
    assert 1e-6 < far(found, wanted) < 0.05


def test_other_solvers_use_the_models_sampler() -> None:
    _, model = stock_and_lean()
    batch, noise = random_batch(model, 1), model.draw_noise(1, None, CPU)
    config = SamplingConfig(n_steps=3, sampler="unipc")
    found = LeanSampler(model, torch.float32)(batch, noise, config)
    assert torch.equal(found["action"], model.sample(batch, noise, config)["action"])


def test_sampling_one_by_one_equals_sampling_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, model = stock_and_lean()
    batch, noise = random_batch(model, 3), model.draw_noise(3, None, CPU)
    batch.present[1, 0] = False
    sampler = LeanSampler(model, torch.float32)
    monkeypatch.setattr(sampler, "_replay", sampler.denoise)  # in place of a CUDA graph of one chunk
    with torch.inference_mode():
        wanted, found = sampler.denoise(batch, noise, 2), sampler._one_by_one(batch, noise, 2)
    assert all(far(found[name], wanted[name]) < 1e-5 for name in wanted)


def test_sampling_uses_changed_weights() -> None:
    policy = toy_policy()
    batch, noise = random_batch(policy.model, 2), policy.model.draw_noise(2, None, CPU)
    before = policy.sample(batch, noise, policy.config.sampling)["action"]
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(0.5)
    after = policy.sample(batch, noise, policy.config.sampling)["action"]
    assert far(after, before) > 1e-3
    assert far(after, policy.model.sample(batch, noise, policy.config.sampling)["action"]) < 1e-5
