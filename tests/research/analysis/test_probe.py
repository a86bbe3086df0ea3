"""Recording and masking the network's self-attention."""

import math
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import Tensor

from recap.assembly import AgentConfig, load_policy
from recap.errors import InputError
from recap.policies.policy import TrainedPolicy
from recap.policies.wam import WorldActionModel
from recap_research.analysis.probe import (
    Mask,
    Record,
    WatchedPolicy,
    attention_layers,
    slot_tokens,
    watched,
)
from recap_worlds.pusht.robot import TOP_DOWN
from toy_policy import moments, random_batch, toy_config, toy_policy


@pytest.fixture(scope="module")
def model() -> WorldActionModel:
    """A model with 32-px images: four tokens per slot."""
    torch.manual_seed(0)
    return WorldActionModel(toy_config(image=replace(TOP_DOWN, size=32))).eval()


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return toy_policy()


def run(model: WorldActionModel, record: Record | None = None, *masks: Mask) -> Tensor:
    batch = random_batch(model, 2)
    noise = model.draw_noise(2, torch.Generator().manual_seed(1), torch.device("cpu"))
    with torch.inference_mode(), watched(model, record, [mask.by_layer(model) for mask in masks]):
        return model(batch, noise, torch.full((2,), 0.5))["action"]


def by_hand(model: WorldActionModel, layer: int) -> Tensor:
    """Attention of the action slot, calculated from the layer's input in plain loops: (B, heads, T)."""
    attn, seen = attention_layers(model.network)[layer], {}
    stock = attn.processor

    def spy(
        attn: object,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        seen["x"], seen["rope"] = hidden_states, image_rotary_emb
        out: Tensor = stock(attn, hidden_states, image_rotary_emb=image_rotary_emb)
        return out

    class Spy:
        __call__ = staticmethod(spy)

    attn.set_processor(Spy())
    run(model)
    attn.set_processor(stock)
    x, (cos, sin) = seen["x"], seen["rope"]
    n, width = x.shape[1], attn.to_q.weight.shape[0] // attn.heads
    rows = range(*slot_tokens(model.layout, "action").indices(n))
    found = torch.zeros(2, attn.heads, n)

    def turned(vector: Tensor, at: int) -> Tensor:
        a, b = vector.chunk(2)
        return vector * cos[at] + torch.cat([-b, a]) * sin[at]

    def scaled(vector: Tensor, norm: torch.nn.Module) -> Tensor:
        return vector / (vector.square().mean() + norm.eps).sqrt() * norm.weight  # type: ignore[operator]

    with torch.inference_mode():
        for b in range(2):
            for head in range(attn.heads):
                part = slice(head * width, (head + 1) * width)
                keys = [turned(scaled(attn.to_k.weight[part] @ x[b, t], attn.norm_k), t) for t in range(n)]
                for row in rows:
                    query = turned(scaled(attn.to_q.weight[part] @ x[b, row], attn.norm_q), row)
                    logits = [math.exp(float(query @ key) / math.sqrt(width)) for key in keys]
                    found[b, head] += torch.tensor(logits) / sum(logits) / len(rows)
    return found


def test_the_probe_equals_attention_calculated_in_plain_loops(model: WorldActionModel) -> None:
    record = Record()
    run(model, record)
    weights = record.stacked()  # (B, steps, layers, heads, T)
    assert weights.shape == (2, 1, 2, 2, model.layout.n_tokens)
    for layer in range(2):
        assert torch.allclose(weights[:, 0, layer], by_hand(model, layer), atol=1e-4)


def test_recording_does_not_change_the_output_or_the_network(model: WorldActionModel) -> None:
    before = [layer.processor for layer in attention_layers(model.network)]
    plain, seen = run(model), run(model, Record())
    assert torch.equal(plain, seen)
    assert [layer.processor for layer in attention_layers(model.network)] == before


def test_a_slots_tokens_are_its_patches_in_row_order(model: WorldActionModel) -> None:
    batch = random_batch(model, 1)
    noise = model.draw_noise(1, torch.Generator().manual_seed(1), torch.device("cpu"))
    embed = model.network.patch_embed
    seen: list[Tensor] = []
    handle = embed.register_forward_hook(lambda *given: seen.append(given[2].flatten(1, 3)))
    try:
        with torch.inference_mode():
            model(batch, noise, torch.full((1,), 0.5))
            batch.values["frame/top"][0, :, 0:2, 2:4] += 1.0  # the top right patch
            model(batch, noise, torch.full((1,), 0.5))
    finally:
        handle.remove()
    changed = (seen[0] - seen[1]).abs().sum(-1)[0].nonzero().ravel().tolist()
    assert changed == [slot_tokens(model.layout, "frame/top").start + 1]


@pytest.mark.parametrize(
    "text", ["retrieved@3", "retrieved_action@2+5", "sham@all", "sham@0/7", "retrieved@all"]
)
def test_a_mask_survives_parsing_and_formatting(text: str) -> None:
    assert str(Mask.parse(text)) == text


@pytest.mark.parametrize("text", ["retrieved", "retrieved@", "sham@x", "sham@1/x"])
def test_an_invalid_mask_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="cannot read the mask"):
        Mask.parse(text)


@pytest.mark.parametrize("text", ["retrieved@9", "nothing@0", "action@0"])
def test_a_mask_of_an_unknown_layer_or_slot_is_an_error(model: WorldActionModel, text: str) -> None:
    with pytest.raises(InputError):
        Mask.parse(text).by_layer(model)


def test_a_masked_layer_gives_retrieved_tokens_no_weight(model: WorldActionModel) -> None:
    record, mask = Record(), Mask.parse("retrieved@1")
    out = run(model, record, mask)
    weights, blocked = record.stacked()[:, 0], mask.blocked(model.layout)
    assert (weights[:, 1][..., blocked] == 0).all()
    assert (weights[:, 0][..., blocked] > 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 2))
    assert not torch.equal(out, run(model))


def test_masking_a_masked_layer_again_changes_nothing(model: WorldActionModel) -> None:
    once, part = Mask.parse("retrieved@1"), Mask.parse("retrieved_action@1")
    assert torch.equal(run(model, None, once), run(model, None, once, once))
    assert torch.equal(run(model, None, once), run(model, None, once, part))
    assert not torch.equal(run(model, None, part), run(model, None, once))


def test_a_sham_mask_blocks_as_many_tokens_but_no_retrieved_ones(model: WorldActionModel) -> None:
    real = Mask.parse("retrieved@1").blocked(model.layout)
    for seed in (0, 1):
        sham = Mask("sham", (1,), seed).blocked(model.layout)
        assert int(sham.sum()) == int(real.sum())
        assert not (sham & real).any()
    assert not torch.equal(Mask("sham", (1,), 0).blocked(model.layout), sham)


def test_a_watched_policy_predicts_the_same_as_the_policy(policy: TrainedPolicy) -> None:
    observations, given = moments(policy, 2)

    def chunks(one: TrainedPolicy) -> Tensor:
        dice = [torch.Generator().manual_seed(i) for i in range(2)]
        found = one.predict_action_chunk(observations, given, dice)
        return torch.stack([torch.from_numpy(chunk.actions) for chunk in found])

    noting = WatchedPolicy(policy, note=True)
    assert torch.allclose(chunks(policy), chunks(noting), rtol=1e-4, atol=1e-3)
    assert [weights.shape for _, weights in noting.noted] == [(2, 2, 2, policy.model.layout.n_tokens)] * 2
    assert noting.fingerprint == policy.fingerprint
    assert not torch.equal(chunks(policy), chunks(WatchedPolicy(policy, [Mask.parse("retrieved@all")])))


def test_masks_are_found_by_entry_point_and_are_an_error_without_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = AgentConfig("pusht-small", mask="retrieved@1")
    assert isinstance(load_policy(config), WatchedPolicy)
    elsewhere = EntryPoint("attention", "recap_not_installed:masked", "recap.masks")
    for found in ({}, {"attention": elsewhere}):
        monkeypatch.setattr("recap.assembly.plugins", lambda group, found=found: found)
        with pytest.raises(InputError, match="recap_research"):
            load_policy(config)
