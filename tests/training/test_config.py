"""Training presets, and the settings that change them."""

import json
from dataclasses import replace

import pytest

from recap.errors import InputError
from recap.policies.layout import build_layout
from recap.robot import RobotSpec
from recap.suites import suites
from recap.training.config import from_json
from recap.training.data import load_data
from recap.training.presets import SIZES, preset
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.robot import PUSHT


def test_settings_change_values_in_every_group() -> None:
    config = preset(
        "pusht-nano",
        [
            "n_iterations=100",
            "policy.inputs=S",
            "policy.sampling.n_steps=5",
            "augment.mirror=false",
            "learning_rate=1e-3",
            "pool_where=goal_angle=-45,goal_angle=0",
            "pairs.n_candidates=none",
            "policy.image.cameras=top,wrist",
            "weights=some/where",
        ],
    )
    assert (config.n_iterations, config.policy.inputs, config.policy.sampling.n_steps) == (100, "S", 5)
    assert (config.augment.mirror, config.learning_rate) == (False, 1e-3)
    assert config.pool_where == ("goal_angle=-45", "goal_angle=0")
    assert config.pairs.n_candidates is None
    assert config.policy.image.cameras == ("top", "wrist")
    assert config.weights == "some/where"
    assert preset("pusht-nano").policy.inputs == "I+S", "the preset itself is unchanged"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("pusht-nanno", "seed=1", "unknown training recipe 'pusht-nanno': did you mean 'pusht-nano'?"),
        ("debug", "seed", "cannot read 'seed': give key=value"),
        ("debug", "seeed=1", "there is no setting 'seeed': did you mean 'seed'?"),
        ("debug", "policy.input=S", "there is no setting 'policy.input': did you mean 'inputs'?"),
        ("debug", "policy=S", "setting 'policy' has parts"),
        ("debug", "seed.x=1", "setting 'seed' has no parts"),
        ("debug", "seed=one", "setting 'seed' is 'one': expected `int`"),
        ("debug", "ema=much", "setting 'ema' is 'much': expected `float`"),
        ("debug", "ema=nan", "setting 'ema' is nan"),
        ("debug", "bf16=maybe", "setting 'bf16' is 'maybe': expected `bool`"),
        ("debug", "policy.inputs=X", "setting 'policy.inputs' is 'X'"),
        ("debug", "policy.retrieval=false", "set residual=false"),
        ("debug", "own_share=1", "own_share 1.0 is out of range"),
        ("debug", "held_out=1", "held_out 1.0 is out of range"),
        ("debug", "ema=-0.1", "ema -0.1 is out of range"),
        ("debug", "batch_size=0", "batch_size is 0"),
        ("debug", "accumulate=3", "batch_size 16 cannot be accumulated in 3 steps"),
        ("debug", "learning_rate=0", "learning_rate is 0.0"),
        ("debug", "pairs.k=0", "pairs.k is 0"),
        ("debug", "co_training=true", "set policy.residual=false and policy.retrieval=false"),
    ],
)
def test_invalid_settings_are_errors_of_one_line(name: str, change: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        preset(name, [change])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for suite in suites().values() for name in suite.training_presets()])
def test_a_config_survives_json(name: str) -> None:
    config = preset(name)
    assert config.preset == name
    assert from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_cosmos_preset_has_the_papers_batch_size_and_chunk_size() -> None:
    config = preset("cosmos-2b")
    assert config.batch_size == 16 * 4 * 8
    assert (config.policy.chunk_size, config.action_loss, config.learning_rate) == (16, 16.0, 1e-4)


BLOCK = ("pusht-nano-object", "pusht-nano-no-retrieval-block", "pusht-nano-co-training-block")
WORLD = ("pusht-nano-world", "pusht-nano-no-retrieval", "pusht-nano-co-training")


@pytest.mark.parametrize("names", [BLOCK, WORLD], ids=["block", "world"])
def test_baseline_presets_differ_only_in_data_and_retrieval(names: tuple[str, ...]) -> None:
    ours, *others = (preset(name) for name in names)
    free = {"preset": "", "co_training": False, "pool_where": ()}
    for other in others:
        assert (other.policy.retrieval, other.policy.residual) == (False, False)
        alone = replace(ours.policy, retrieval=False, residual=False)
        assert replace(other, **free) == replace(ours, policy=alone, **free)


def test_augment_turn_needs_a_planar_robot_in_the_world_frame() -> None:
    assert preset("pusht-small-world").augment.turn > 0
    for name in ("pusht-small", "dualarm-small-world"):
        with pytest.raises(InputError, match=r"augment.turn=0"):
            preset(name, ["augment.turn=30"])


@pytest.mark.parametrize("robot", [PUSHT, TWO_ARMS], ids=lambda robot: robot.name)
@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_a_preset_for_every_robot(size: str, robot: RobotSpec) -> None:
    config = preset(size, ["seed=3"], robot)
    assert (config.preset, config.seed) == (f"{robot.name}-{size}", 3)
    assert config.policy.robot == robot
    assert (config.policy.retrieval_name, config.policy.canonical) == ("world", False)
    assert config.policy.image.cameras == tuple(robot.cameras)
    assert (config.target, config.pool) == ("", ""), "they must be given"
    assert from_json(json.loads(json.dumps(config.to_json()))) == config
    blind = preset(size, robot=replace(robot, cameras={}))
    assert (blind.policy.inputs, blind.policy.sees) == ("S", False)
    seeing = preset(size, robot=replace(robot, objects={}))
    assert (seeing.policy.inputs, seeing.augment.image_dropout) == ("I", 0.0)


def test_an_unknown_size_or_a_robot_without_cameras_and_objects_is_an_error() -> None:
    with pytest.raises(InputError, match="unknown size 'tiny' for robot 'pusht'"):
        preset("tiny", robot=PUSHT)
    with pytest.raises(InputError, match="robot 'pusht' has neither cameras nor objects"):
        preset("small", robot=replace(PUSHT, cameras={}, objects={}))


def test_training_without_demonstrations_is_an_error() -> None:
    with pytest.raises(InputError, match="give --target"):
        load_data(preset("debug", robot=PUSHT))


@pytest.mark.parametrize("name", ["learning_rate", "action_loss"])
def test_non_finite_numbers_are_errors_that_name_the_setting(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is nan"):
        replace(preset("debug"), **{name: float("nan")})
    with pytest.raises(InputError, match=r"augment\.shift is inf"):
        replace(preset("debug"), augment=replace(preset("debug").augment, shift=float("inf")))


def test_missing_and_unknown_keys_are_errors_that_name_the_key() -> None:
    plain = preset("debug").to_json()
    for change, words in (
        ({"colour": 1}, "unknown key 'colour'"),
        ({"pairs": {**plain["pairs"], "kk": 1}}, "unknown key 'pairs.kk'"),
        ({"augment": {}}, "lacks 'augment.mirror'"),
        ({"batch_size": "many"}, "at 'batch_size'"),
    ):
        with pytest.raises(InputError, match=words):
            from_json({**plain, **change})
    with pytest.raises(InputError, match="lacks 'seed'"):
        from_json({key: value for key, value in plain.items() if key != "seed"})


def test_the_default_image_size_grows_with_the_chunk_size() -> None:
    usual = preset("small", robot=PUSHT).policy
    assert usual.image.size == 32
    long = preset("small", ["policy.chunk_size=256"], PUSHT).policy
    assert long.image.size > 32
    assert build_layout(long).size == long.latent_size
    with pytest.raises(InputError, match="use larger images or a shorter chunk"):
        build_layout(preset("small", ["policy.chunk_size=256", "policy.image.size=32"], PUSHT).policy)
