"""The world-action model: action and future are denoised together, given slots stay unchanged."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recap.errors import InputError
from recap.policies.config import SamplingConfig
from recap.policies.model import Batch, given_action
from recap.policies.network import with_coordinates
from recap.policies.wam import CLEAN_LEVEL, WorldActionModel
from toy_policy import random_batch, toy_config


@pytest.fixture(scope="module")
def model() -> WorldActionModel:
    torch.manual_seed(0)
    return WorldActionModel(toy_config()).eval()


@pytest.fixture(scope="module")
def overfitted() -> tuple[WorldActionModel, Batch, list[float]]:
    """A state-only model overfitted on four samples."""
    torch.manual_seed(0)
    model = WorldActionModel(toy_config(inputs="S"))
    batch = random_batch(model, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)
    many = Batch(
        {k: v.repeat(8, 1) for k, v in batch.values.items()},
        batch.present.repeat(8, 1),
        batch.text.repeat(8, 1, 1),
    )
    history = []
    for _ in range(250):
        noise = model.draw_noise(32, draw, torch.device("cpu"))
        losses = model.losses(many, noise, torch.rand(32, generator=draw))
        loss = sum(value.mean() for value in losses.values())
        assert isinstance(loss, Tensor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss.detach()))
    return model.eval(), batch, history


def noise_of(model: WorldActionModel, n: int, seed: int = 0) -> dict[str, Tensor]:
    return model.draw_noise(n, torch.Generator().manual_seed(seed), torch.device("cpu"))


def test_given_slots_do_not_change_during_sampling(
    model: WorldActionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    assemble = WorldActionModel.assemble

    def watched(*arguments: object) -> tuple[Tensor, Tensor, Tensor]:
        seen.append(assemble(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(WorldActionModel, "assemble", watched)
    batch = random_batch(model, 2)
    model.sample(batch, noise_of(model, 2), SamplingConfig("euler", 4))
    assert len(seen) == 4
    for i, slot in enumerate(model.layout.slots):
        frames = [frames[:, :, i] for frames, _, _ in seen]
        if slot.denoised:
            assert not torch.equal(frames[0], frames[1])
            assert [float(level[0, i]) for *_, level in seen] == [1.0, 0.75, 0.5, 0.25]
        else:
            value = batch.values[slot.name]
            clean = model.layout.write(value) if slot.kind == "vector" else value
            assert all(torch.equal(frame, clean) for frame in frames)
            assert all(float(level[0, i]) == pytest.approx(CLEAN_LEVEL) for *_, level in seen)
        assert all(bool(given[0, i]) != slot.denoised for _, given, _ in seen)


def test_an_absent_slot_is_marked_and_its_values_are_ignored(model: WorldActionModel) -> None:
    batch = random_batch(model, 2)
    absent = batch.present.clone()
    retrieved = [i for i, slot in enumerate(model.layout.slots) if slot.retrieved]
    absent[:, retrieved] = False
    noise, level = noise_of(model, 2), torch.full((2,), 0.5)
    gone = replace(batch, present=absent)
    frames, given, levels = model.assemble(gone, noise, level)
    assert (frames[:, :, retrieved] == 0).all()
    assert (given[:, retrieved] == 0).all()
    assert (levels[:, retrieved] == 1).all()
    other = {name: value + 5 * ("retrieved" in name) for name, value in batch.values.items()}
    with torch.inference_mode():
        a, b = model(gone, noise, level), model(replace(gone, values=other), noise, level)
        here = model(batch, noise, level)
    assert torch.equal(a["action"], b["action"])
    assert not torch.allclose(a["action"], here["action"])


def test_predictions_have_the_shapes_of_their_slots(model: WorldActionModel) -> None:
    batch, noise = random_batch(model, 3), noise_of(model, 3)
    found = model(batch, noise, torch.full((3,), 0.5))
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "action": (3, 16),
        "future_frame/top": (3, 16, 2, 2),
        "future_proprio": (3, 6),
    }


def test_actions_with_weight_zero_are_not_in_the_loss(model: WorldActionModel) -> None:
    batch, noise, level = random_batch(model, 2), noise_of(model, 2), torch.full((2,), 0.5)
    weight = torch.ones(2, 16)
    weight[:, 8:] = 0
    with torch.inference_mode():
        found = model(batch, {n: 0.5 * batch.values[n] + 0.5 * noise[n] for n in noise}, level)["action"]
        error = (found - (noise["action"] - batch.values["action"])) ** 2
        half = model.losses(replace(batch, weight=weight), noise, level)["action"]
        whole = model.losses(batch, noise, level)["action"]
    assert torch.allclose(half, error[:, :8].mean(1), atol=1e-5)
    assert torch.allclose(whole, error.mean(1), atol=1e-5)


def test_the_loss_falls_on_a_repeated_batch(
    overfitted: tuple[WorldActionModel, Batch, list[float]],
) -> None:
    *_, history = overfitted
    assert sum(history[-20:]) < 0.35 * sum(history[:20])


@pytest.mark.parametrize("sampler", ["euler", "unipc"])
def test_the_sampler_recovers_the_overfitted_samples(
    overfitted: tuple[WorldActionModel, Batch, list[float]], sampler: str
) -> None:
    model, batch, _ = overfitted
    found = model.sample(batch, noise_of(model, 4, 7), SamplingConfig(sampler, 8))  # type: ignore[arg-type]
    for name in ("action", "future_proprio"):
        own = (found[name] - batch.values[name]).square().mean()
        others = (found[name] - batch.values[name].roll(1, 0)).square().mean()
        assert own < 0.25 < others


def test_samples_are_determined_by_their_noise(model: WorldActionModel) -> None:
    batch, config = random_batch(model, 2), SamplingConfig()
    a, b = (model.sample(batch, noise_of(model, 2), config)["action"] for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, model.sample(batch, noise_of(model, 2, 1), config)["action"])


def test_future_change_predicts_the_difference_to_the_current_image(model: WorldActionModel) -> None:
    """The same network: the loss is that of the difference, and samples are whole images."""
    other = WorldActionModel(replace(model.config, future_change=True), model.network)
    batch = random_batch(model, 3)
    noise = model.draw_noise(3, torch.Generator().manual_seed(0), torch.device("cpu"))
    present, future = batch.values["frame/top"], batch.values["future_frame/top"]
    changed = replace(batch, values={**batch.values, "future_frame/top": future - present})
    level = torch.tensor([0.2, 0.5, 0.9])
    for name, loss in other.losses(batch, noise, level).items():
        assert torch.allclose(loss, model.losses(changed, noise, level)[name]), name
    sampling = SamplingConfig(n_steps=2)
    whole, change = (m.sample(batch, noise, sampling) for m in (other, model))
    assert torch.allclose(whole["future_frame/top"], change["future_frame/top"] + present)
    assert torch.equal(whole["action"], change["action"])


def test_future_change_is_normalised_and_trained_only_where_the_image_is_present(
    model: WorldActionModel,
) -> None:
    other = WorldActionModel(replace(model.config, future_change=True), model.network)
    other.deviations = {"future_frame/top": torch.full((16, 1, 1), 0.25)}
    batch = random_batch(model, 2)
    noise = model.draw_noise(2, torch.Generator().manual_seed(0), torch.device("cpu"))
    present, future = batch.values["frame/top"], batch.values["future_frame/top"]
    scaled = replace(batch, values={**batch.values, "future_frame/top": 4 * (future - present)})
    level = torch.tensor([0.2, 0.9])
    wanted = model.losses(scaled, noise, level)
    assert torch.allclose(other.losses(batch, noise, level)["future_frame/top"], wanted["future_frame/top"])
    whole, plain = (m.sample(batch, noise, SamplingConfig(n_steps=2)) for m in (other, model))
    assert torch.allclose(whole["future_frame/top"], present + 0.25 * plain["future_frame/top"])
    batch.present[0, model.layout.index("frame/top")] = False
    assert other.losses(batch, noise, level)["future_frame/top"][0] == 0


def test_coordinates_distinguish_identical_patches_at_different_positions() -> None:
    torch.manual_seed(0)
    config = toy_config(inputs="I")
    for coordinates, apart in ((False, False), (True, True)):
        network = replace(config.network, coordinates=coordinates)
        model = WorldActionModel(replace(config, network=network)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        frames = torch.ones(1, 16, 1, 4, 4)
        if coordinates:
            frames = with_coordinates(frames)
        tokens = model.network.patch_embed(torch.cat([frames, torch.ones(1, 1, 1, 4, 4)], dim=1))
        assert bool((tokens[0, 0, 0, 0] - tokens[0, 0, 1, 1]).abs().max() > 1e-3) is apart


@given(acted=st.lists(st.booleans(), min_size=3, max_size=3), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_given_actions_are_clean_and_marked_per_sample(acted: list[bool], seed: int) -> None:
    model = WorldActionModel(toy_config())
    batch = replace(random_batch(model, 3, seed), acted=torch.tensor(acted))
    noise, i = noise_of(model, 3, seed), model.layout.index("action")
    _, given, levels = model.assemble(batch, given_action(batch, noise), torch.full((3,), 0.7))
    assert given[:, i].tolist() == [float(a) for a in acted]
    assert torch.allclose(levels[:, i], torch.tensor([CLEAN_LEVEL if a else 0.7 for a in acted]))
    now = given_action(batch, noise)["action"]
    for row, a in enumerate(acted):
        assert torch.equal(now[row], (batch.values if a else noise)["action"][row])


def test_a_given_action_is_returned_unchanged_and_affects_the_future() -> None:
    torch.manual_seed(0)
    model = WorldActionModel(toy_config()).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    batch, noise = random_batch(model, 2), noise_of(model, 2)
    acted = replace(batch, acted=torch.tensor([True, True]))
    other = replace(acted, values={**batch.values, "action": batch.values["action"] + 1})
    config = SamplingConfig(n_steps=2, temperature=0.5)
    one, two = (model.sample(b, noise, config) for b in (acted, other))
    assert torch.equal(one["action"], batch.values["action"])
    assert not torch.allclose(one["future_proprio"], two["future_proprio"])


def test_given_actions_have_no_loss_and_the_batch_mean_is_preserved() -> None:
    model = WorldActionModel(toy_config()).eval()
    batch, noise, level = random_batch(model, 4), noise_of(model, 4), torch.rand(4)
    batch = replace(batch, weight=torch.ones(4, model.layout["action"].width))
    acted = replace(batch, acted=torch.tensor([True, False, True, False]))
    plain, found = (model.losses(b, noise, level)["action"] for b in (batch, acted))
    assert found[0] == found[2] == 0
    assert torch.allclose(found[[1, 3]], 2 * plain[[1, 3]], rtol=1e-4)


def test_several_future_images_are_predicted_relative_to_the_current_one() -> None:
    model = WorldActionModel(toy_config(inputs="I", future_change=True, future_steps=(2, 8))).eval()
    names = [slot.name for slot in model.denoised if slot.kind == "image"]
    assert names == ["future_frame_2/top", "future_frame_8/top"]
    batch = random_batch(model, 2)
    for name in names:
        assert torch.equal(model.origin_of(batch, model.layout[name]), batch.values["frame/top"])


@pytest.mark.parametrize("steps", [(0,), (4, 2), (2, 2), (9,)])
def test_future_steps_that_do_not_increase_within_the_chunk_are_an_error(steps: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="future_steps"):
        toy_config(future_steps=steps)


def test_with_future_clean_one_step_returns_the_networks_image() -> None:
    torch.manual_seed(0)
    model = WorldActionModel(toy_config(inputs="I", future_clean=True)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    batch, noise = random_batch(model, 2), noise_of(model, 2)
    told: list[Tensor] = []
    velocity_of = model.velocity_of

    def watched(frame: Tensor, moving: Tensor, level: Tensor) -> Tensor:
        told.append(frame)
        return velocity_of(frame, moving, level)

    model.velocity_of = watched  # type: ignore[method-assign]
    found = model.sample(batch, noise, SamplingConfig(n_steps=1))["future_frame/top"]
    assert torch.allclose(found, told[0], atol=1e-5)


def test_with_beside_the_current_image_is_a_further_input_of_the_future_image() -> None:
    config = toy_config(inputs="I")
    model = WorldActionModel(replace(config, network=replace(config.network, beside=True)))
    batch = random_batch(model, 2)
    batch.present[1, model.layout.index("frame/top")] = False
    frames, _, _ = model.assemble(batch, noise_of(model, 2), torch.full((2,), 0.5))
    beside = frames[:, model.layout.channels :]
    future = model.layout.index("future_frame/top")
    assert torch.equal(beside[0, :, future], batch.values["frame/top"][0])
    assert (beside[1] == 0).all()
    others = [i for i in range(len(model.layout.slots)) if i != future]
    assert (beside[:, :, others] == 0).all()
    assert len(model(batch, noise_of(model, 2), torch.full((2,), 0.5))) == len(model.denoised)
