"""The tool pose of a hand: pose, opening, gaps and grasps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_hands import about, angle_deg, motion, shape_of

from recap_hands.tool import bridged, gaps, grip_events, openness, palm_length, snapped, tool_path


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), angle=st.floats(-3, 3), scale=st.floats(0.5, 2))
def test_the_tool_pose_moves_rotates_and_scales_with_the_hand(seed: int, angle: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    points = motion(20, seed)[1]
    turn, shift = about(rng.normal(size=3), angle), rng.normal(size=3)
    before, after = tool_path(points), tool_path(scale * points @ turn.T + shift)
    np.testing.assert_allclose(after.position, scale * before.position @ turn.T + shift, atol=1e-9)
    np.testing.assert_allclose(after.rotation, turn @ before.rotation, atol=1e-6)
    np.testing.assert_allclose(after.opening, scale * before.opening, atol=1e-9)


def test_the_tools_axes_are_a_rotation_along_and_across_the_hand() -> None:
    path = tool_path(np.stack([shape_of(0.0), shape_of(0.1)]))
    square = path.rotation @ np.swapaxes(path.rotation, 1, 2)
    np.testing.assert_allclose(square, np.tile(np.eye(3), (2, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(np.linalg.det(path.rotation), 1)
    x, y, z = path.rotation[0].T
    assert z @ (0, 0, 1) > 0.95  # along the hand
    assert y @ (shape_of(0.0)[8] - shape_of(0.0)[4]) > 0  # from the thumb to the index finger
    np.testing.assert_allclose(np.cross(y, z), x)


def test_closing_the_fingers_does_not_rotate_the_tool() -> None:
    closed = np.linspace(0, 1, 30)
    path = tool_path(np.stack([shape_of(value) for value in closed]))
    assert angle_deg(path.rotation, np.tile(path.rotation[:1], (30, 1, 1))).max() < 1e-3
    assert path.opening[0] > 0.1 > 0.04 > path.opening[-1]
    assert openness(path)[0] == 1
    assert openness(path)[-1] < 0.1


def test_a_tool_transform_is_fixed_in_the_hand() -> None:
    points = motion(10)[1]
    turn, shift = about([0, 0, 1], 0.5), np.array([0, 0, 0.1])
    plain, moved = tool_path(points), tool_path(points, tool=(turn, shift))
    np.testing.assert_allclose(moved.position, plain.position + plain.rotation @ shift)
    np.testing.assert_allclose(moved.rotation, plain.rotation @ turn)


def test_a_hand_with_still_fingers_has_no_grasp_and_the_default_range() -> None:
    points = np.stack([shape_of(0.2) + np.array([0.01 * i, 0, 0]) for i in range(30)])
    path = tool_path(points)
    assert not path.moves
    assert path.range_m == (0.02, 0.10)
    assert grip_events(openness(path)) == []
    assert tool_path(points, opening_range=(0.0, 0.2)).range_m == (0.0, 0.2)


def test_gaps_stay_missing_unless_bridged() -> None:
    times, points = motion(60)
    points[10:12] = np.nan
    points[30:45, 8] = np.nan
    path = tool_path(points)
    assert gaps(path.seen) == [(10, 12), (30, 45)]
    assert np.isnan(path.position[10:12]).all()
    assert np.isnan(path.opening[30:45]).all()
    filled, which = bridged(points, times, 0.15)
    assert which.nonzero()[0].tolist() == [10, 11]
    expected = points[9] + (points[12] - points[9]) / 3
    np.testing.assert_allclose(filled[10], expected)
    assert np.isnan(filled[30:45, 8]).all()
    points[:5] = np.nan  # a gap at the beginning cannot be bridged
    assert not bridged(points, times, 10.0)[1][:5].any()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=60))
def test_grasps_and_releases_alternate_in_time(values: list[float]) -> None:
    events = grip_events(np.array(values))
    assert all(a.frame < b.frame and a.kind != b.kind for a, b in pairwise(events))
    assert all(np.isfinite(values[event.frame]) for event in events)
    grip = snapped(np.array(values), events)
    assert np.array_equal(np.isnan(grip), np.isnan(values))
    if events:
        assert set(np.unique(grip[np.isfinite(grip)])) <= {0.0, 1.0}


def test_a_grasp_is_at_the_end_of_closing_and_a_release_at_the_start_of_opening() -> None:
    share = np.concatenate(
        [np.ones(10), np.linspace(1, 0, 11), np.zeros(10), np.linspace(0, 1, 11), np.ones(5)]
    )
    grasp, release = grip_events(share)
    assert (grasp.kind, release.kind) == ("grasp", "release")
    assert grasp.frame == 20
    assert 30 <= release.frame <= 32
    trembling = 0.45 + 0.1 * np.sin(np.arange(100))
    assert grip_events(trembling) == []
    grip = snapped(share, [grasp, release])
    assert grip[:20].min() == 1
    assert grip[20:30].max() == 0
    assert grip[32:].min() == 1


def test_the_palm_length_is_constant() -> None:
    assert np.ptp(palm_length(motion()[1])) < 1e-9
