"""Training with two arms: data, augmentation, presets, and a complete run at toy size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from made_arms import demonstrations
from recap.errors import InputError
from recap.policies.checkpoint import from_pretrained
from recap.policies.layout import build_layout
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import AugmentConfig, TrainConfig, from_json
from recap.training.data import TrainingData, build_data, load_data, where
from recap.training.presets import preset
from recap.training.trainer import train
from recap.types import Episode
from recap_worlds.dualarm.recipes import RECIPES
from toy_policy import demonstrations as pushes

N = 6
N_FRAMES = 8  # of a short demonstration


def cut(episode: Episode) -> Episode:
    """The first frames of an episode."""
    head = slice(0, N_FRAMES)
    return replace(
        episode,
        timestamps=episode.timestamps[head],
        proprio=episode.proprio[head],
        actions=episode.actions[head],
        objects={name: poses[head] for name, poses in episode.objects.items()},
        images={camera: frames[head] for camera, frames in episode.images.items()},
    )


@pytest.fixture(scope="module")
def sides() -> tuple[list[Episode], list[Episode]]:
    return demonstrations("viperx", range(N)), demonstrations("ur5e", range(N))


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return preset("debug-dualarm", ["policy.inputs=S", "pairs.leave_out=false"])


@pytest.fixture(scope="module")
def data(
    sides: tuple[list[Episode], list[Episode]], config: TrainConfig, tmp_path_factory: pytest.TempPathFactory
) -> TrainingData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return build_data(*sides, config)


def taken(data: TrainingData, config: TrainConfig, augment: AugmentConfig) -> dict[str, torch.Tensor]:
    """Every training sample, in unnormalised units."""
    cpu = torch.device("cpu")
    source = BatchSource(data.train, torch.zeros(0), data.statistics, config.policy, cpu)
    batch = source.take(torch.arange(len(source)), augment, torch.Generator().manual_seed(0))
    return {name: v * source._std[name] + source._mean[name] for name, v in batch.values.items()}


def test_the_debug_preset_trains_from_packed_frames(tmp_path: Path) -> None:
    files, n = {}, 4 * N_FRAMES
    for name in ("viperx", "ur5e"):
        files[name] = tmp_path / f"{name}.safetensors"
        short = [cut(episode) for episode in demonstrations(name, range(4))]
        write_packed(MemoryView(short), files[name], films=False)
    config = replace(
        preset("debug-dualarm", ["n_iterations=4", "validate_every=4", "save_every=4"]),
        target=str(files["viperx"]),
        pool=str(files["ur5e"]),
    )
    data = load_data(config)
    assert 3 * n < len(data.pictures) <= 4 * n, (
        "three images of each frame and some of the pool, each stored once"
    )
    outcome = train(config, tmp_path / "run", data=data, device="cpu")
    assert outcome.iterations == 4
    policy = from_pretrained(outcome.last)
    assert policy.config == config.policy
    assert policy.stamp.name == "dualarm-parts"
    assert (tmp_path / "run" / "samples.png").is_file()


def test_the_residual_to_the_same_scene_is_the_difference_between_the_robots(data: TrainingData) -> None:
    residual = (data.train.actions - data.train.base[:, 0]) * data.train.valid
    places = residual.reshape(len(data.train), -1, 2, 10)[..., :3]
    assert np.sqrt(np.square(places).mean()) < 0.03, "in metres"


def test_nearly_constant_values_have_a_minimum_deviation(data: TrainingData) -> None:
    for name, std in data.statistics.std.items():
        assert std.min() >= (0.002 if name == "action" else 0.02) - 1e-6
    assert data.statistics.std["proprio"][9] >= 0.2, "a gripper"


def test_shifting_the_scene_changes_no_residual(data: TrainingData, config: TrainConfig) -> None:
    still = taken(data, config, NO_AUGMENT)
    aside = taken(data, config, replace(NO_AUGMENT, image_dropout=1.0, shift=0.05))
    for name in ("action", "retrieved_action"):
        torch.testing.assert_close(aside[name], still[name], atol=1e-5, rtol=0)
    by = aside["proprio"] - still["proprio"]
    assert 0.03 < float(by[:, 0].std()) < 0.07
    for x, y in ((10, 11), (20, 21)):  # the right tool, the first object
        torch.testing.assert_close(by[:, [0, 1]], by[:, [x, y]], atol=1e-5, rtol=0)
    assert not by[:, 2:10].abs().gt(1e-6).any()
    seeing = taken(data, config, replace(NO_AUGMENT, shift=0.05))
    torch.testing.assert_close(seeing["proprio"], still["proprio"])  # an image says where it is


def test_chunk_noise_leaves_grippers_unchanged_and_the_residual_compensates_it(
    data: TrainingData, config: TrainConfig
) -> None:
    still = taken(data, config, NO_AUGMENT)
    noisy = taken(data, config, replace(NO_AUGMENT, chunk_noise=0.01, chunk_turn=0.02))
    horizon = config.policy.chunk_size
    moved = (noisy["retrieved_action"] - still["retrieved_action"])[:, : 20 * horizon]
    torch.testing.assert_close(noisy["action"] - still["action"], -moved, atol=1e-5, rtol=0)
    spread = moved.reshape(-1, horizon, 20)[:, 0].std(0)
    assert (spread[[9, 19]] < 1e-6).all()
    assert ((spread[:3] > 0.005) & (spread[:3] < 0.02)).all()
    assert ((spread[3:9] > 0.01) & (spread[3:9] < 0.04)).all()


def test_without_a_residual_actions_are_relative_to_the_current_tools(
    sides: tuple[list[Episode], list[Episode]], config: TrainConfig
) -> None:
    alone = replace(
        config, policy=replace(config.policy, retrieval_name="dualarm-world", retrieval=False, residual=False)
    )
    data = build_data(*sides, alone)
    found = taken(data, alone, NO_AUGMENT)["action"][0].reshape(-1, 20).numpy()
    first = sides[0][0]
    want = first.actions[: len(found)].copy()
    want[:, [0, 1, 2, 10, 11, 12]] -= first.proprio[0, [0, 1, 2, 10, 11, 12]]
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_a_demonstration_with_the_actions_of_another_task_is_left_out(config: TrainConfig) -> None:
    target = demonstrations("viperx", range(8))
    wrong = demonstrations("viperx", range(50, 51), "lift_pot")[0]
    n = min(len(wrong), len(target[1]))
    spoilt = np.concatenate([wrong.actions[:n], np.repeat(target[1].actions[-1:], len(target[1]) - n, 0)])
    target[1] = replace(target[1], actions=spoilt)
    chosen = replace(config, pairs=replace(config.pairs, leave_out=True), held_out=0.1)
    data = build_data(target, demonstrations("ur5e", range(8)), chosen)
    assert data.left_out == (target[1].id,)
    assert data.n_episodes == (7, 1, 8)


def test_where_selects_tasks_by_their_key(sides: tuple[list[Episode], list[Episode]]) -> None:
    both = [*sides[0], *demonstrations("viperx", range(2), "lift_pot")]
    assert where(both, ("task_key=move_can_pot",)) == sides[0]
    assert where(both, ("task_key=move_can_pot", "task_key=lift_pot")) == where(both, ()) == both


def test_demonstrations_of_another_world_are_errors(
    sides: tuple[list[Episode], list[Episode]], config: TrainConfig
) -> None:
    with pytest.raises(InputError, match=r"target .* has 2-D action, robot 'dualarm' 20-D"):
        build_data(pushes("triangle", range(4)), sides[1], config)
    with pytest.raises(InputError, match=r"pool .* has 2-D action, robot 'dualarm' 20-D"):
        build_data(sides[0], pushes("disc", range(4)), config)
    with pytest.raises(InputError, match=r"target .* has 20-D action, robot 'pusht' 2-D"):
        build_data(sides[0], pushes("disc", range(4)), preset("debug"))


def test_mirroring_a_two_arm_robot_is_an_error() -> None:
    with pytest.raises(
        InputError, match=r"robot 'dualarm' has no left and right to swap: set augment.mirror=false"
    ):
        preset("dualarm-nano", ["augment.mirror=true"])


def test_dualarm_presets_have_consistent_settings() -> None:
    ours, world = RECIPES["dualarm-nano"], RECIPES["dualarm-nano-world"]
    alone, all_pools = RECIPES["dualarm-nano-no-retrieval"], RECIPES["dualarm-nano-co-training"]
    ceiling = RECIPES["dualarm-nano-supervised"]
    assert ours.policy.retrieval_name == "dualarm-parts"
    assert world.policy == replace(ours.policy, retrieval_name="dualarm-world")
    assert len(ours.target_where) == len(ours.pool_where) == 5
    assert (alone.policy.retrieval, alone.policy.residual) == (False, False)
    assert all_pools.co_training
    assert (all_pools.target_where, all_pools.pool_where) == (ours.target_where, ())
    assert (ceiling.target_where, ceiling.co_training) == ((), False)
    for config in (ours, alone, all_pools, ceiling):
        small = RECIPES[config.preset.replace("nano", "small")]
        assert small.policy == replace(config.policy, inputs="S", network=small.policy.network)
        assert (small.pairs, small.augment, small.co_training) == (
            config.pairs,
            config.augment,
            config.co_training,
        )
        assert (small.target_where, small.pool_where) == (config.target_where, config.pool_where)
        assert (small.policy.sees, small.compile) == (False, False), "for a CPU"
    apart = RECIPES["dualarm-small-world"]
    assert (apart.policy.retrieval_name, apart.policy.sees) == ("dualarm-world", False)
    assert apart.policy.relative_object_poses
    assert apart.augment.displaces
    assert apart.augment.image_dropout == 1.0
    assert build_layout(apart.policy).n_tokens == 5, "one token for each slot"
    for config in (ours, world, apart, alone, all_pools, ceiling, preset("pusht-nano")):
        assert from_json(config.to_json()) == config
