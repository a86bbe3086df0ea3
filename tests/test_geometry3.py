"""3-D poses: exact inverses, a unique encoding of each rotation, and continuity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap import geometry3 as g3
from recap.types import F64

seeds = st.integers(0, 2**32 - 1)


def random_poses(seed: int, n: int = 6) -> F64:
    rng = np.random.default_rng(seed)
    quaternion = rng.normal(size=(n, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    return np.concatenate([rng.uniform(-2, 2, (n, 3)), quaternion], axis=1)


def test_a_rotation_about_z_in_each_encoding() -> None:
    half = np.pi / 12
    matrix = g3.quaternion_to_matrix(np.array([np.cos(half), 0, 0, np.sin(half)]))
    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    np.testing.assert_allclose(matrix, [[c, -s, 0], [s, c, 0], [0, 0, 1]], atol=1e-15)
    np.testing.assert_allclose(g3.matrix_to_rotation6(matrix), [c, s, 0, -s, c, 0], atol=1e-15)


@given(seeds)
def test_quaternions_of_any_length_give_rotation_matrices(seed: int) -> None:
    m = g3.quaternion_to_matrix(random_poses(seed)[:, 3:] * np.random.default_rng(seed).uniform(1e-3, 1e3))
    np.testing.assert_allclose(m @ m.transpose(0, 2, 1), np.tile(np.eye(3), (6, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(m), 1)
    np.testing.assert_allclose(g3.rotation6_to_matrix(g3.matrix_to_rotation6(m)), m, atol=1e-12)
    assert g3.rotation6_error(g3.matrix_to_rotation6(m)).max() < 1e-12


@given(seeds)
def test_encode_and_decode_are_inverses(seed: int) -> None:
    left, right = random_poses(seed), random_poses(seed + 1)
    open_, shut = np.linspace(0, 1, 6), np.linspace(1, 0, 6)
    code = g3.encode_arms(left, open_, right, shut)
    assert code.shape == (6, 20)
    for pose, gripper, was, was_gripper in (
        (*g3.decode_arms(code)[:2], left, open_),
        (*g3.decode_arms(code)[2:], right, shut),
    ):
        np.testing.assert_array_equal(gripper, was_gripper)
        np.testing.assert_allclose(pose[:, :3], was[:, :3])
        sign = np.sign((pose[:, 3:] * was[:, 3:]).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(sign * pose[:, 3:], was[:, 3:], atol=1e-9)
        assert (pose[:, 3] >= 0).all()


@given(seeds)
def test_a_quaternion_and_its_negative_encode_the_same(seed: int) -> None:
    pose = random_poses(seed)
    other = pose * [1, 1, 1, -1, -1, -1, -1]
    np.testing.assert_array_equal(g3.encode_arm(pose, np.zeros(6)), g3.encode_arm(other, np.zeros(6)))


@given(seeds, st.floats(1e-6, 1e-2))
def test_a_small_rotation_is_a_small_change_of_the_6d_encoding(seed: int, angle: float) -> None:
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    start = g3.quaternion_to_matrix(rng.normal(size=4))
    turn = g3.quaternion_to_matrix(np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)]))
    step = g3.matrix_to_rotation6(turn @ start) - g3.matrix_to_rotation6(start)
    assert np.linalg.norm(step) <= 1.5 * angle


@pytest.mark.parametrize("half_turn", [(0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0.6, 0, 0.8)])
def test_half_turns_convert_to_matrices_and_back(half_turn: tuple[float, ...]) -> None:
    q = np.array(half_turn, dtype=float)
    back = g3.matrix_to_quaternion(g3.quaternion_to_matrix(q))
    np.testing.assert_allclose(abs(back @ q), 1)


def test_invalid_quaternions_and_rotations_are_refused() -> None:
    for bad in (np.zeros(4), np.ones(3)):
        with pytest.raises(ValueError, match="quaternion"):
            g3.quaternion_to_matrix(bad)
    for bad in (np.zeros(6), np.ones(6), np.ones(5)):
        with pytest.raises(ValueError, match="6-D"):
            g3.rotation6_to_matrix(bad)
    with pytest.raises(ValueError, match=r"\(t, 7\)"):
        g3.encode_arm(np.zeros((2, 6)), np.zeros(2))
    with pytest.raises(ValueError, match=r"\(t, 10\)"):
        g3.decode_arm(np.zeros((2, 9)))
    with pytest.raises(ValueError, match=r"\(t, 20\)"):
        g3.decode_arms(np.zeros((2, 10)))


def test_quaternion_columns_are_recognised() -> None:
    poses = random_poses(0)
    assert g3.quaternion_start(poses) == 3
    assert g3.quaternion_start(poses[:, :5]) is None
    assert g3.quaternion_start(np.tile([0.0, 1, 0, 0], (5, 1))) is None  # constant columns
    assert g3.quaternion_start(np.zeros((0, 7))) is None


def test_arm_columns_are_recognised_by_their_rotations() -> None:
    arm = g3.encode_arm(random_poses(0), np.zeros(6))
    assert g3.arm_starts(arm) == (0,)
    assert g3.arm_starts(np.concatenate([arm, arm], axis=1)) == (0, 10)
    assert g3.arm_starts(np.full((6, 10), 0.3)) == ()  # ten joints
    assert g3.arm_starts(arm[:, :9]) == ()


poses7 = st.tuples(*[st.floats(-2, 2)] * 3, *[st.floats(-1, 1)] * 4).filter(
    lambda pose: np.linalg.norm(pose[3:]) > 0.1
)


@given(poses7.map(np.array), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_symmetric_poses_have_equally_near_canonical_poses(pose: F64, symmetry: int, k: int) -> None:
    reference = np.array([0, 0, 0, 1.0, 0, 0, 0])
    half = np.pi * (k % symmetry) / symmetry
    spin = np.array([np.cos(half), 0, 0, np.sin(half)])
    matrix = g3.quaternion_to_matrix(pose[3:]) @ g3.quaternion_to_matrix(spin)
    turned = np.concatenate([pose[:3], g3.matrix_to_quaternion(matrix)])
    a, b = (g3.canonical_poses3(p, reference, symmetry) for p in (pose, turned))
    near = [abs(float(p[3])) / np.linalg.norm(p[3:]) for p in (a, b)]
    assert near[0] == pytest.approx(near[1], abs=1e-9)  # at an edge two poses are equally near
    assert a[:3] == pytest.approx(pose[:3])


def test_turn_poses_rotates_about_the_worlds_axes_and_keeps_positions() -> None:
    quarter = np.sqrt(0.5)
    lying = np.array([0.1, 0.2, 0.3, quarter, quarter, 0.0, 0.0])  # its z axis along -y
    turned = g3.turn_poses(np.stack([lying, lying]), np.array([[0.0, 0.0, np.pi / 2], [0.0, 0.0, 0.0]]))
    assert turned[:, :3] == pytest.approx(np.stack([lying, lying])[:, :3])
    assert g3.quaternion_to_matrix(turned[0, 3:])[:, 2] == pytest.approx([1.0, 0.0, 0.0])
    assert turned[1] == pytest.approx(lying)
