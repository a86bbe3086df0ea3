"""Landmarks of hands: files, left and right, timestamps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_hands import FRONT, motion, seen_by

from recap.errors import DatasetError, InputError
from recap_hands.landmarks import (
    Hand,
    Landmarks,
    at_times,
    load_landmarks,
    one_hand,
    save_landmarks,
    without_swaps,
)


def two_hands(n: int = 60) -> Landmarks:
    times, points = motion(n)
    mirrored = points * (-1, 1, 1) - (0.25, 0, 0)
    hands = {"right": seen_by(FRONT, points), "left": seen_by(FRONT, mirrored)}
    return Landmarks(times, (480, 640), hands)


def test_a_landmarks_file_loads_as_saved(tmp_path: Path) -> None:
    found = two_hands()
    save_landmarks(tmp_path / "landmarks.npz", found)
    again = load_landmarks(tmp_path / "landmarks.npz")
    assert again.size == (480, 640)
    np.testing.assert_array_equal(again.hands["left"].pixels, found.hands["left"].pixels)
    np.testing.assert_array_equal(again.times, found.times)


def test_a_wrist_pose_with_a_shape_gives_points(tmp_path: Path) -> None:
    _, points = motion(6)
    wrist = np.tile(np.eye(4), (6, 1, 1))
    wrist[:, :3, 3] = points[:, 0]
    np.savez(
        tmp_path / "a.npz",
        time_s=np.arange(6) / 30,
        size=[480, 640],
        wrist=wrist,
        shape=points - points[:, :1],
    )
    hand = load_landmarks(tmp_path / "a.npz").hands["hand"]
    assert hand.points is not None
    np.testing.assert_allclose(hand.points, points)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"time_s": np.arange(3)}, "no size"),
        ({"time_s": np.zeros(3), "size": [4, 4]}, "do not increase"),
        ({"time_s": np.arange(3), "size": [4, 4]}, "names no hand"),
        ({"time_s": np.arange(3), "size": [4, 4], "pixels": np.zeros((3, 20, 2))}, "not \\(3, 21, 2\\)"),
        ({"time_s": np.arange(3), "size": [4, 4], "shape": np.zeros((3, 21, 3))}, "has no pixels"),
        ({"time_s": np.array([None, 1]), "size": [4, 4]}, "cannot be read"),
    ],
)
def test_a_wrong_landmarks_file_is_an_error(tmp_path: Path, arrays: dict[str, object], words: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=words):
        load_landmarks(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_landmarks(tmp_path / "b.npz")


def test_swapped_hand_labels_are_corrected_also_for_a_single_hand() -> None:
    found = two_hands()
    left, right = found.hands["left"].pixels.copy(), found.hands["right"].pixels.copy()
    for frame in (7, 8, 30):
        left[frame], right[frame] = right[frame].copy(), left[frame].copy()
    left[40], right[40] = right[40], np.nan  # only the right hand was found, labelled left
    fixed = without_swaps(replace(found, hands={"left": Hand(left), "right": Hand(right)}))
    assert fixed.n_swaps == 4
    np.testing.assert_array_equal(fixed.hands["right"].pixels, found.hands["right"].pixels)
    assert np.isnan(fixed.hands["left"].pixels[40]).all()
    assert without_swaps(found).n_swaps == 0
    mostly = replace(found, hands={"left": found.hands["right"], "right": found.hands["left"]})
    assert without_swaps(mostly).n_swaps == 0  # labels of most frames are kept


def test_one_hand_merges_labels_of_a_single_hand_and_refuses_two() -> None:
    found = two_hands()
    with pytest.raises(InputError, match="two hands") as error:
        one_hand(found, "one")
    assert error.value.code == "hands.two"
    assert set(one_hand(found, "left").hands) == {"left"}
    right = found.hands["right"].pixels
    named = {"left": np.full_like(right, np.nan), "right": right.copy()}
    named["left"][20:25], named["right"][20:25] = right[20:25], np.nan  # labelled left for some frames
    alone = one_hand(replace(found, hands={side: Hand(p) for side, p in named.items()}), "one")
    assert set(alone.hands) == {"right"}
    np.testing.assert_array_equal(alone.hands["right"].pixels, right)
    with pytest.raises(InputError, match="no left hand"):
        one_hand(replace(found, hands={"left": Hand(np.full_like(right, np.nan))}), "left")


def test_resampling_landmarks_keeps_equal_times_and_gaps() -> None:
    times, points = motion(30)
    found = Landmarks(times, (480, 640), {"hand": seen_by(FRONT, points)})
    same = at_times(found, times).hands["hand"]
    np.testing.assert_array_equal(same.pixels, found.hands["hand"].pixels)
    half = at_times(found, times[:-1] + 1 / 60).hands["hand"].pixels
    np.testing.assert_allclose(half, (found.hands["hand"].pixels[1:] + found.hands["hand"].pixels[:-1]) / 2)
    kept = np.r_[0:10, 11, 20:30]
    lost = Landmarks(times[kept], (480, 640), {"hand": seen_by(FRONT, points[kept])})
    seen = at_times(lost, times).hands["hand"].seen
    assert seen[:12].all()  # a single lost frame is interpolated
    assert not seen[12:20].any()
    assert seen[20:].all()
    assert not at_times(found, times + 5).hands["hand"].seen.any()
