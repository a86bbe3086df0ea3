"""The vector environment steps like single environments."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import recap_worlds.envs  # noqa: F401  (registers the id)
from recap.errors import InputError
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.vector import PushTVectorEnv


def test_the_vector_env_equals_single_envs() -> None:
    batch = gym.make_vec("recap/PushT-v0", num_envs=3, pusher="triangle", obs_type="both")
    boards = [PushTEnv(pusher="triangle", obs_type="both") for _ in range(3)]
    angles = [-60.0, 0.0, 45.0]
    observations, infos = batch.reset(seed=[600, 601, 602], options={"goal_angle": angles})
    singles = [b.reset(seed=600 + i, options={"goal_angle": angles[i]}) for i, b in enumerate(boards)]
    rng = np.random.default_rng(0)
    for _ in range(20):
        for i, (observation, info, *_) in enumerate(singles):
            assert np.array_equal(observations["state"][i], observation["state"])
            assert np.array_equal(observations["pixels"][i], observation["pixels"])
            assert infos["coverage"][i] == info["coverage"]
        targets = rng.uniform(50, 450, (3, 2))
        observations, _, _, _, infos = batch.step(targets)
        singles = [(s[0], s[4]) for s in (b.step(t) for b, t in zip(boards, targets, strict=True))]


def test_observations_and_actions_match_the_spaces() -> None:
    batch = PushTVectorEnv(2, obs_type="both")
    observations, _ = batch.reset(seed=600)
    assert observations in batch.observation_space
    assert batch.step(batch.action_space.sample())[0] in batch.observation_space


def test_a_truncated_env_is_reset_at_the_next_step() -> None:
    batch = PushTVectorEnv(2, max_episode_steps=3)
    first, _ = batch.reset(seed=600)
    still = first[:, :2]
    for _ in range(3):
        _, _, terminated, truncated, _ = batch.step(still)
    assert truncated.all()
    assert not terminated.any()
    anew, reward, _, truncated, _ = batch.step(still)
    assert not truncated.any()
    assert (reward == 0).all()
    assert not np.array_equal(anew, first)


def test_without_autoreset_a_finished_env_stays_until_its_reset() -> None:
    batch = PushTVectorEnv(2, max_episode_steps=2, autoreset_mode=AutoresetMode.DISABLED)
    batch.reset(seed=600)
    for _ in range(2):
        held, *_ = batch.step(np.full((2, 2), 200.0))
    after, _, _, truncated, _ = batch.step(np.full((2, 2), 300.0))
    assert np.array_equal(held, after)
    assert truncated.all()
    options = {"reset_mask": np.array([False, True]), "goal_angle": [0.0, -60.0]}
    after, _ = batch.reset(seed=[None, 650], options=options)
    assert np.array_equal(after[0], held[0])
    assert np.array_equal(after[1], PushTEnv(goal_angle=-60).reset(seed=650)[0])
    _, _, _, truncated, _ = batch.step(np.full((2, 2), 300.0))
    assert truncated.tolist() == [True, False]


def test_explicit_states_are_set_and_invalid_inputs_are_errors() -> None:
    batch = PushTVectorEnv(2)
    states = [[60, 60, 200, 200, 0.0], [80, 80, 220, 220, 1.0]]
    observations, _ = batch.reset(seed=np.int64(3), options={"reset_to_state": states})  # type: ignore[arg-type]
    assert observations[:, :2].tolist() == [[60, 60], [80, 80]]
    same, _ = batch.reset(options={"reset_to_state": states[0]})
    assert np.array_equal(same[0], same[1])
    with pytest.raises(InputError, match="one seed"):
        batch.reset(seed=[1])
    with pytest.raises(InputError, match="mask entry"):
        batch.reset(options={"reset_mask": [True]})
    with pytest.raises(InputError, match="'goal_angle' has shape"):
        batch.reset(options={"goal_angle": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match="actions have shape"):
        batch.step(np.zeros((5, 2)))
    with pytest.raises(InputError, match="call reset first"):
        PushTVectorEnv(2).step(np.zeros((2, 2)))
    with pytest.raises(InputError, match="no batch"):
        PushTVectorEnv(0)
