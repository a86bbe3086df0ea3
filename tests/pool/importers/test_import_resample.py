"""Resampling keeps both ends and the old frames; resampling up and back down changes little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_files import gripper, path_of, poses

from recap.errors import InputError
from recap.geometry3 import encode_arm, rotation6_error, rotation6_to_matrix
from recap.pool.importers.resample import resample
from recap.types import Episode

rates = st.sampled_from([1.0, 5, 10, 12.5, 16.7, 20, 25, 29.97, 30, 100])
lengths = st.integers(1, 40)


def make(n: int = 21, fps: float = 10, seed: int = 0) -> Episode:
    arm = encode_arm(poses(n, seed), gripper(n)).astype(np.float32)
    pose = path_of(n, seed + 2).astype(np.float32)
    pose[:, 2] = (np.linspace(2.5, 5, n) + np.pi) % (2 * np.pi) - np.pi  # wraps from pi to -pi
    return Episode(
        id="demo",
        scene_id="scene",
        task="push",
        embodiment="arm",
        fps=fps,
        timestamps=np.arange(n) / fps,
        proprio=arm,
        actions=np.concatenate([arm[1:], arm[-1:]]),
        objects={"block": pose, "cup": path_of(n, seed + 4, 7).astype(np.float32)},
        goal=np.ones(3, np.float32),
        images={"top": [np.full((2, 2, 3), i, np.uint8) for i in range(n)]},
    )


@given(lengths, rates)
def test_resampling_to_the_same_rate_returns_the_episode_itself(n: int, fps: float) -> None:
    episode = make(n, fps)
    assert resample(episode, fps) is episode


@given(lengths, rates, rates, st.integers(0, 99))
def test_resampling_keeps_both_ends_and_spaces_timestamps_evenly(
    n: int, old: float, new: float, seed: int
) -> None:
    episode = make(n, old, seed)
    other = resample(episode, new)
    assert other.fps == new
    np.testing.assert_array_equal(other.timestamps, np.arange(len(other)) / new)
    assert episode.timestamps[-1] - 1e-6 <= other.timestamps[-1] < episode.timestamps[-1] + 1 / new
    pairs = [(episode.proprio, other.proprio), (episode.actions, other.actions)]
    pairs += [(episode.objects[name], other.objects[name]) for name in episode.objects]
    for was, now in pairs:
        assert now.shape == (len(other), was.shape[1])
        assert now.dtype == np.dtype(np.float32)
        np.testing.assert_array_equal(now[0], was[0])
        np.testing.assert_array_equal(now[-1], was[-1])
    frames = other.images["top"]
    assert len(frames) == len(other)
    assert (frames[0].max(), frames[-1].max()) == (0, n - 1)
    assert [f.max() for f in frames] == [frames[i].max() for i in range(len(frames))]
    assert rotation6_error(other.proprio[:, 3:9]).max() < 1e-5
    assert np.abs(other.objects["block"][:, 2]).max() <= np.pi + 1e-6


@given(st.integers(1, 20), st.sampled_from([5.0, 10, 30]), st.integers(2, 5), st.integers(0, 99))
def test_resampling_up_by_an_integer_factor_and_back_is_exact(
    n: int, fps: float, factor: int, seed: int
) -> None:
    episode = make(n, fps, seed)
    back = resample(resample(episode, fps * factor), fps)
    np.testing.assert_array_equal(back.proprio, episode.proprio)
    np.testing.assert_array_equal(back.actions, episode.actions)
    np.testing.assert_array_equal(back.objects["block"], episode.objects["block"])
    assert [f.max() for f in back.images["top"]] == list(range(n))


@given(st.sampled_from([17.0, 23, 44.1]), st.integers(0, 99))
def test_resampling_up_by_any_factor_and_back_is_close(fps: float, seed: int) -> None:
    episode = make(41, 10, seed)
    back = resample(resample(episode, fps), 10)
    smooth = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert np.abs(back.proprio[:41, smooth] - episode.proprio[:, smooth]).max() < 0.02
    turn = back.objects["block"][:41, 2] - episode.objects["block"][:, 2]
    assert np.abs((turn + np.pi) % (2 * np.pi) - np.pi).max() < 0.02


def test_an_angle_is_interpolated_along_the_shorter_arc() -> None:
    episode = make(2, 1)
    block = np.array([[0, 0, 3.0], [1, 2, -3.0]], np.float32)
    middle = resample(replace(episode, objects={"block": block}), 2).objects["block"][1]
    np.testing.assert_allclose(middle[:2], [0.5, 1])
    assert abs(abs(middle[2]) - np.pi) < 1e-5  # through pi, not through 0
    block[:, 2] = (0.2, 6.1)  # an angle within 0 to 2 pi
    angle = resample(replace(episode, objects={"block": block}), 2).objects["block"][1, 2]
    assert abs(angle - (0.2 + 6.1 - 2 * np.pi) / 2) < 1e-5
    block[:, 2] = (7.0, 8.0)  # an angle beyond a full turn is not wrapped
    assert resample(replace(episode, objects={"block": block}), 2).objects["block"][1, 2] == 7.5


def test_interpolated_rotations_are_valid_and_halfway() -> None:
    pose = np.array([[0, 0, 0, 1, 0, 0, 0], [0, 0, 0, np.sqrt(0.5), 0, 0, np.sqrt(0.5)]])
    arm = encode_arm(pose, np.array([0.25, 0.75])).astype(np.float32)
    middle = resample(replace(make(2, 1), proprio=arm, actions=arm), 2).proprio[1]
    c = np.sqrt(0.5)
    np.testing.assert_allclose(rotation6_to_matrix(middle[3:9])[:, 0], [c, c, 0], atol=1e-6)
    assert middle[9] == 0.5  # a continuous gripper is interpolated
    pose[1, 3:] = (0, 0, 0, 1)  # half a turn apart: the plain mean is not a rotation
    arm = encode_arm(pose, np.zeros(2)).astype(np.float32)
    middle = resample(replace(make(2, 1), proprio=arm, actions=arm), 2).proprio[1]
    assert rotation6_error(middle[3:9]) < 1e-6


def test_a_quaternion_sign_change_does_not_affect_interpolation() -> None:
    pose = poses(21).astype(np.float32)  # its quaternions change sign in the middle
    other = resample(replace(make(21, 10), proprio=pose, actions=pose), 30).proprio
    np.testing.assert_allclose(np.linalg.norm(other[:, 3:], axis=1), 1, atol=1e-6)
    steps = np.abs((other[1:, 3:] * other[:-1, 3:]).sum(axis=1))
    assert steps.min() > 0.999  # up to sign, each frame is close to the one before


def test_binary_gripper_values_stay_binary_and_actions_are_held() -> None:
    other = resample(make(21, 10), 40)
    assert set(other.proprio[:, 9]) == {0.0, 1.0}
    was = make(21, 10)
    np.testing.assert_array_equal(other.actions[:, 9], was.actions[np.arange(81) // 4, 9])
    down = resample(make(21, 10), 4)
    assert set(down.proprio[:, 9]) == {0.0, 1.0}


def test_uneven_timestamps_become_even() -> None:
    episode = make(21, 10)
    times = episode.timestamps + 0.03 * np.sin(np.arange(21)) + 4
    even = resample(replace(episode, timestamps=times), 10)
    np.testing.assert_array_equal(even.timestamps, np.arange(len(even)) / 10)
    x = np.interp(even.timestamps, times - times[0], episode.proprio[:, 0].astype(float))
    np.testing.assert_allclose(even.proprio[:, 0], x, atol=1e-6)


def test_resampling_refuses_bad_rates_delta_actions_and_bad_timestamps() -> None:
    episode = make()
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="no frame rate"):
            resample(episode, bad)
    with pytest.raises(InputError, match="lower rate"):
        resample(episode, 1e7)
    with pytest.raises(InputError, match="one frame rate only"):
        resample(replace(episode, action_space="OSC_POSE delta"), 20)
    with pytest.raises(InputError, match="do not increase"):
        resample(replace(episode, timestamps=np.zeros(21)), 20)
    with pytest.raises(InputError, match="no frames"):
        resample(make(0), 20)
