"""The values of the vector slots."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from episodes import random_episode
from recap.errors import InputError
from recap.geometry import out_of_frame
from recap.policies.vectors import targets_of, vectors_of
from recap.pool.memory import MemoryView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.presets import find_retrieval
from recap.types import F64, Conditioning, Episode, FrameRef
from recap_worlds.pusht.robot import PUSHT
from toy_policy import in_world, toy_config

CONFIG = toy_config(inputs="S")
WORLD_TURN = slice(10, 12)  # of proprio: two for the pusher, eight for object and goal


def moved(episode: Episode, by: F64) -> Episode:
    """The whole scene moved on the board."""
    block, goal = episode.objects["block"].astype(np.float64), episode.goal
    assert goal is not None
    return replace(
        episode,
        proprio=out_of_frame(by, episode.proprio.astype(np.float64)).astype(np.float32),
        actions=out_of_frame(by, episode.actions.astype(np.float64)).astype(np.float32),
        objects={
            "block": np.column_stack([out_of_frame(by, block[:, :2]), block[:, 2] + by[2]]).astype(np.float32)
        },
        goal=np.array([*out_of_frame(by, goal[:2].astype(np.float64)), goal[2] + by[2]], np.float32),
    )


def given_of(query: Episode, shown: Episode, name: str = "pusht-object", t: int = 4) -> Conditioning:
    retrieval = find_retrieval(name)[1]
    return build_conditioning(MemoryView([shown]), [FrameRef(shown.id, 5)], query, t, retrieval, PUSHT)


@given(st.floats(-100, 100), st.floats(-100, 100), st.floats(-3, 3), st.integers(0, 20))
def test_aligned_vectors_depend_on_the_scenes_pose_only_by_its_world_rotation(
    x: float, y: float, turn: float, seed: int
) -> None:
    query, shown = random_episode("query", seed), random_episode("shown", seed + 100)
    by = np.array([x, y, turn])
    here = vectors_of(given_of(query, shown), CONFIG)
    there = vectors_of(given_of(moved(query, by), moved(shown, by)), CONFIG)
    proprio, other = here.vectors["proprio"].copy(), there.vectors["proprio"].copy()
    c, s = proprio[WORLD_TURN]
    turned = [c * np.cos(turn) - s * np.sin(turn), s * np.cos(turn) + c * np.sin(turn)]
    assert np.allclose(other[WORLD_TURN], turned, atol=1e-3)
    proprio[WORLD_TURN] = other[WORLD_TURN] = 0
    assert np.allclose(proprio, other, atol=2e-3)
    assert np.allclose(here.vectors["retrieved_action"], there.vectors["retrieved_action"], atol=2e-3)
    assert np.allclose(here.base, there.base, atol=2e-3)


def test_the_block_is_the_origin_of_aligned_vectors() -> None:
    vector = vectors_of(given_of(random_episode("a", 0), random_episode("b", 1)), CONFIG).vectors["proprio"]
    assert np.allclose(vector[2:6], [0, 0, 1, 0])
    assert np.allclose(vector[:2], vector[12:14], atol=1e-3), "the pusher in the block's frame"


def test_in_the_world_frame_positions_are_absolute() -> None:
    query = random_episode("a", 0)
    given = given_of(query, random_episode("b", 1), "pusht-world")
    vector = vectors_of(given, replace(CONFIG, **in_world())).vectors["proprio"]
    assert np.allclose(vector[:2], query.proprio[4])
    assert np.allclose(vector[2:4], query.objects["block"][4, :2])


def test_steps_past_the_demonstrations_end_are_marked_invalid() -> None:
    shown = random_episode("shown", 1, n=9)
    vector = vectors_of(given_of(random_episode("a", 0), shown), CONFIG).vectors["retrieved_action"]
    assert list(vector[16:]) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_without_matches_the_base_is_holding_still() -> None:
    retrieval = find_retrieval("pusht-object")[1]
    query = random_episode("a", 0)
    empty = build_conditioning(MemoryView([]), [], query, 0, retrieval, PUSHT)
    moment = vectors_of(empty, CONFIG)
    assert set(moment.vectors) == {"proprio"}
    assert np.array_equal(moment.base, np.repeat(empty.now[None], 8, axis=0))


def test_the_residual_is_relative_to_the_retrieved_chunk() -> None:
    moment = vectors_of(given_of(random_episode("a", 0), random_episode("b", 1)), CONFIG)
    actions = np.random.default_rng(0).normal(0, 50, (8, 2))
    pose = np.array([1.0, 2.0, 0.5])
    residual = targets_of(actions, actions[-1], pose, moment, CONFIG)
    assert np.allclose(residual["action"].reshape(8, 2) + moment.base, actions, atol=1e-4)
    assert np.allclose(residual["future_proprio"], [*actions[-1], 1, 2, np.cos(0.5), np.sin(0.5)])
    absolute = targets_of(actions, actions[-1], pose, moment, replace(CONFIG, residual=False))
    assert np.allclose(absolute["action"].reshape(8, 2), actions, atol=1e-4)


def test_a_chunk_or_pose_that_does_not_fit_the_policy_is_an_error() -> None:
    given_now = given_of(random_episode("a", 0), random_episode("b", 1))
    with pytest.raises(InputError, match="a chunk of 8 × 2 with 2-D proprio does not fit a policy of 16 × 2"):
        vectors_of(given_now, replace(CONFIG, chunk_size=16))
    unknown = replace(given_now, object_now=np.zeros(0), goal_now=np.zeros(0))
    with pytest.raises(InputError, match=r"poses of object and goal.*inputs I"):
        vectors_of(unknown, CONFIG)
    assert vectors_of(unknown, replace(CONFIG, inputs="I")).vectors["proprio"].shape == (2,)
