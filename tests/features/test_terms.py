"""Terms of descriptors: the values of each term for every frame."""

from dataclasses import replace

import numpy as np
import pytest

from episodes import random_episode
from recap.body import ARM
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.features.language import HashedWords
from recap.features.terms import Actions, ImageFeature, Instruction, ObjectPoses, Proprio, Time
from recap.features.vision import PatchEncoder
from recap.retrieval.presets import POSITION_WEIGHT, paper_preset
from recap.types import Episode
from recap_worlds.pusht.retrieval import RETRIEVALS
from recap_worlds.pusht.terms import ObjectPosition, ObjectTurn, Position, Velocities

EPISODE = random_episode("demo", 3, n=12)


def test_every_pusht_retrieval_describes_every_frame() -> None:
    for describer, config in RETRIEVALS.values():
        rows = describer.describe(EPISODE)
        assert {name: r.shape for name, r in rows.items()} == {n: (12, d) for n, d in describer.dims.items()}
        assert set(config.weights) | set(config.scene_weights) <= set(describer.dims)


def test_history_is_oldest_first_and_repeats_the_first_frame() -> None:
    rows = Proprio("XY", n_steps=3).describe(EPISODE).reshape(12, 3, 2)
    assert np.array_equal(rows[5], EPISODE.proprio[3:6])
    assert np.array_equal(rows[0], EPISODE.proprio[[0, 0, 0]])


def test_future_actions_repeat_the_last_frame() -> None:
    rows = Actions(2, 4).describe(EPISODE).reshape(12, 4, 2)
    assert np.array_equal(rows[2], EPISODE.actions[2:6])
    assert np.array_equal(rows[11], EPISODE.actions[[11] * 4])
    steps = Actions(2, 4, as_steps=True).describe(EPISODE).reshape(12, 4, 2)
    assert steps[2, 1:] == pytest.approx(np.diff(EPISODE.actions[2:6], axis=0), abs=1e-4)
    assert (steps[:, 0] == 0).all()


def test_terms_relative_to_the_block_do_not_depend_on_its_position() -> None:
    shift = np.array([30, -12, 0], np.float32)
    assert EPISODE.goal is not None
    moved = replace(
        EPISODE,
        proprio=EPISODE.proprio + shift[:2],
        objects={"block": EPISODE.objects["block"] + shift},
        goal=EPISODE.goal + shift,
    )
    for term in (
        Position("block"),
        ObjectPosition("block", in_goal_frame=True),
        ObjectTurn("block", from_goal=True),
    ):
        assert term.describe(moved) == pytest.approx(term.describe(EPISODE), abs=1e-3)
    assert Position().describe(moved) == pytest.approx(EPISODE.proprio + shift[:2])


def test_velocities_start_at_zero() -> None:
    rows = Velocities("block").describe(EPISODE)
    assert (rows[0] == 0).all()
    assert rows[4, :2] == pytest.approx(EPISODE.proprio[4] - EPISODE.proprio[3], abs=1e-4)


def arms_episode(n: int = 6) -> Episode:
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 255, (32, 32, 3), dtype=np.uint8) for _ in range(n)]
    return replace(
        random_episode("arms", 1, n=n),
        proprio=rng.normal(size=(n, 20)).astype(np.float32),
        actions=rng.normal(size=(n, 20)).astype(np.float32),
        objects={name: rng.uniform(0, 1, (n, 4)).astype(np.float32) for name in ("can", "pot")},
        images={"head": frames},
        task="move the can beside the pot",
    )


def test_position_of_two_arms_has_four_times_the_weight() -> None:
    episode, term = arms_episode(), Proprio(2 * ARM, POSITION_WEIGHT)
    other = replace(episode, proprio=episode.proprio + np.eye(20, dtype=np.float32)[0])
    turned = replace(episode, proprio=episode.proprio + np.eye(20, dtype=np.float32)[5])
    cost = [float(((term.describe(e) - term.describe(episode)) ** 2)[0].sum()) for e in (other, turned)]
    assert cost == pytest.approx([4.0, 1.0], rel=1e-5)


def test_the_paper_preset_has_the_papers_terms_and_weights() -> None:
    describer, config = paper_preset(objects=("can", "pot"))
    rows = describer.describe(arms_episode())
    assert rows["object"].shape == (6, 4)
    assert rows["history"].shape == (6, 160)
    assert rows["image"].shape[1] == PatchEncoder().dim
    weights = {k: w for k, w in config.weights.items() if k != "object"}
    assert weights == {"proprio": 1.0, "history": 0.05, "image": 0.1, "time": 0.0}
    assert config.n_candidates == 5
    _, training = paper_preset(objects=("can", "pot"), training=True)
    assert training.weights["action"] == training.weights["delta_action"] == 0.1


def test_encoder_settings_are_part_of_the_fingerprint() -> None:
    one = TermDescriber({"image": ImageFeature(PatchEncoder(), "head"), "words": Instruction(HashedWords())})
    two = TermDescriber(
        {"image": ImageFeature(PatchEncoder(edge_weight=1.0), "head"), "words": Instruction(HashedWords())}
    )
    three = TermDescriber(
        {"image": ImageFeature(PatchEncoder(), "head"), "words": Instruction(HashedWords(dim=128))}
    )
    assert len({d.fingerprint for d in (one, two, three)}) == 3


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (ImageFeature(PatchEncoder(), "wrist"), "no camera 'wrist'"),
        (ObjectPosition("pan"), "no object 'pan'"),
        (ObjectPoses(("can", "pan"), (0, 2)), "no object"),
        (Proprio("u" * 7), "another robot"),
    ],
)
def test_describing_an_episode_without_required_data_is_an_error(term: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        TermDescriber({"term": term}).describe(EPISODE)  # type: ignore[dict-item]


def test_a_missing_required_goal_is_an_error() -> None:
    with pytest.raises(InputError, match="has no goal"):
        ObjectTurn("block", from_goal=True).describe(replace(EPISODE, goal=None))
    assert Time().describe(EPISODE)[3, 0] == pytest.approx(0.3)
