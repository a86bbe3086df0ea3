"""Training data: from demonstrations to arrays."""

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.body import Feature
from recap.errors import InputError
from recap.policies.layout import build_layout
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.opening import open_pool
from recap.pool.packed import write_packed
from recap.retrieval.presets import find_retrieval
from recap.robot import CameraSpec, RobotSpec
from recap.training.config import TrainConfig
from recap.training.data import (
    TrainingData,
    build_data,
    check_layout,
    co_training_episodes,
    load_data,
    pairs_for,
    split,
    spread,
    training_retrieval,
    where,
)
from recap.training.presets import preset
from recap.types import Episode
from toy_policy import demonstrations, drawn

Configure = Callable[..., TrainConfig]


def test_the_split_keeps_scenes_apart_and_demonstrations_whole() -> None:
    target = demonstrations("triangle", range(20)) + demonstrations("disc", range(20))
    train, held_out = split(target, 0.25)
    assert len(train) + len(held_out) == 40
    assert len({e.scene_id for e in held_out}) == 5
    assert not {e.scene_id for e in train} & {e.scene_id for e in held_out}
    assert split(target, 0.25) == (train, held_out), "the split is deterministic"


def test_whole_tasks_can_be_held_out() -> None:
    tasks = [replace(e, task=f"task {i % 4}") for i, e in enumerate(demonstrations("triangle", range(20)))]
    train, held_out = split(tasks, 0.25, "task")
    assert (len(train), len(held_out)) == (15, 5)
    assert len({e.task for e in held_out}) == 1
    assert not {e.task for e in train} & {e.task for e in held_out}
    others = [replace(e, embodiment="disc") for e in tasks]
    learned = co_training_episodes(others, held_out, "task")
    assert len(learned) == 15
    assert not any(e.task.startswith(held_out[0].task) for e in learned)
    with pytest.raises(InputError, match="of 1 tasks is all"):
        split(tasks[:1], 0.9, "task")


def test_a_demonstration_of_another_robot_is_an_error(configure: Configure) -> None:
    fine, odd = demonstrations("triangle", range(2))
    odd = replace(odd, actions=np.hstack([odd.actions, odd.actions]))
    config = configure("policy.inputs=S")
    check_layout("pool", [fine], config)
    with pytest.raises(InputError, match=f"episode '{odd.id}', has 4-D action"):
        check_layout("pool", [fine, odd], config)


def test_a_split_without_held_out_demonstrations_is_an_error() -> None:
    for n, share in ((1, 0.5), (6, 0.01)):
        with pytest.raises(InputError, match="is none: raise it"):
            split(demonstrations("triangle", range(n)), share)


def test_every_frame_has_one_row_with_the_layouts_shapes(data: TrainingData, configure: Configure) -> None:
    assert data.n_episodes == (4, 2, 6)
    assert len(data.train) == 4 * 12
    assert len(data.held_out) == 2 * 12
    layout = build_layout(configure().policy)
    for samples, k in ((data.train, 3), (data.held_out, 1)):
        widths = {n: v.shape for n, v in (samples.fixed | samples.matched).items()}
        for slot in layout.vectors:
            if slot.name != "action":
                shape = (len(samples), k, slot.width) if slot.retrieved else (len(samples), slot.width)
                assert widths[slot.name] == shape
        for slot in layout.images:
            numbers = samples.images[slot.name]
            assert numbers.shape == ((len(samples), k) if slot.retrieved else (len(samples),))
            assert 0 <= numbers.min() <= numbers.max() < len(data.pictures)
        assert np.allclose(samples.weight.sum(axis=1), 1)
    assert data.pictures.shape[1:] == (16, 16, 3)


def test_actions_past_the_end_of_a_demonstration_are_marked_invalid(data: TrainingData) -> None:
    valid = data.train.valid.reshape(4, 12, 8, 2)
    assert (valid[:, :5] == 1).all()
    assert (valid[:, 11, 0] == 1).all()
    assert (valid[:, 11, 1:] == 0).all()


def test_several_workers_build_the_same_data(configure: Configure, cache: Path) -> None:
    config = configure()
    alone, shared = load_data(config), load_data(config, workers=2)
    for side in ("train", "held_out"):
        a, b = getattr(alone, side), getattr(shared, side)
        for table in ("fixed", "matched"):
            for name, values in getattr(a, table).items():
                assert np.array_equal(values, getattr(b, table)[name])
        for name in ("actions", "base", "valid", "weight", "task"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        for slot, numbers in a.images.items():
            assert np.array_equal(alone.pictures[numbers], shared.pictures[b.images[slot]])


def test_statistics_are_calculated_from_the_training_split(data: TrainingData) -> None:
    for name, values in data.train.fixed.items():
        assert np.allclose(data.statistics.mean[name], values.mean(axis=0), rtol=1e-3, atol=1e-2)
    residual = (data.train.actions[:, None] - data.train.base).reshape(-1, 16)
    assert np.allclose(data.statistics.std["action"], residual.std(axis=0), rtol=1e-3)
    assert np.allclose(data.statistics.std["proprio"][2:6], 1), "the block is always the origin"


def test_a_failed_write_leaves_no_files_behind(cache: Path, configure: Configure) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may grow larger
    try:
        with pytest.raises(OSError, match="File too large"):
            load_data(configure("policy.inputs=S"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((cache / "recap/training").iterdir()) == []


def scenes_matched(
    config: TrainConfig, target: list[Episode], pool: list[Episode], training: bool
) -> list[bool]:
    """For each match, whether it has the target's own scene."""
    views = MemoryView(target), MemoryView(pool)
    pairs = pairs_for(*views, config, training, training_retrieval(config, pool))
    own = [target[int(number)].scene_id for number, _ in pairs.target]
    return [
        views[1].episode(ref.episode_id).scene_id == own[row]
        for row in range(len(own))
        for ref in pairs.refs(row)
    ]


def test_matches_of_the_same_scene_are_for_training_but_not_for_validation(configure: Configure) -> None:
    target, pool = demonstrations("triangle", range(4)), demonstrations("disc", range(8))
    config = configure()
    assert any(scenes_matched(config, target, pool, True))
    assert not any(scenes_matched(config, target, pool, False))
    strict = replace(config, pairs=replace(config.pairs, allow_twin=False))
    assert not any(scenes_matched(strict, target, pool, True))


def test_pool_where_and_target_where_select_demonstrations(configure: Configure) -> None:
    half = load_data(configure("policy.inputs=S", "pool_where=goal_angle=45"))
    assert half.n_episodes == (4, 2, 3)
    fewer = load_data(configure("policy.inputs=S", "target_where=goal_angle=-45"))
    assert fewer.n_episodes == (2, 1, 6)
    with pytest.raises(InputError, match="holds no demonstration where goal_angle=10"):
        load_data(configure("policy.inputs=S", "pool_where=goal_angle=10"))


def test_where_selects_demonstrations_by_attributes() -> None:
    shown = demonstrations("disc", range(6))
    assert where(shown, ("goal_angle=45",)) == where(shown, ("goal_angle=45.0",)) == shown[1::2]
    assert where(shown, ("goal_angle=45", "goal_angle=-45")) == where(shown, ()) == shown
    assert where(shown, ("block=tee",)) == shown
    assert where(shown, ("block=ell",)) == where(shown, ("colour=red",)) == []
    assert spread(shown, 3) == shown[1::2]


def test_n_demonstrations_limits_the_target_demonstrations(configure: Configure) -> None:
    config = configure("policy.inputs=S", "n_demonstrations=3")
    assert load_data(config).n_episodes == (2, 1, 6)


def test_without_retrieval_no_pool_is_needed(configure: Configure) -> None:
    config = configure("policy.inputs=S", "policy.residual=false", "policy.retrieval=false")
    view = open_pool(config.target).view()
    found = build_data([view.episode(i) for i in view.episode_ids], [], config)
    assert not found.train.matched
    assert (found.train.weight == 0).all()


ALONE = ("policy.inputs=S", "policy.residual=false", "policy.retrieval=false")


def test_co_training_trains_on_both_datasets_and_validates_on_the_target(configure: Configure) -> None:
    alone, union = load_data(configure(*ALONE)), load_data(configure(*ALONE, "co_training=true"))
    assert union.n_episodes == alone.n_episodes == (4, 2, 6)
    held_out = len(union.held_out)
    assert held_out == len(alone.held_out) == 24
    assert np.array_equal(union.held_out.actions, alone.held_out.actions)
    assert np.array_equal(union.train.actions[: len(alone.train)], alone.train.actions)
    target, pool = (open_pool(getattr(configure(), name)).view() for name in ("target", "pool"))
    judging = {e.scene_id for e in split([target.episode(i) for i in target.episode_ids], 0.34)[1]}
    shown = [pool.episode(i) for i in pool.episode_ids if pool.episode(i).scene_id not in judging]
    assert 0 < len(shown) < 6, "pool demonstrations of held-out scenes are left out"
    assert len(union.train) == len(alone.train) + 12 * len(shown)
    assert not union.train.matched


def test_co_training_names_the_embodiment_in_the_pools_instructions(configure: Configure) -> None:
    union = load_data(configure(*ALONE, "co_training=true"))
    (own,) = union.held_out.tasks
    assert union.train.tasks == (own, f"{own}, as the disc does")
    assert (union.train.task[:48] == 0).all()
    assert (union.train.task[48:] == 1).all()


def test_own_share_repeats_the_targets_frames(configure: Configure) -> None:
    union = load_data(configure(*ALONE, "co_training=true"))
    half = load_data(configure(*ALONE, "co_training=true", "own_share=0.75"))
    own, others = (half.train.task == 0).sum(), (half.train.task == 1).sum()
    assert own / (own + others) == pytest.approx(0.75, abs=0.01)
    assert others == (union.train.task == 1).sum()
    assert np.array_equal(half.train.actions[48:96], half.train.actions[:48]), (
        "each frame is repeated equally often"
    )
    few = load_data(configure(*ALONE, "co_training=true", "own_share=0.1"))
    assert len(few.train) == len(union.train), "no frame is dropped"


@pytest.mark.parametrize("inputs", ["S", "I+S"])
def test_frames_without_a_match_are_kept_with_weight_zero(inputs: str, configure: Configure) -> None:
    target, pool = demonstrations("triangle", range(4)), demonstrations("disc", range(1))
    config = configure(f"policy.inputs={inputs}")
    config = replace(config, held_out=0.5, pairs=replace(config.pairs, allow_twin=False))
    twins = [drawn(e) for e in target], [drawn(e) for e in pool]
    found = build_data(*twins, config)
    matched = np.concatenate([found.train.weight.sum(axis=1), found.held_out.weight.sum(axis=1)])
    assert sorted(set(matched.round(3))) == [0, 1], (
        "the pool's only demonstration is of one target's own scene"
    )
    for samples in (found.train, found.held_out):
        assert all(len(values) == len(samples) for values in samples.matched.values())
        assert all(len(values) == len(samples) for values in samples.images.values())


def test_the_stamp_names_the_retrieval(data: TrainingData) -> None:
    describer, config = find_retrieval("pusht-object")
    assert data.stamp.describer == describer.fingerprint
    assert data.stamp.config == config.metric_fingerprint
    assert (data.stamp.name, data.stamp.scales) == ("pusht-object", config.scales)


def test_mirroring_an_asymmetric_block_without_retrieved_chunks_is_an_error(configure: Configure) -> None:
    shown = [
        replace(e, attributes={**e.attributes, "block": "ell"}) for e in demonstrations("triangle", range(4))
    ]
    pool = demonstrations("disc", range(4))
    alone = ("policy.inputs=S", "policy.residual=false", "policy.retrieval=false")
    with pytest.raises(InputError, match=r"block 'ell' are of another block: set augment\.mirror=false"):
        build_data(shown, pool, configure(*alone, "augment.mirror=true"))
    build_data(shown, pool, configure(*alone, "augment.mirror=false"))
    build_data(shown, pool, configure("policy.inputs=S", "augment.mirror=true"))  # corrects a mirrored chunk


def test_a_pool_with_joints_of_another_arm_gives_a_warning(tmp_path: Path) -> None:
    joints = tuple(Feature(name, "joint", unit="rad") for name in ("pan", "lift"))
    robot = RobotSpec("arm", 10.0, joints, joints, cameras={"top": CameraSpec((32, 32))})
    places = []
    for name, embodiment in (("target", "arm"), ("same", "arm"), ("other", "longer")):
        episodes = [
            replace(
                e,
                id=f"{name}/{e.id}",
                embodiment=embodiment,
                images={"top": [np.zeros((32, 32, 3), np.uint8)] * len(e)},
                objects={},
                goal=None,
            )
            for e in demonstrations("disc", range(4))
        ]
        write_packed(MemoryPool(episodes).view(), tmp_path / f"{name}.safetensors")
        places.append(str(tmp_path / f"{name}.safetensors"))
    config = preset("debug", ["policy.inputs=I"], robot=robot)
    told: list[str] = []
    for pool in places[1:]:
        load_data(replace(config, target=places[0], pool=pool), notify=told.append)
    (line,) = told
    assert line.startswith("warning: Joints of different arms are compared ('arm' and 'longer')")
    assert "recap init with --model FILE" in line


def test_unusable_demonstrations_are_errors(configure: Configure) -> None:
    config = configure("policy.inputs=S")
    pool = demonstrations("disc", range(4))
    with pytest.raises(InputError, match="holds no demonstration: there is nothing to learn"):
        build_data([], pool, config)
    wide = [
        replace(e, actions=np.zeros((len(e), 3), np.float32)) for e in demonstrations("triangle", range(4))
    ]
    unseen = [drawn(e) for e in demonstrations("triangle", range(4))]
    with pytest.raises(InputError, match=r"pool .* has no camera 'top'"):
        build_data(unseen, pool, configure())
    with pytest.raises(InputError, match=r"it has none; correct the name .* --map image:top=KEY") as caught:
        build_data(unseen, pool, configure())
    assert caught.value.code == "robot.camera"
    with pytest.raises(InputError, match=r"policy\.canonical=false"):
        build_data(pool, pool, configure("policy.inputs=S", "policy.retrieval_name=pusht-world"))
    with pytest.raises(InputError, match="has 3-D action, robot 'pusht' 2-D"):
        build_data(wide, pool, config)


@pytest.mark.parametrize("action_weight", [0.0, 1.0])
def test_chunks_have_the_policys_chunk_size(action_weight: float, configure: Configure) -> None:
    lengths = "policy.n_action_steps=4", "policy.chunk_size=4"
    found = load_data(configure("policy.inputs=S", *lengths, f"pairs.action_weight={action_weight}"))
    for samples in (found.train, found.held_out):
        assert samples.actions.shape[-1] == samples.base.shape[-1] == samples.valid.shape[-1] == 4 * 2
    assert found.train.weight.any()


def test_unusable_pool_demonstrations_are_never_matched(configure: Configure) -> None:
    """The second build reads cached pairs, which number only usable demonstrations."""
    config = configure("policy.inputs=S")
    target, pool = demonstrations("triangle", range(6)), demonstrations("disc", range(10, 16))
    lame = replace(pool[1], id="lame", objects={})
    wanted = build_data(target, pool, config).train.base
    for _ in range(2):
        found = build_data(target, [pool[0], lame, *pool[1:]], config)
        assert np.array_equal(found.train.base, wanted)
    with pytest.raises(InputError, match="episode lame has no object 'block'"):
        build_data(target, [lame], config)


class Film(list[np.ndarray]):
    """Frames that count how often they are decoded."""

    decoded = 0

    def __getitem__(self, i):  # type: ignore[no-untyped-def, override]
        Film.decoded += 1
        return super().__getitem__(i)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (self[i] for i in range(len(self)))


def test_films_are_decoded_once_for_retrieval_and_once_for_training() -> None:
    robot = RobotSpec("arm", 10.0, (Feature("place", "position", 2),), cameras={"top": CameraSpec()})
    sides = [demonstrations("triangle", range(4)), demonstrations("disc", range(10, 16))]
    target, pool = ([replace(drawn(e), objects={}, goal=None) for e in side] for side in sides)
    config = preset("debug", ["pairs.leave_out=false", "held_out=0.5"], robot)
    filmed = [replace(e, images={"top": Film(e.images["top"])}) for e in pool]
    n = sum(map(len, filmed))
    Film.decoded = 0
    found = build_data(target, filmed, config)
    assert len(found.held_out), "the held-out part is matched by another describer"
    assert Film.decoded <= 2 * n + len(filmed[0])
