"""Planar frames are invertible, and symmetric poses have one canonical pose."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.geometry import canonical_poses, into_frame, out_of_frame, transform_points, wrap_angle

numbers = st.floats(-600, 600)
poses = st.tuples(numbers, numbers, st.floats(-10, 10)).map(np.array)
points = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6).map(np.array)


@given(poses, points)
def test_into_frame_and_out_of_frame_are_inverses(frame: np.ndarray, where: np.ndarray) -> None:
    assert out_of_frame(frame, into_frame(frame, where)) == pytest.approx(where, abs=1e-8)
    assert into_frame(frame, out_of_frame(frame, where)) == pytest.approx(where, abs=1e-8)
    assert out_of_frame(frame, where) == pytest.approx(transform_points(frame, where), abs=1e-9)


@given(poses, poses, st.sampled_from([1, 2, 4]), st.integers(-3, 3))
def test_symmetric_poses_have_one_canonical_pose(
    pose: np.ndarray, goal: np.ndarray, symmetry: int, k: int
) -> None:
    period = 2 * math.pi / symmetry
    turned = pose + np.array([0, 0, k * period])
    a, b = canonical_poses(pose, goal, symmetry), canonical_poses(turned, goal, symmetry)
    assert abs(a[2] - goal[2]) <= period / 2 + 1e-9
    assert math.cos(symmetry * (a[2] - pose[2])) == pytest.approx(1)
    off_the_edge = (
        abs(abs(a[2] - goal[2]) - period / 2) > 1e-6
    )  # at the edge two equivalent poses are equally near
    if off_the_edge:
        assert a == pytest.approx(b, abs=1e-8)


@given(st.floats(-50, 50))
def test_wrapping_keeps_the_angle(angle: float) -> None:
    assert -math.pi <= wrap_angle(angle) < math.pi
    assert math.cos(wrap_angle(angle) - angle) == pytest.approx(1)
