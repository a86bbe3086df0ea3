"""Batches: drawing samples and augmenting them consistently."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recap.policies.model import Batch
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import AugmentConfig, TrainConfig
from recap.training.data import TrainingData, build_data
from recap.training.latent_files import Variants, encode_pictures
from recap.training.motion import Motion
from recap.types import F32, Episode
from toy_policy import demonstrations, toy_encoder

Configure = Callable[..., TrainConfig]
CPU = torch.device("cpu")
IN_WORLD = ("policy.retrieval_name=pusht-world", "policy.canonical=false")


def source_of(data: TrainingData, config: TrainConfig) -> BatchSource:
    latents = torch.zeros(0)
    if config.policy.sees:
        latents = encode_pictures(toy_encoder(), data.pictures, CPU)
    return BatchSource(data.train, latents, data.statistics, config.policy, CPU)


@pytest.fixture(scope="module")
def seeing(data: TrainingData, configure: Configure) -> BatchSource:
    return source_of(data, configure())


@pytest.fixture(scope="module")
def source(state_data: TrainingData, configure: Configure) -> BatchSource:
    return source_of(state_data, configure("policy.inputs=S"))


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def everything(source: BatchSource, augment: AugmentConfig, seed: int = 0) -> Batch:
    return source.take(torch.arange(len(source)), augment, dice(seed))


def world_action(source: BatchSource, batch: Batch) -> torch.Tensor:
    return batch.values["action"] * source._std["action"] + source._mean["action"]


def mirrored(episode: Episode) -> Episode:
    """The episode mirrored left to right."""
    sign, width = np.array([-1, 1], np.float32), np.array([512, 0], np.float32)
    pose = np.array([-1, 1, -1], np.float32)
    offset = np.array([512, 0, 0], np.float32)
    assert episode.goal is not None
    return replace(
        episode,
        proprio=episode.proprio * sign + width,
        actions=episode.actions * sign + width,
        objects={"block": episode.objects["block"] * pose + offset},
        goal=episode.goal * pose + offset,
    )


@pytest.mark.parametrize("frame", [(), IN_WORLD], ids=["object", "world"])
def test_mirroring_twice_is_the_identity(frame: tuple[str, ...], configure: Configure) -> None:
    motion = Motion(configure(*frame).policy, CPU)
    for name, columns in motion.columns.items():
        values, every = torch.randn(3, len(columns.mirror)), torch.ones(3, dtype=torch.bool)
        once = motion.mirrored(name, values, every)
        assert torch.allclose(motion.mirrored(name, once, every), values, atol=1e-4)
        assert not torch.equal(once, values)
        assert torch.equal(motion.mirrored(name, values, ~every), values)


@pytest.mark.parametrize("frame", [(), IN_WORLD], ids=["object", "world"])
def test_a_mirrored_sample_is_a_sample_of_the_mirrored_scene(
    frame: tuple[str, ...], configure: Configure
) -> None:
    config = configure("policy.inputs=S", *frame, "pairs.k=1")
    target, pool = demonstrations("triangle", range(6)), demonstrations("disc", range(10, 18))
    data = build_data(target, pool, config)
    other = build_data([mirrored(e) for e in target], [mirrored(e) for e in pool], config)
    source = source_of(data, config)
    beyond = source_of(replace(other, statistics=data.statistics), config)
    plain, image = everything(source, NO_AUGMENT), everything(beyond, NO_AUGMENT)
    found = everything(source, replace(NO_AUGMENT, mirror=True))
    n_swapped = 0
    for row in range(len(source)):
        same, swapped = (
            all(torch.allclose(found.values[n][row], b.values[n][row], atol=2e-2) for n in found.values)
            for b in (plain, image)
        )
        assert same != swapped
        n_swapped += swapped
    assert 0.2 * len(source) < n_swapped < 0.8 * len(source)


def turned(episode: Episode, angle: float) -> Episode:
    """The scene rotated about the centre of the board."""
    middle = np.array([256.0, 256.0])
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]])

    def place(values: F32) -> F32:
        return ((values[..., :2] - middle) @ turn.T + middle).astype(np.float32)

    def pose(values: F32) -> F32:
        return np.concatenate([place(values), values[..., 2:] + angle], axis=-1).astype(np.float32)

    assert episode.goal is not None
    return replace(
        episode,
        proprio=place(episode.proprio),
        actions=place(episode.actions),
        objects={"block": pose(episode.objects["block"])},
        goal=pose(episode.goal),
    )


def test_a_rotated_sample_is_a_sample_of_the_rotated_scene(configure: Configure) -> None:
    config = configure("policy.inputs=S", *IN_WORLD, "pairs.k=1")
    target, pool = demonstrations("triangle", range(6)), demonstrations("disc", range(10, 18))
    data = build_data(target, pool, config)
    other = build_data([turned(e, 0.7) for e in target], [turned(e, 0.7) for e in pool], config)
    source = source_of(data, config)
    angle, middle = torch.full((len(source),), 0.7), torch.full((len(source), 2), 256.0)
    for name in ("proprio", "future_proprio"):
        found = source.motion.columns[name].turned(torch.from_numpy(data.train.fixed[name]), angle, middle)
        assert torch.allclose(found, torch.from_numpy(other.train.fixed[name]), atol=2e-2), name
    for name in ("retrieved_proprio", "retrieved_action"):
        shown = torch.from_numpy(data.train.matched[name][:, 0])
        found = source.motion.columns[name].turned(shown, angle, middle)
        assert torch.allclose(found, torch.from_numpy(other.train.matched[name][:, 0]), atol=2e-2), name


def test_only_samples_without_images_are_rotated_together_with_their_residual(configure: Configure) -> None:
    config = configure("policy.inputs=S", *IN_WORLD, "pairs.k=1")
    data = build_data(demonstrations("triangle", range(6)), demonstrations("disc", range(10, 18)), config)
    source = source_of(data, config)
    plain = world_action(source, everything(source, NO_AUGMENT)).view(len(source), -1, 2)
    blind = replace(NO_AUGMENT, turn=60.0, image_dropout=1.0)
    found = world_action(source, everything(source, blind)).view(len(source), -1, 2)
    assert torch.allclose(found.norm(dim=-1), plain.norm(dim=-1), atol=0.05)
    assert not torch.allclose(found, plain, atol=1.0)
    seeing = world_action(source, everything(source, replace(NO_AUGMENT, turn=60.0)))
    assert torch.allclose(seeing.view_as(plain), plain, atol=1e-4)


def test_the_same_seed_gives_the_same_batch(seeing: BatchSource) -> None:
    a, b, c = (seeing.draw(8, AugmentConfig(), dice(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a.values[name], b.values[name]) for name in a.values)
    assert torch.equal(a.present, b.present)
    assert not torch.equal(a.values["action"], c.values["action"])


def test_the_action_is_given_to_the_configured_share_and_values_stay_unchanged(source: BatchSource) -> None:
    plain = everything(source, NO_AUGMENT)
    assert plain.acted is None
    asked = everything(source, replace(NO_AUGMENT, action_given=0.5))
    assert torch.equal(asked.values["action"], plain.values["action"])
    many = source.draw(400, replace(NO_AUGMENT, action_given=0.25), dice()).acted
    assert many is not None
    assert 0.15 < many.float().mean() < 0.35


def test_with_dropped_retrieval_the_residual_is_relative_to_holding_still(source: BatchSource) -> None:
    batch = everything(source, replace(NO_AUGMENT, retrieval_dropout=1.0))
    retrieved = torch.tensor([slot.retrieved for slot in source.layout.slots])
    assert not batch.present[:, retrieved].any()
    assert batch.present[:, ~retrieved].all()
    here = torch.from_numpy(source.samples.fixed["proprio"][:, :2]).repeat(1, 8)
    wanted = torch.from_numpy(source.samples.actions) - here
    assert torch.allclose(world_action(source, batch), wanted, atol=1e-2)


def test_retrieved_chunks_and_images_are_dropped_at_the_configured_rates(seeing: BatchSource) -> None:
    batch = seeing.draw(400, AugmentConfig(retrieval_dropout=0.25, image_dropout=0.5), dice())
    chunk = batch.present[:, seeing.layout.index("retrieved_action")].float().mean()
    frame = batch.present[:, seeing.layout.index("frame/top")].float().mean()
    assert chunk == pytest.approx(0.75, abs=0.08)
    assert frame == pytest.approx(0.5, abs=0.08)
    assert batch.present[:, seeing.layout.index("proprio")].all()


def test_the_residual_compensates_chunk_noise(source: BatchSource) -> None:
    plain = everything(source, NO_AUGMENT)
    shaken = everything(source, replace(NO_AUGMENT, chunk_noise=4.0))
    name = "retrieved_action"
    std, mean = source._std[name], source._mean[name]
    chunks = [(b.values[name] * std + mean)[:, :16] for b in (plain, shaken)]
    assert not torch.allclose(*chunks, atol=0.5)
    whole = [world_action(source, b) + c for b, c in zip((plain, shaken), chunks, strict=True)]
    assert torch.allclose(*whole, atol=2e-2)
    valid = [b.values[name][:, 16:] for b in (plain, shaken)]
    assert torch.equal(*valid)


def test_state_noise_affects_inputs_but_not_targets(source: BatchSource) -> None:
    plain, shaken = (everything(source, replace(NO_AUGMENT, state_noise=noise)) for noise in (0.0, 1.0))
    assert not torch.equal(plain.values["proprio"], shaken.values["proprio"])
    for name in ("action", "future_proprio"):
        assert torch.equal(plain.values[name], shaken.values[name])


def test_latents_are_those_of_the_samples_images(seeing: BatchSource) -> None:
    batch = everything(seeing, NO_AUGMENT)
    for name in ("frame/top", "future_frame/top"):
        numbers = torch.from_numpy(seeing.samples.images[name])
        assert torch.equal(batch.values[name], seeing.latents[numbers, 0])
    noisy = everything(seeing, replace(NO_AUGMENT, latent_noise=0.1))
    assert not torch.equal(noisy.values["frame/top"], batch.values["frame/top"])
    assert torch.equal(noisy.values["future_frame/top"], batch.values["future_frame/top"])


def test_matches_are_drawn_by_their_weight(source: BatchSource, tmp_path: Path) -> None:
    rows = torch.zeros(3000, dtype=torch.long)
    batch = source.take(rows, NO_AUGMENT, dice())
    name = "retrieved_action"
    chunk = batch.values[name] * source._std[name] + source._mean[name]
    each = torch.from_numpy(source.samples.matched[name][0])  # (k, width)
    picked = torch.cdist(chunk, each).argmin(dim=1)
    share = torch.bincount(picked, minlength=3) / len(rows)
    assert torch.allclose(share, torch.from_numpy(source.samples.weight[0]), atol=0.04)


@pytest.mark.parametrize("changes", [(), ("augment.image_copies=2",)])
def test_drawing_some_rows_equals_those_rows_of_the_whole_batch(
    data: TrainingData, configure: Configure, changes: tuple[str, ...]
) -> None:
    augment = configure("augment.chunk_noise=3", "augment.state_noise=2", *changes).augment
    variants = Variants(augment.image_copies, 0.1, 0.2, data.owners) if changes else None
    latents = encode_pictures(toy_encoder(), data.pictures, CPU, variants=variants)
    source = BatchSource(data.train, latents, data.statistics, configure().policy, CPU)
    whole = source.draw(8, augment, torch.Generator().manual_seed(1))
    some = torch.tensor([5, 1, 2])
    part = source.draw(8, augment, torch.Generator().manual_seed(1), some)
    for name, values in whole.values.items():
        assert torch.equal(part.values[name], values[some]), name
    assert torch.equal(part.present, whole.present[some])
    assert torch.equal(part.text, whole.text[some])


def test_image_copies_use_the_same_variation_within_a_demonstration(data: TrainingData) -> None:
    assert data.owners is not None
    variants = Variants(2, 0.2, 0.3, data.owners)
    everything = slice(0, len(data.pictures))
    copies = [variants(data.pictures, everything, copy) for copy in range(2)]
    assert np.array_equal(copies[0], variants(data.pictures, everything, 0))
    assert not np.array_equal(copies[0], copies[1])
    grey = Variants(1, 0.0, 0.3, data.owners)(data.pictures, everything, 0)
    first = data.owners == data.owners[0]
    white = (data.pictures[first] == 255).all(axis=-1)
    assert len(np.unique(grey[first][white], axis=0)) == 1, "one brightness for a whole demonstration"
    assert np.array_equal(Variants(1, 0.0, 0.0, data.owners)(data.pictures, everything, 0), data.pictures)
