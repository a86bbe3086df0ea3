"""Landmarks in metres against ground truth, over several synthetic motions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_hands import FRONT, SIDE, angle_deg, motion, seen_by

from recap.errors import InputError
from recap.types import F64
from recap_hands.landmarks import Hand
from recap_hands.metric import Points, from_cameras, from_one_camera
from recap_hands.quality import jitter, measure, refuse_poor
from recap_hands.tool import Event, palm_length, tool_path


def errors(found: Points, points: F64) -> tuple[F64, F64, F64]:
    """Errors of position in mm, of rotation in degrees and of opening in mm."""
    ours, truth = tool_path(found.points), tool_path(points)
    return (
        1000 * np.linalg.norm(ours.position - truth.position, axis=1),
        angle_deg(ours.rotation, truth.rotation),
        1000 * np.abs(ours.opening - truth.opening),
    )


def test_two_cameras_with_two_pixels_of_noise_are_accurate_to_5_mm_and_5_degrees() -> None:
    rows = []
    for seed in range(10):
        _, points = motion(seed=seed)
        hands = [seen_by(camera, points, 2.0, seed=100 * seed + i) for i, camera in enumerate((FRONT, SIDE))]
        rows.append(errors(from_cameras([FRONT, SIDE], hands), points))
    mm, degrees, opening = (np.median([row[i] for row in rows]) for i in range(3))
    assert mm <= 5
    assert degrees <= 5
    assert opening <= 5


def test_one_camera_is_as_accurate_as_the_given_hand_shape() -> None:
    _, points = motion()
    exact = errors(from_one_camera(FRONT, seen_by(FRONT, points)), points)
    assert np.max(exact) < 0.01
    rows = []
    for seed in range(5):
        _, points = motion(seed=seed)
        rows.append(errors(from_one_camera(FRONT, seen_by(FRONT, points, 2.0, 0.005, seed)), points))
    mm, degrees = (np.median([row[i] for row in rows]) for i in (0, 1))
    assert 10 < mm < 30  # with one camera the error is mostly in depth
    assert degrees < 10


@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_a_wrong_hand_size_scales_the_distance_and_depth_images_correct_it(wrong: float) -> None:
    _, points = motion(20)
    hand = seen_by(FRONT, points)
    size = float(palm_length(points)[0])
    found = from_one_camera(FRONT, hand, size * wrong)
    near = FRONT.seen_from(found.points)[..., 2] / FRONT.seen_from(points)[..., 2]
    np.testing.assert_allclose(near, wrong, atol=1e-3)
    depth = []
    for frame in FRONT.seen_from(points):
        image = np.zeros((480, 640))
        pixels = np.rint(FRONT.project(FRONT.to_world(frame))).astype(int)
        image[pixels[:, 1], pixels[:, 0]] = frame[:, 2]
        depth.append(image)
    settled = from_one_camera(FRONT, hand, size * wrong, depth)
    assert np.nanmedian(errors(settled, points)[0]) < 3
    nothing = from_one_camera(FRONT, hand, None, [np.zeros((480, 640))] * 20)
    assert np.isnan(nothing.points).all()  # missing, not guessed


def test_metric_points_are_moved_to_the_world_and_bare_pixels_need_two_cameras() -> None:
    _, points = motion(5)
    given = Hand(FRONT.project(points), points=FRONT.seen_from(points))
    found = from_one_camera(FRONT, given)
    np.testing.assert_allclose(found.points, points, atol=1e-12)
    assert found.error_px.max() < 1e-6
    with pytest.raises(InputError, match="shape"):
        from_one_camera(FRONT, Hand(FRONT.project(points)))


def test_points_on_which_cameras_disagree_are_missing() -> None:
    _, points = motion(20)
    hands = [seen_by(FRONT, points), seen_by(SIDE, points)]
    off = hands[1].pixels.copy()
    off[3] += 200
    found = from_cameras([FRONT, SIDE], [hands[0], replace(hands[1], pixels=off)])
    assert np.isnan(found.points[3]).any()
    assert np.isfinite(found.points[4]).all()


def test_jitter_measures_independent_noise() -> None:
    rng = np.random.default_rng(0)
    path = np.cumsum(np.full((2000, 3), 0.004), axis=0) + rng.normal(0, 0.003, (2000, 3))
    assert jitter(path, np.ones(2000, bool)) == pytest.approx(0.003 * np.sqrt(3), rel=0.1)
    assert np.isnan(jitter(path[:2], np.ones(2, bool)))


def test_a_video_of_poor_quality_is_refused_with_the_reason() -> None:
    times, points = motion()
    none, error = np.zeros(90, bool), np.full(90, 1.0)
    good = measure(times, points, tool_path(points), none, error, [Event(35, "grasp")], 0)
    refuse_poor({"hand": good}, 640, 0.5, "film")
    assert good.coverage == 1
    assert good.grasps_s == (pytest.approx(35 / 30, abs=1e-3),)
    assert good.palm_mm == pytest.approx(94.1, abs=0.1)
    cases = {
        "seen in 20%": replace(good, coverage=0.2),
        "40.0 px off": replace(good, error_px=40.0),
        "palm of 300 mm": replace(good, palm_mm=300.0),
        "changes its size": replace(good, palm_spread=0.6),
        "trembles by 30.0 mm": replace(good, jitter_mm=30.0),
    }
    for words, quality in cases.items():
        with pytest.raises(InputError, match=words) as refused:
            refuse_poor({"left": quality}, 640, 0.5, "film.mp4")
        assert refused.value.code == "hands.quality"
        assert "film.mp4: the left hand" in str(refused.value)
