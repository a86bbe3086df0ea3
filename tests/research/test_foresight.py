"""Demonstrations as arrays, boards rendered with torch, and the predicted share of a change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recap.pool.memory import MemoryPool
from recap.retrieval.retriever import Retriever
from recap.training.config import TrainConfig
from recap.training.data import build_data, demonstrations, split, training_retrieval
from recap.training.presets import preset
from recap.training.samples import tables_of
from recap.types import Episode
from recap_research.boards import backgrounds, draw_boards
from recap_research.foresight import interval
from recap_research.lockstep import Pool, described
from recap_research.recorded import Recorded, pictures, read, record, samples_of, scenes, write
from recap_worlds.pusht.rendering import RenderedFrames

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def target() -> list[Episode]:
    return demonstrations("pusht-triangle")[::50]


@pytest.fixture(scope="module")
def pool() -> list[Episode]:
    goals = {round(e.goal[2], 3): e for e in demonstrations("pusht-9x100") if e.goal is not None}
    return list(goals.values())


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    chosen = preset("pusht-nano-world-oracle")
    policy = replace(
        chosen.policy,
        inputs="I",
        retrieval_name="pusht-published",
        future_steps=(2, 8),
        image=replace(chosen.policy.image, size=96),
    )
    return replace(chosen, policy=policy, held_out=0.5)


def test_torch_renders_boards_as_the_world_does(target: list[Episode], pool: list[Episode]) -> None:
    for episode in (target[0], pool[-1]):
        wanted = np.stack([RenderedFrames(episode, 96)[t] for t in range(0, len(episode), 25)])
        assert episode.goal is not None
        ground = backgrounds(episode.goal[None], 96)[0]
        poses = (torch.tensor(v[::25]) for v in (episode.proprio, episode.objects["block"]))
        found = draw_boards(ground, *poses, episode.embodiment).numpy()
        assert np.abs(wanted.astype(int) - found).max() <= 1


def test_samples_equal_those_of_training(
    target: list[Episode], pool: list[Episode], config: TrainConfig
) -> None:
    wanted = build_data(target, pool, config)
    learned, _ = split(target, config.held_out)
    one, around = record(learned, pool, config, True), record(pool, [], config, True)
    found = samples_of(one, around, config.policy, 0, len(one.proprio))
    assert len(found) == len(wanted.train)
    mine, theirs = tables_of(found), tables_of(wanted.train)
    assert mine.keys() == theirs.keys()
    for name in mine:
        if not name.startswith("images/"):
            assert np.array_equal(mine[name], theirs[name]), name
    drawn = {side: scenes(of, 96) for side, of in (("robot", one), ("pool", around))}
    for name in (n for n in mine if n.startswith("images/")):
        rows = np.arange(0, len(found), 60)
        shown = "retrieved" in name
        used = (found.weight[rows] > 0 if shown else np.ones(len(rows), np.bool_)).reshape(-1)
        number = torch.from_numpy(mine[name][rows].reshape(-1)[used] - shown * len(one.proprio))
        picture = pictures(drawn["pool" if shown else "robot"], number, "disc" if shown else "triangle")
        same = wanted.pictures[theirs[name][rows].reshape(-1)[used]]
        assert np.abs(picture.numpy().astype(int) - same).max() <= 1, name


def test_written_records_are_read_to_within_a_sixtieth_of_a_pixel(
    target: list[Episode], pool: list[Episode], config: TrainConfig, tmp_path: Path
) -> None:
    one = record(target, pool, config, True)
    write(tmp_path / "data.npz", {"train": one})
    found = read(tmp_path / "data.npz")["train"]
    assert np.array_equal(found.match, one.match)
    assert np.abs(found.proprio - one.proprio).max() < 1 / 60
    assert np.abs(found.weight - one.weight).max() < 0.01
    turned = np.abs(np.angle(np.exp(1j * (found.block[:, 2] - one.block[:, 2]))))
    assert turned.max() < 1e-3


def test_lockstep_retrieval_equals_the_retriever(
    target: list[Episode], pool: list[Episode], config: TrainConfig
) -> None:
    describer, found_by = training_retrieval(config, pool)
    retriever = Retriever(MemoryPool(pool), describer, found_by)
    index = retriever.index()
    looked = Pool(record(pool, [], config, True), CPU)
    episode = target[0]
    poses = np.concatenate([episode.proprio, episode.objects["block"]], axis=1).astype(np.float64)
    assert episode.goal is not None
    rows = looked.nearest(described(poses[19:40:5], poses[20:41:5]), np.tile(episode.goal, (5, 1)))
    asked = index.frame_layout.lay_out(describer.describe(episode))
    number = int(np.abs(index.goals[:, 2] - episode.goal[2]).argmin())  # one demonstration per goal
    frames = index.frames[index.begins[number] : index.ends[number]]
    wanted = [
        int(index.begins[number] + np.square(frames - asked[t]).sum(1).argmin()) for t in range(20, 41, 5)
    ]
    assert rows.tolist() == wanted


def test_copying_predicts_nothing_and_the_interval_resamples_demonstrations() -> None:
    change, owner = np.arange(1.0, 13.0), np.repeat([0, 1, 2], 4)
    assert interval(change, change, owner) == (0.0, 0.0)
    assert interval(0 * change, change, owner) == (1.0, 1.0)
    uneven = np.where(owner == 2, 0.0, change)  # one demonstration of three is predicted
    low, high = interval(uneven, change, owner)
    assert (low, high) == (0.0, 1.0)


def test_ahead_stays_within_the_demonstration(config: TrainConfig, pool: list[Episode]) -> None:
    one: Recorded = record(pool[:2], [], config, True)
    last = int(one.length[0]) - 1
    assert one.ahead(np.array([last - 1, last + 1]), 8).tolist() == [last, last + 9]


def test_the_scripts_settings_change_the_training_config(config: TrainConfig) -> None:
    from test_scripts import script

    module = script("train_foresight")
    off = [f"policy.future_{part}=false" for part in ("image", "state", "change", "clean")]
    changed = module.with_settings(module.base_config(), [*off, "scale_future=false", "seed=2"])
    assert changed.seed == 2
    assert not changed.policy.future_image
    assert module.base_config().policy.network.beside
