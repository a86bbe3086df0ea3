"""Displacing a retrieved chunk gives the same numbers as a demonstration in another place."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from made_arms import demonstration as arms_demonstration
from made_arms import demonstrations as arms_demonstrations
from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.policies.vectors import Vectors, vectors_of
from recap.pool.memory import MemoryView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.presets import find_retrieval
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, build_data, training_retrieval
from recap.training.motion import Motion
from recap.training.presets import preset
from recap.training.statistics import statistics_of
from recap.types import F64, Episode, FrameRef
from recap_worlds.dualarm.robot import TWO_ARMS
from toy_policy import demonstrations
from two_arms import moved, yaw

CPU = torch.device("cpu")
PLANE = preset(
    "debug", ["policy.inputs=S", "policy.retrieval_name=pusht-world", "policy.canonical=false", "pairs.k=1"]
)
SPACE = preset(
    "debug-dualarm",
    ["policy.inputs=S", "policy.retrieval_name=dualarm-world", "pairs.k=1", "pairs.leave_out=false"],
)
FROM_NOW = replace(SPACE, policy=replace(SPACE.policy, relative_object_poses=True))
ANGLE = 0.4


def elsewhere(episode: Episode, about: F64, away: F64) -> Episode:
    """The scene rotated about a point of the table, then shifted."""
    shift = np.append(about - yaw(ANGLE)[:2, :2] @ about + away, 0.0)
    if episode.goal is None:
        frame = np.array([*shift, np.cos(ANGLE / 2), 0, 0, np.sin(ANGLE / 2)])
        return replace(
            episode,
            proprio=TWO_ARMS.body.out_of(frame, episode.proprio).astype(np.float32),
            actions=TWO_ARMS.act.out_of(frame, episode.actions).astype(np.float32),
            objects={k: moved(ANGLE, shift, v).astype(np.float32) for k, v in episode.objects.items()},
        )

    def pose(values: F64) -> F64:
        place = values[..., :2] @ yaw(ANGLE)[:2, :2].T + shift[:2]
        return np.concatenate([place, values[..., 2:] + ANGLE * (values.shape[-1] > 2)], axis=-1)

    return replace(
        episode,
        proprio=pose(episode.proprio).astype(np.float32),
        actions=pose(episode.actions).astype(np.float32),
        objects={"block": pose(episode.objects["block"]).astype(np.float32)},
        goal=pose(episode.goal),
    )


def moment(config: PolicyConfig, query: Episode, shown: Episode) -> Vectors:
    retrieval = replace(find_retrieval(config.retrieval_name)[1], chunk_size=config.chunk_size)
    given = build_conditioning(
        MemoryView([shown]), [FrameRef(shown.id, 6)], query, 4, retrieval, config.robot
    )
    return vectors_of(given, config)


@pytest.mark.parametrize("config", [PLANE, SPACE, FROM_NOW], ids=["plane", "space", "from now"])
def test_a_displaced_sample_equals_one_whose_match_was_demonstrated_elsewhere(config: TrainConfig) -> None:
    if config is PLANE:
        query, shown, name = (
            demonstrations("triangle", range(1))[0],
            demonstrations("disc", range(3, 4))[0],
            "block",
        )
        away = np.array([30.0, -12.0])
    else:
        query, shown, name = arms_demonstration("viperx", 0), arms_demonstration("ur5e", 3), "box"
        away = np.array([0.06, -0.03])
    about = np.asarray(shown.objects[name][6, :2], np.float64)
    plain, wanted = (moment(config.policy, query, one) for one in (shown, elsewhere(shown, about, away)))
    picked = {
        name: torch.from_numpy(values)[None] for name, values in plain.vectors.items() if name != "proprio"
    }
    found, base = Motion(config.policy, CPU).displaced(
        picked,
        torch.from_numpy(plain.base.ravel())[None],
        torch.from_numpy(plain.vectors["proprio"])[None],
        torch.from_numpy(away.astype(np.float32))[None],
        torch.tensor([ANGLE]),
    )
    unit = 200.0 if config is PLANE else 1.0
    np.testing.assert_allclose(base[0].numpy() / unit, wanted.base.ravel() / unit, atol=1e-5)
    assert set(found) == {"retrieved_proprio", "retrieved_action"}
    for name, values in found.items():
        assert not np.allclose(plain.vectors[name], wanted.vectors[name], atol=1e-2 * unit)
        np.testing.assert_allclose(values[0].numpy() / unit, wanted.vectors[name] / unit, atol=1e-5)


def test_retrieved_objects_are_relative_to_their_current_positions() -> None:
    query, shown = arms_demonstration("viperx", 0), arms_demonstration("ur5e", 3)
    here = moment(FROM_NOW.policy, query, shown).vectors["retrieved_proprio"]
    first = FROM_NOW.policy.chunk_size * 20
    apart = shown.objects["box"][6, :3] - query.objects["box"][4, :3]
    np.testing.assert_allclose(here[first : first + 3], apart, atol=1e-6)
    absent = here[first + 32 : first + 48]
    assert not absent.any(), "the third object of the layout is absent"
    with pytest.raises(InputError, match="relative_object_poses is for poses in space"):
        replace(PLANE.policy, relative_object_poses=True)


def built(config: TrainConfig) -> TrainingData:
    if config.policy.robot.name == "pusht":
        return build_data(demonstrations("triangle", range(6)), demonstrations("disc", range(10, 18)), config)
    return build_data(
        arms_demonstrations("viperx", range(6)), arms_demonstrations("ur5e", range(10, 16)), config
    )


@pytest.mark.parametrize(("config", "by"), [(PLANE, 40.0), (FROM_NOW, 0.05)], ids=["plane", "space"])
def test_the_residual_compensates_the_displacement(config: TrainConfig, by: float) -> None:
    data = built(config)
    source = BatchSource(data.train, torch.zeros(0), data.statistics, config.policy, CPU)
    blind = replace(NO_AUGMENT, displace=by, displace_turn=20.0, image_dropout=1.0)
    seeing = replace(blind, image_dropout=0.0)

    def taken(augment: object) -> tuple[torch.Tensor, torch.Tensor]:
        batch = source.take(torch.arange(len(source)), augment, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
        values = {k: v * source._std[k] + source._mean[k] for k, v in batch.values.items()}
        chunk = values["retrieved_action"][:, : values["action"].shape[1]]
        return chunk, values["action"] + chunk

    (chunk, whole), (aside, brought), (left, _) = map(taken, (NO_AUGMENT, blind, seeing))
    torch.testing.assert_close(brought, whole, atol=2e-4 * by, rtol=0)
    assert (aside - chunk).abs().mean() > 0.1 * by
    torch.testing.assert_close(left, chunk, atol=1e-5 * by, rtol=0)  # an image says where it is


def test_statistics_account_for_displaced_residuals() -> None:
    augment = replace(SPACE.augment, displace=0.2, displace_turn=20.0, image_dropout=1.0)
    config = replace(FROM_NOW, augment=augment)
    data = built(config)
    source = BatchSource(data.train, torch.zeros(0), data.statistics, config.policy, CPU)
    batch = source.take(torch.arange(len(source)), augment, torch.Generator().manual_seed(1))
    assert 0.7 < float(batch.values["action"].view(len(source), -1, 20)[..., :2].std()) < 1.3
    plain = statistics_of(data.train, config.policy)
    assert data.statistics.std["action"][0] > 2 * plain.std["action"][0]
    still = build_data(
        arms_demonstrations("viperx", range(6)), arms_demonstrations("ur5e", range(10, 16)), FROM_NOW
    )
    np.testing.assert_array_equal(still.statistics.std["action"], plain.std["action"])


def test_augment_displace_needs_the_world_frame_and_object_poses() -> None:
    config = preset("dualarm-small-world", ["augment.displace=0.05"])
    assert config.augment.displaces
    training_retrieval(config, [])
    with pytest.raises(InputError, match=r"augment.displace=0"):
        preset("pusht-small", ["augment.displace=0.05"])
    carried = preset("dualarm-small", ["augment.displace=0.05"])
    with pytest.raises(InputError, match=r"aligner 'parts'.*augment.displace=0"):
        training_retrieval(carried, [])
    with pytest.raises(InputError, match=r"augment\.displace.*images alone"):
        preset("pusht-small-world", ["policy.inputs=I", "augment.displace=10"])


def test_planar_object_poses_are_not_relative_to_the_robot() -> None:
    policy = replace(PLANE.policy, relative=True)
    origin, _ = Motion(policy, CPU)._origins["retrieved_proprio"]
    rows = policy.chunk_size * policy.proprio_dim
    assert origin[:rows].tolist() == [0, 1] * policy.chunk_size
    assert (origin[rows:] == -1).all()
