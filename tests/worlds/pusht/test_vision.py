"""Poses from the image alone: precise, None for hidden objects, robust to any image."""

import math
from dataclasses import replace

import numpy as np
import pytest
from gym_pusht.envs.pusht import PushTEnv as StockPushTEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recap.errors import InputError
from recap.geometry import transform_points, wrap_angle
from recap.types import F64
from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.drawing import BLOCK, GOAL, PUSHER, draw_background
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.vision import Seen, look


def board(block: str = "tee", pusher: str = "disc", goal: float = 30.0, seed: int = 1000) -> PushTEnv:
    env = PushTEnv(block=block, pusher=pusher)
    env.reset(seed=seed, options={"goal_angle": goal})
    return env


def put(env: PushTEnv, pose: F64, pusher: tuple[float, float]) -> None:
    """Place block and pusher, whether they touch or not."""
    env.block.angle = float(pose[2])
    env.block.position = float(pose[0]), float(pose[1])
    env.agent.position = pusher


def off(found: F64 | None, true: F64, block: str) -> tuple[float, float]:
    """Errors in px and degrees, modulo the block's symmetry."""
    assert found is not None
    turn = wrap_angle(found[2] - true[2], BLOCKS[block].angle_period)
    return math.dist(found[:2], true[:2]), abs(math.degrees(turn))


def assert_seen(env: PushTEnv, seen: Seen, tolerance: float) -> None:
    truth = env.observe()
    assert truth.goal is not None
    name = env.shape.name
    assert max(*off(seen.block, truth.objects["block"], name), *off(seen.goal, truth.goal, name)) < tolerance
    assert seen.pusher is not None
    assert math.dist(seen.pusher, truth.proprio) < tolerance


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@pytest.mark.parametrize("block", list(BLOCKS))
def test_block_goal_and_pusher_are_found_in_every_scene(block: str, pusher: str) -> None:
    env = PushTEnv(block=block, pusher=pusher)
    for i, size in enumerate((96, 128) * 8 + (64, 160, 256)):
        env.reset(seed=1000 + i, options={"goal_angle": -180 + 19 * i})
        seen = look(env.draw(size), block)
        assert_seen(env, seen, 0.2)
        assert seen.block_error < 2
        assert seen.goal_error < 2


def test_poses_are_found_in_gym_pushts_images() -> None:
    env = StockPushTEnv(obs_type="pixels", observation_width=96, observation_height=96)
    for seed in range(1000, 1010):
        seen = look(env.reset(seed=seed)[0], "tee")
        truth = np.array([*env.block.position, env.block.angle])
        assert max(*off(seen.block, truth, "tee"), *off(seen.goal, env.goal_pose, "tee")) < 2


@pytest.mark.parametrize("block", list(BLOCKS))
def test_poses_are_found_with_camera_noise(block: str) -> None:
    env, rng = board(block, "triangle"), np.random.default_rng(0)
    for seed in range(1000, 1008):
        env.reset(seed=seed, options={"goal_angle": 40.0 * seed})
        image = np.clip(np.rint(env.draw(96) + rng.normal(0, 5, (96, 96, 3))), 0, 255).astype(np.uint8)
        assert_seen(env, look(image, block), 1.5)


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@pytest.mark.parametrize("block", list(BLOCKS))
def test_poses_are_found_under_occlusion(block: str, pusher: str) -> None:
    env, rng = board(block, pusher), np.random.default_rng(1)
    for nearness in (40.0, 20.0, 8.0, 3.0):  # from half hidden to a fraction of a pixel visible
        pose = env.goal_pose + rng.normal(size=3) * (nearness / 2, nearness / 2, nearness / 100)
        x, y = transform_points(pose, BLOCKS[block].parts.mean(axis=(0, 1)))
        put(env, pose, (float(x), float(y)))
        assert_seen(env, look(env.draw(96), block), 0.5)


@pytest.mark.parametrize("block", list(BLOCKS))
def test_a_hidden_goal_is_none_unless_it_was_seen_before(block: str) -> None:
    env = board(block)
    goal = env.goal_pose.copy()
    before = look(env.draw(256), block)
    put(env, goal, (80.0, 80.0))
    image = env.draw(256)  # so fine that the block covers the goal's edge
    alone = look(image, block)
    assert alone.goal is None
    assert off(alone.block, goal, block)[0] < 0.2
    assert max(off(look(image, block, previous=before).goal, goal, block)) < 0.2


def test_poses_are_tracked_through_an_episode() -> None:
    env, seen = board("ell"), None
    start = np.array([180.0, 330.0, 0.5])
    for step in np.linspace(0, 1, 30):
        put(env, start + step * (env.goal_pose - start), (80 + 200 * step, 90.0))
        seen = look(env.draw(96), "ell", previous=seen)
        assert_seen(env, seen, 0.2)


def test_a_false_previous_pose_is_dropped() -> None:
    env = board("tee")
    truth = env.observe()
    hidden = truth.objects["block"]  # a goal here would be hidden, but the true one is visible
    turned = np.array([0, 0, math.pi])
    seen = look(env.draw(96), "tee")
    for false in (hidden, np.array([100.0, 400.0, 2.0]), env.goal_pose + turned):
        assert_seen(env, look(env.draw(96), "tee", previous=replace(seen, block=false, goal=false)), 0.2)


def test_a_previous_pose_outside_the_board_is_ignored() -> None:
    env, rng = board("tee"), np.random.default_rng(0)
    off_board = Seen(np.array([-500.0, 900.0, 0.3]), np.array([5000.0, 0.0, 0.0]), None, 0.0, 0.0)
    assert_seen(env, look(env.draw(96), "tee", previous=off_board), 0.2)
    noise = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)
    assert look(noise, "tee", previous=off_board).block is None


def test_symmetric_angles_stay_near_the_previous_angle() -> None:
    env = board("plus")
    seen = look(env.draw(96), "plus")
    assert seen.block is not None
    assert abs(seen.block[2]) <= math.pi / 4
    before = replace(seen, block=seen.block + np.array([0, 0, 3 * math.pi / 2]))
    after = look(env.draw(96), "plus", previous=before)
    assert after.block is not None
    assert abs(after.block[2] - seen.block[2] - 3 * math.pi / 2) < 0.01


def test_the_pusher_is_found_by_its_colour_and_may_be_absent() -> None:
    env = board("tee", "triangle")
    assert look(env.draw(96), "tee", "disc").pusher is None
    put(env, np.array([300.0, 180.0, 1.0]), (-200.0, -200.0))
    seen = look(env.draw(96), "tee")
    assert seen.pusher is None
    assert off(seen.block, np.array([300.0, 180.0, 1.0]), "tee")[0] < 0.2


@pytest.mark.parametrize("block", list(BLOCKS))
def test_another_block_is_not_found(block: str) -> None:
    image = board(block).draw(96)
    for other in set(BLOCKS) - {block}:
        seen = look(image, other)
        assert seen.block is None
        assert seen.block_error > 11


def test_an_empty_board_gives_no_poses() -> None:
    empty = draw_background(96, np.empty((0, 4, 2))).astype(np.uint8)
    plain = [np.full((96, 96, 3), color, np.uint8) for color in (0, 255, (143, 163, 184), (144, 238, 144))]
    before = look(board().draw(96), "tee")
    for image in (empty, *plain):
        for previous in (None, before):
            seen = look(image, "tee", previous=previous)
            assert seen.block is seen.goal is seen.pusher is None


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([32, 41, 64]).flatmap(lambda n: arrays(np.uint8, (n, n, 3))),
    st.sampled_from(list(BLOCKS)),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_any_image_gives_finite_poses_or_none(
    image: np.ndarray, block: str, remember: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    if seed % 3 == 1:  # tiles in the board's own colours
        colors = np.array([BLOCK, GOAL, *PUSHER.values(), (255, 255, 255)], np.uint8)
        tiles = colors[rng.integers(0, len(colors), (9, 9))]
        image = tiles.repeat(8, axis=0).repeat(8, axis=1)
    elif seed % 3 == 2:  # a board with a patch of noise
        rubbish, image = image, board(block, seed=1000 + seed % 50).draw(len(image))
        i, j = rng.integers(0, len(image), 2)
        image[i : i + 20, j : j + 20] = rubbish[i : i + 20, j : j + 20]
    before = Seen(rng.normal(size=3) * 300, rng.normal(size=3) * 300, None, 0.0, 0.0) if remember else None
    seen = look(image, block, previous=before)
    for found in (seen.block, seen.goal, seen.pusher):
        assert found is None or np.isfinite(found).all()
    assert 0 <= seen.block_error <= 512
    assert 0 <= seen.goal_error <= 512


def test_invalid_images_and_names_are_errors() -> None:
    image = board().draw(96)
    for wrong in (image.astype(float), image[:, :50], image[..., 0], image[:8, :8], image[..., :2]):
        with pytest.raises(InputError, match="image"):
            look(wrong, "tee")
    with pytest.raises(InputError, match="block"):
        look(image, "tea")
    with pytest.raises(InputError, match="pusher"):
        look(image, "tee", "disk")
    assert look(image[::-1, ::-1][::-1, ::-1], "tee").block is not None  # strides do not matter
