"""A π0-type policy: the retrieved chunk is in its prefix, and its action expert predicts the residual."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from episodes import random_episode
from recap.errors import InputError, RecapError
from recap.latents import RetrievedLatents
from recap.policies.canonical import canonical_image
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.model import Batch
from recap.policies.policy import TrainedPolicy
from recap.pool.memory import MemoryView
from recap.sums import file_sha256
from recap.types import Conditioning, Observation
from recap_pi0.config import PI0_DEBUG
from recap_pi0.pi0 import build_pi0
from recap_pi0.vla import VisionLanguageActionModel
from recap_research.analysis.probe import Mask, WatchedPolicy
from recap_worlds.pusht.robot import TOP_DOWN
from toy_policy import drawn, moments, nothing_retrieved, toy_config, toy_stamp, toy_statistics

Moments = tuple[list[Observation], list[Conditioning]]
CPU = torch.device("cpu")
PIXELS = replace(TOP_DOWN, size=16, channels=3, scale=1)


def vla_config(**changes: Any) -> PolicyConfig:
    """A configuration with 16 px images and the smallest network."""
    usual = {"network": PI0_DEBUG, "image": PIXELS, "future_image": False, "future_state": False}
    return toy_config(**{**usual, **changes})


def vla_model(seed: int = 0, **changes: Any) -> VisionLanguageActionModel:
    torch.manual_seed(seed)
    model = vla_config(**changes).network.model()(vla_config(**changes)).eval()
    assert isinstance(model, VisionLanguageActionModel)
    return model


def vla_policy(seed: int = 0, **changes: Any) -> TrainedPolicy:
    model = vla_model(seed, **changes)
    return TrainedPolicy(model, toy_statistics(model.config), toy_stamp(model.config.retrieval_name), None)


def random_batch(model: VisionLanguageActionModel, n: int, seed: int = 0) -> Batch:
    """A batch of noise with every slot present and instructions of different lengths."""
    draw = torch.Generator().manual_seed(seed)
    values = {s.name: torch.randn(n, *model.shape(s), generator=draw) for s in model.layout.slots}
    present = torch.ones(n, len(model.layout.slots), dtype=torch.bool)
    tasks = ["push the block" if i % 2 else "push" for i in range(n)]
    return Batch(values, present, model.task_encoder(model.config)(tasks))


def noise_of(model: VisionLanguageActionModel, n: int, seed: int = 0) -> dict[str, Tensor]:
    return model.draw_noise(n, torch.Generator().manual_seed(seed), CPU)


def dice(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.fixture(scope="module")
def model() -> VisionLanguageActionModel:
    return vla_model()


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return vla_policy()


@pytest.fixture(scope="module")
def three(policy: TrainedPolicy) -> Moments:
    return moments(policy, 3)


# --- the model ---


def test_only_the_actions_are_denoised(model: VisionLanguageActionModel) -> None:
    batch, noise = random_batch(model, 3), noise_of(model, 3)
    assert [slot.name for slot in model.denoised] == ["action"]
    with torch.inference_mode():
        found = model(batch, noise, torch.rand(3))
        tokens, present = model.embed(batch)
    assert {name: value.shape for name, value in found.items()} == {"action": (3, 16)}
    assert model.losses(batch, noise, torch.rand(3))["action"].shape == (3,)
    assert model.sample(batch, noise, SamplingConfig(n_steps=3))["action"].shape == (3, 16)
    # Three images of four patches, eight words, the retrieved proprioception and eight retrieved actions.
    assert tokens.shape == (3, 3 * 4 + 8 + 1 + 8, 64)
    assert present.sum(1).tolist() == [29 - 6, 29 - 4, 29 - 6], "padding tokens are marked as absent"
    assert model.n_tokens == tokens.shape[1] + 1 + 8


def test_retrieved_and_denoised_steps_have_a_constant_position_offset(
    model: VisionLanguageActionModel,
) -> None:
    batch = random_batch(model, 2)
    present = batch.present.clone()
    present[0, model.layout.index("frame/top")] = False
    with torch.inference_mode():
        tokens, there = model.embed(replace(batch, present=present))
        steps = model.ports["retrieved_action"](
            model._steps("retrieved_action", batch.values["retrieved_action"])
        )
    assert torch.equal(tokens[:, -8:], steps), "the prefix ends with the retrieved actions"
    position = there.cumsum(-1) - 1  # followed by the state and then the actions
    first = there.sum(-1) + 1
    assert (first[:, None] + torch.arange(8) - position[:, -8:]).unique().tolist() == [9]
    assert first[0] != first[1], "although one row has fewer tokens"


def test_without_retrieval_the_outputs_equal_the_published_network() -> None:
    model = vla_model(retrieval=False, residual=False)
    batch, noise, level = random_batch(model, 2), noise_of(model, 2), torch.tensor([0.3, 0.8])
    sizes, network = PI0_DEBUG, model.network
    words = batch.text.clamp_min(0)
    ids = torch.cat([torch.full((2, 4), sizes.n_words), words], dim=1)
    present = torch.cat([torch.ones(2, 4), batch.text >= 0], dim=1).long()
    pad = torch.nn.functional.pad
    with torch.inference_mode():
        theirs = network(
            state=pad(batch.values["proprio"], (0, 32 - 18)),
            noise=pad(noise["action"].view(2, 8, 2), (0, 30)),
            timestep=level,
            input_ids=ids,
            pixel_values=batch.values["frame/top"][:, None],
            pixel_attention_mask=torch.ones(2, 1, dtype=torch.bool),
            attention_mask=present,
        ).logits[..., :2]
        ours = model(batch, noise, level)["action"].view(2, 8, 2)
    assert theirs.abs().max() > 0.01, "the prediction is not zero"
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_prefix_does_not_depend_on_the_noisy_actions(model: VisionLanguageActionModel) -> None:
    batch, level = random_batch(model, 2), torch.full((2,), 0.7)
    inner: Any = model.network.model
    states: list[Tensor] = []
    hook = inner.dit.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
    with torch.inference_mode():
        prefix = model.read(batch)
        before = [(layer.keys.clone(), layer.values.clone()) for layer in prefix.cache.layers]
        one, other = (model(batch, noise_of(model, 2, seed), level, prefix)["action"] for seed in (0, 1))
        fresh = model(batch, noise_of(model, 2, 1), level)["action"]
    hook.remove()
    assert not torch.allclose(one, other)
    assert torch.equal(other, fresh), "a reused prefix gives the same result as a new one"
    for layer, (keys, values) in zip(prefix.cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)
    assert torch.allclose(states[0][:, 0], states[1][:, 0], atol=1e-6), (
        "the state's token does not change either"
    )
    assert not torch.allclose(states[0][:, 1:], states[1][:, 1:])


def test_absent_slots_are_masked(model: VisionLanguageActionModel) -> None:
    batch, noise, level = random_batch(model, 2), noise_of(model, 2), torch.full((2,), 0.5)
    present = batch.present.clone()
    gone = [slot for slot in model.layout.slots if slot.retrieved]
    present[:, [model.layout.index(slot.name) for slot in gone]] = False
    other = {**batch.values, **{slot.name: 9 * torch.randn_like(batch.values[slot.name]) for slot in gone}}
    with torch.inference_mode():
        whole = model(batch, noise, level)["action"]
        without = model(replace(batch, present=present), noise, level)["action"]
        again = model(replace(batch, present=present, values=other), noise, level)["action"]
        for slot in gone:
            changed = {**batch.values, slot.name: other[slot.name]}
            assert not torch.allclose(model(replace(batch, values=changed), noise, level)["action"], whole)
    assert torch.allclose(without, again, atol=1e-6)
    assert not torch.allclose(whole, without)


@pytest.mark.parametrize("inputs", ["I+S", "S"])
def test_every_trainable_weight_gets_a_gradient(inputs: str) -> None:
    """Otherwise distributed training would wait forever for a missing gradient."""
    model = vla_model(inputs=inputs).train()
    model.losses(random_batch(model, 2), noise_of(model, 2), torch.rand(2))["action"].sum().backward()
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {name for name, p in model.named_parameters() if p.grad is not None}
    assert "ports.retrieved_action.weight" in learning
    assert any("vision_tower" in name for name in learning) == (inputs != "S")


def test_the_network_overfits_a_repeated_batch() -> None:
    model = vla_model(inputs="S").train()
    batch, draw = random_batch(model, 4), torch.Generator().manual_seed(0)
    many = Batch(
        {k: v.repeat(4, 1) for k, v in batch.values.items()},
        batch.present.repeat(4, 1),
        batch.text.repeat(4, 1),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    history = []
    for _ in range(120):
        noise = model.draw_noise(16, draw, CPU)
        loss = model.losses(many, noise, torch.rand(16, generator=draw))["action"].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss.detach()))
    assert np.mean(history[-10:]) < 0.3 * np.mean(history[:10])
    found = model.eval().sample(batch, noise_of(model, 4), SamplingConfig(n_steps=8))["action"]
    error = (found - batch.values["action"]).square().mean()
    assert error < 0.3 * batch.values["action"].square().mean(), "sampling reproduces the actions"


# --- the policy ---


def test_batched_prediction_equals_single_prediction(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    together = policy.predict_action_chunk(observations, given, dice(0, 1, 2))
    for i, chunk in enumerate(together):
        alone = policy.predict_action_chunk([observations[i]], [given[i]], dice(i))[0]
        assert np.allclose(chunk.actions, alone.actions, atol=1e-3)
        assert (chunk.predicted_latents, chunk.predicted_state) == (None, None)
    assert policy.predict_action_chunk([], []) == []


def test_a_chunk_is_the_retrieved_chunk_plus_a_residual(policy: TrainedPolicy, three: Moments) -> None:
    for chunk, given in zip(policy.predict_action_chunk(*three, dice(0, 1, 2)), three[1], strict=True):
        assert chunk.actions.shape == (8, 2)
        assert np.allclose(chunk.actions - chunk.residual, given.actions[0], atol=1e-3)
        assert np.abs(chunk.residual).max() > 1


def test_equal_seeds_give_equal_chunks(policy: TrainedPolicy, three: Moments) -> None:
    one, same, other = (
        policy.predict_action_chunk(*three, torch.Generator().manual_seed(seed))[0].actions
        for seed in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


def test_without_a_match_the_residual_is_added_to_holding_still(
    policy: TrainedPolicy, three: Moments
) -> None:
    observations, given = three
    empty = nothing_retrieved(observations[0], policy.config)
    chunk, neighbour = policy.predict_action_chunk(observations[:2], [empty, given[1]], dice(0, 1))
    assert np.allclose(chunk.actions - chunk.residual, empty.now, atol=1e-3)
    alone = policy.predict_action_chunk([observations[1]], [given[1]], dice(1))[0]
    assert np.allclose(neighbour.actions, alone.actions, atol=1e-3)


def test_retrieval_can_be_turned_off(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    other = replace(given[0], actions=given[0].actions + 30)
    a, b = (policy.predict_action_chunk(observations[:1], [g], dice(0))[0] for g in (given[0], other))
    assert not np.allclose(a.residual, b.residual), "the retrieved chunk matters"
    blind = vla_policy(retrieval=False, residual=False)
    assert not any(slot.retrieved for slot in blind.model.layout.slots)
    assert not any(name.startswith("ports") for name in blind.model.state_dict())
    c, d = (blind.predict_action_chunk(observations[:1], [g], dice(0))[0] for g in (given[0], other))
    assert np.array_equal(c.actions, d.actions), "without retrieval the chunk has no effect"


def test_the_network_gets_the_pixels_of_the_canonical_image(policy: TrainedPolicy, three: Moments) -> None:
    image, frame = three[0][0].images["top"], three[1][0].frame
    pixels = policy.encode_frames([image], [frame], ["top"])
    assert pixels.shape == (1, 3, 16, 16)
    assert (pixels.min() >= -1, pixels.max() <= 1) == (True, True)
    canonical = canonical_image(image, frame, policy.config.image, aligned=True)
    assert np.array_equal(policy.decode_frames(pixels)[0], canonical)
    white = replace(three[0][0], images={"top": np.full_like(image, 255)})
    a, b = (policy.predict_action_chunk([o], three[1][:1], dice(0))[0].actions for o in (three[0][0], white))
    assert not np.allclose(a, b)


def test_the_cache_of_retrieved_images_is_bounded_in_bytes(
    policy: TrainedPolicy, three: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = MemoryView([drawn(random_episode("shown", 1))])
    kept = RetrievedLatents()
    monkeypatch.setattr("recap.latents.MAX_BYTES", 3 * 3 * 16 * 16 * 4)
    for given in three[1]:
        (seen,) = kept.add(policy, [(shown, given)])
        assert seen.latents is not None
        assert seen.latents.shape == (2, 3, 16, 16)
    assert len(kept._cache) == 3


# --- on disk ---


@pytest.fixture
def saved(policy: TrainedPolicy, tmp_path: Path) -> Path:
    save_pretrained(policy, tmp_path / "tiny")
    return tmp_path / "tiny"


def test_a_checkpoint_stores_its_backbone_and_loads_the_same_policy(
    policy: TrainedPolicy, saved: Path, three: Moments
) -> None:
    again = from_pretrained(saved)
    assert isinstance(again.model, VisionLanguageActionModel)
    assert (again.config, again.fingerprint) == (policy.config, policy.fingerprint)
    one, other = (p.predict_action_chunk(*three, dice(0, 1, 2))[2].actions for p in (policy, again))
    assert np.array_equal(one, other)
    body = json.loads((saved / "config.json").read_text("utf-8"))
    assert (body["policy"]["backbone"], body["autoencoder"]) == ("pi0", None)
    card = (saved / "README.md").read_text("utf-8")
    assert "vision-language-action model of the π0 type" in card
    assert "residual over the retrieved chunk" in card


def config_with(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        body = json.loads((folder / "config.json").read_text("utf-8"))
        change(body["policy"])
        (folder / "config.json").write_text(json.dumps(body), "utf-8")

    return damage


def weights_with(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        body = json.loads((folder / "config.json").read_text("utf-8"))
        body["weights_sha256"] = file_sha256(folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(body), "utf-8")

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (config_with(lambda p: p.update(backbone="pi9")), "unknown backbone 'pi9'"),
        (config_with(lambda p: p.pop("backbone")), "unknown backbone ''"),
        (config_with(lambda p: p.update(backbone="cosmos")), "the policy's network lacks 'mlp_ratio'"),
        (config_with(lambda p: p["network"].pop("expert_dim")), "the policy's network lacks 'expert_dim'"),
        (
            config_with(lambda p: p["network"].update(num_layers="two")),
            "the policy's network cannot be read at 'num_layers'",
        ),
        (config_with(lambda p: p["network"].update(num_layers=0)), "network.num_layers is 0: give a whole"),
        (config_with(lambda p: p["network"].update(expert_dim=63)), "expert_dim is 63: give an even number"),
        (config_with(lambda p: p["network"].update(vision_heads=3)), "give a multiple of vision_heads"),
        (config_with(lambda p: p["network"].update(n_words=3)), "n_words is 3: give 4 or more"),
        (config_with(lambda p: p.update(future_image=True)), "predicts actions: set"),
        (
            config_with(lambda p: p.update(retrieval=False, residual=False)),
            "have an unknown 'retrieved_act",
        ),
        (weights_with(lambda w: w.pop("ports.retrieved_action.bias")), "lack 'retrieved_action.bias'"),
        (weights_with(lambda w: w.pop("network.action_out_proj.bias")), "lack 'action_out_proj.bias'"),
        (weights_with(lambda w: w.update({"network.extra": torch.ones(1)})), "have an unknown 'extra'"),
    ],
)
def test_a_damaged_checkpoint_is_a_one_line_error(
    damage: Callable[[Path], None], words: str, saved: Path
) -> None:
    damage(saved)
    with pytest.raises(RecapError, match=words) as caught:
        from_pretrained(saved)
    assert "\n" not in str(caught.value)


def test_loading_published_weights_does_not_change_the_retrieval_ports(tmp_path: Path) -> None:
    torch.manual_seed(7)
    published: Any = build_pi0(PI0_DEBUG, 16, 8)
    published.save_pretrained(tmp_path)
    model = vla_model()
    before = {key: value.clone() for key, value in model.ports.state_dict().items()}
    model.load_published(str(tmp_path))
    theirs = published.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in model.network.state_dict().items())
    assert all(torch.equal(value, before[key]) for key, value in model.ports.state_dict().items())


# --- refused settings ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"future_state": True}, "predicts actions: set future_image and future_state to false"),
        ({"image": replace(TOP_DOWN, size=16)}, "sees pixels in patches of 8: set image.channels=3"),
        ({"image": replace(PIXELS, size=20)}, "image.size to a multiple of 8"),
    ],
)
def test_settings_that_do_not_fit_the_network_are_an_error(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        vla_config(**changes)


def test_unsupported_operations_of_a_pi0_network_are_an_error(
    policy: TrainedPolicy, model: VisionLanguageActionModel
) -> None:
    with pytest.raises(InputError, match="set checkpointing=false"):
        model.recompute_activations()
    with pytest.raises(InputError, match="use a Cosmos policy"):
        WatchedPolicy(policy, [Mask.parse("retrieved@0")])
    with pytest.raises(InputError, match="slot 'action' is 2 wide, the network takes 1"):
        vla_model(network=replace(PI0_DEBUG, max_action_dim=1))
    with pytest.raises(InputError, match="tokenizer '/nowhere' does not exist"):
        vla_policy(text="/nowhere")
