"""The PushT environment: physics bitwise equal to gym-pusht, and our additions."""

import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gym_pusht.envs.pusht import PushTEnv as StockPushTEnv
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import recap_worlds.envs  # noqa: F401  (registers the id)
from recap.errors import InputError
from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.env import PushTEnv

coordinates = st.floats(30, 480)
starts = st.tuples(coordinates, coordinates, st.floats(100, 400), st.floats(100, 400), st.floats(-4, 4))
actions = st.lists(st.tuples(st.floats(0, 512), st.floats(0, 512)), min_size=1, max_size=25)


@given(starts, actions, st.sampled_from([np.float32, np.float64]))
def test_the_state_is_bitwise_equal_to_gym_pusht(
    start: tuple[float, ...], targets: list[tuple[float, float]], dtype: type
) -> None:
    stock, ours = StockPushTEnv(obs_type="state"), PushTEnv(pusher="disc", goal_angle=45)
    options = {"reset_to_state": list(start)}
    a, info_a = stock.reset(options=options)
    b, info_b = ours.reset(options=options)
    assert np.array_equal(a, b[:5])
    for target in np.array(targets, dtype):
        a, reward_a, done_a, _, info_a = stock.step(target)
        b, reward_b, done_b, _, info_b = ours.step(target)
        assert np.array_equal(a, b[:5])
        assert np.array_equal(info_a["block_pose"], info_b["block_pose"])
        assert np.array_equal(info_a["vel_agent"], info_b["vel_agent"])
        assert np.array_equal(info_a["goal_pose"], info_b["goal_pose"])
        assert info_a["coverage"] == pytest.approx(info_b["coverage"], abs=1e-9)
        assert reward_a == pytest.approx(reward_b, abs=1e-9)
        assert done_a == done_b


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@pytest.mark.parametrize("obs_type", ["state", "pixels", "both"])
def test_the_env_passes_gymnasiums_check(pusher: str, obs_type: str) -> None:
    env = gym.make("recap/PushT-v0", pusher=pusher, goal_angle=-30, obs_type=obs_type).unwrapped
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")  # stock's action space
        check_env(env)


def test_starts_have_the_ranges_of_the_protocol() -> None:
    env = PushTEnv()
    states = np.array([env.reset(seed=seed)[0] for seed in range(2000, 2300)])
    pusher, angle = states[:, :2], states[:, 4]
    assert pusher.min() >= 50
    assert pusher.max() < 400
    assert (pusher == pusher.round()).all()
    wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
    assert -math.pi / 4 - 0.1 < wrapped.min() < -0.6
    assert 2.2 < wrapped.max() < 3 * math.pi / 4 + 0.1


def test_of_the_evaluation_seeds_only_48_starts_successful_at_45_degrees() -> None:
    env = PushTEnv(goal_angle=45)
    assert [s for s in range(42, 92) if env.reset(seed=s)[1]["coverage"] > 0.85] == [48]


def test_both_pushers_start_from_the_same_scene() -> None:
    for seed in range(600, 640):
        disc, triangle = (PushTEnv(pusher=p).reset(seed=seed)[0] for p in ("disc", "triangle"))
        assert np.array_equal(disc, triangle)


def test_the_triangle_pushes_without_rotating() -> None:
    env = PushTEnv(pusher="triangle")
    env.reset(options={"reset_to_state": [256, 100, 256, 250, 0]})
    for y in range(110, 300, 8):
        _, _, _, _, info = env.step([256, y])
    assert env.agent.angle == 0
    assert info["block_pose"][1] > 275


@given(st.floats(-1000, 1000))
def test_any_goal_angle_is_accepted(angle: float) -> None:
    env = PushTEnv(goal_angle=angle)
    _, info = env.reset(seed=700)
    assert info["goal_pose"][:2].tolist() == [256, 256]
    assert math.cos(info["goal_pose"][2] - math.radians(angle)) == pytest.approx(1)


def test_coverage_is_1_at_the_goal_and_at_its_symmetric_poses() -> None:
    for name, block in BLOCKS.items():
        env = PushTEnv(block=name, goal_angle=-20)
        env.reset(seed=700)
        for k in range(block.symmetry):
            env.block.angle = math.radians(-20) + k * block.angle_period
            env.block.position = (256, 256)
            assert env._get_coverage() == pytest.approx(1)
        env.block.angle += 0.5 * block.angle_period
        env.block.position = (256, 256)
        assert env._get_coverage() < 0.9


def test_the_goal_can_change_at_reset_and_is_in_the_info() -> None:
    env = PushTEnv(goal_angle=45)
    _, info = env.reset(seed=700, options={"goal_angle": -60})
    assert info["goal_pose"][2] == pytest.approx(math.radians(-60))
    assert {"block_pose", "goal_pose", "coverage", "success"} <= set(info)


def test_the_episode_ends_at_the_success_threshold() -> None:
    def covered(threshold: float) -> bool:
        env = PushTEnv(success_threshold=threshold)
        env.reset(options={"reset_to_state": [60, 60, 256, 256, 0]})
        env.block.angle = math.pi / 4
        env.block.position = (260, 256)
        return env.step([60, 60])[2]

    assert covered(0.85)
    assert not covered(0.95)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"pusher": "triangel"}, "did you mean 'triangle'"),
        ({"block": "elle"}, "did you mean 'ell'"),
        ({"goal_angle": float("nan")}, "not a number"),
        ({"goal_position": (500, 256)}, "outside the board"),
        ({"goal_position": (256,)}, "not a place"),
        ({"goal_angle": "45"}, "not a number"),
        ({"obs_type": "pixel"}, "did you mean 'pixels'"),
        ({"success_threshold": 95}, "0.95"),
        ({"observation_size": 0}, "out of range"),
    ],
)
def test_invalid_settings_are_errors_of_one_line(keywords: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        PushTEnv(**keywords)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action", [[np.nan, 3], [1, 2, 3], [np.inf, 0], ["a", "b"], None])
def test_invalid_actions_are_errors(action: object) -> None:
    env = PushTEnv()
    env.reset(seed=700)
    with pytest.raises(InputError, match="target position"):
        env.step(action)


def test_an_unknown_reset_option_is_an_error() -> None:
    with pytest.raises(InputError, match="did you mean 'goal_angle'"):
        PushTEnv().reset(options={"goal_angel": 3})
