"""Presets and the settings that change them."""

import json
from dataclasses import replace

import pytest

from recap.errors import InputError
from recap.training.config import from_json
from recap.training.presets import PRESETS, preset


def test_settings_reach_into_every_group() -> None:
    config = preset(
        "pusht-nano",
        [
            "n_iterations=100",
            "policy.inputs=S",
            "policy.sampling.n_steps=5",
            "augment.mirror=false",
            "learning_rate=1e-3",
            "pool_angles=-45,0,45",
            "pairs.n_candidates=none",
            "policy.image.cameras=top,wrist",
            "weights=some/where",
        ],
    )
    assert (config.n_iterations, config.policy.inputs, config.policy.sampling.n_steps) == (100, "S", 5)
    assert (config.augment.mirror, config.learning_rate) == (False, 1e-3)
    assert config.pool_angles == (-45.0, 0.0, 45.0)
    assert config.pairs.n_candidates is None
    assert config.policy.image.cameras == ("top", "wrist")
    assert config.weights == "some/where"
    assert PRESETS["pusht-nano"].policy.inputs == "I+S", "the preset itself is as it was"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("pusht-nanno", "seed=1", "unknown training preset 'pusht-nanno': did you mean 'pusht-nano'?"),
        ("debug", "seed", "'seed' is no setting: write key=value"),
        ("debug", "seeed=1", "there is no setting 'seeed': did you mean 'seed'?"),
        ("debug", "policy.input=S", "there is no setting 'policy.input': did you mean 'inputs'?"),
        ("debug", "policy=S", "'policy' is a group: name one of its settings, such as policy.mode"),
        ("debug", "seed.x=1", "'seed.x' goes too deep: 'seed' is one value"),
        ("debug", "seed=one", "'one' is no value for seed: it is int"),
        ("debug", "ema=much", "'much' is no value for ema: it is float"),
        ("debug", "bf16=maybe", "'maybe' is no value for bf16: it is bool"),
        ("debug", "pool_angles=a,b", "'a,b' is no value for pool_angles"),
        ("debug", "policy.inputs=X", "unknown inputs 'X'"),
        ("debug", "policy.retrieval=false", "nothing to add a residual to"),
        ("debug", "own_share=1", "own_share 1.0 is out of range"),
        ("debug", "co_training=true", "co_training learns from the pool instead of retrieving from it"),
    ],
)
def test_mistakes_are_one_line(name: str, change: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        preset(name, [change])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_json(name: str) -> None:
    config = preset(name)
    assert config.preset == name
    assert from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_paper_s_batch() -> None:
    config = preset("cosmos-2b")
    assert config.batch_size == 16 * 4 * 8
    assert (config.policy.chunk_size, config.action_loss, config.learning_rate) == (16, 16.0, 1e-4)


BLOCK = ("pusht-nano-aligned", "pusht-nano-no-retrieval-block", "pusht-nano-co-training-block")
WORLD = ("pusht-nano-single", "pusht-nano-no-retrieval", "pusht-nano-co-training")


@pytest.mark.parametrize("names", [BLOCK, WORLD], ids=["block", "world"])
def test_baselines_differ_from_ours_only_in_what_they_learn_from_and_retrieve(names: tuple[str, ...]) -> None:
    ours, *others = (preset(name) for name in names)
    free = {"preset": "", "co_training": False, "pool_angles": ()}
    for other in others:
        assert (other.policy.retrieval, other.policy.residual) == (False, False)
        alone = replace(ours.policy, retrieval=False, residual=False)
        assert replace(other, **free) == replace(ours, policy=alone, **free)


def test_only_a_scene_of_the_worlds_frame_in_the_plane_can_be_turned() -> None:
    assert preset("pusht-small-single").augment.turn > 0
    for name in ("pusht-small", "dualarm-small-single"):
        with pytest.raises(InputError, match=r"augment.turn=0"):
            preset(name, ["augment.turn=30"])
