"""Poses in space: xyz + quaternion (w first) to and from xyz + 6-D rotation (+ gripper), 10 numbers per arm.

The 6-D rotation is the first two columns of the rotation matrix, one after the other. Unlike a quaternion, it
is unique for each rotation and continuous, so that distances and averages are meaningful.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.types import F64

ARM_DIM = 10  # xyz, 6-D rotation, gripper
ROTATION = slice(3, 9)  # columns of an arm's ten numbers
GRIPPER = 9


def quaternion_to_matrix(quaternion: NDArray[Any]) -> F64:
    """(..., 4) quaternions, w first, of any length except 0, as (..., 3, 3) rotation matrices."""
    q = np.asarray(quaternion, dtype=np.float64)
    if q.shape[-1:] != (4,):
        raise ValueError(f"a quaternion has 4 numbers, not {q.shape[-1] if q.ndim else 0}")
    largest = np.abs(q).max(axis=-1, keepdims=True)
    if (largest == 0).any():
        raise ValueError("a quaternion of zeros is no rotation")
    q = q / largest  # so that squares neither underflow nor overflow
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def matrix_to_quaternion(matrix: NDArray[Any]) -> F64:
    """(..., 3, 3) rotation matrices as (..., 4) unit quaternions, w first and w >= 0."""
    m = np.asarray(matrix, dtype=np.float64)
    a, b, c = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    d01, d02, d12 = m[..., 1, 0] - m[..., 0, 1], m[..., 0, 2] - m[..., 2, 0], m[..., 2, 1] - m[..., 1, 2]
    s01, s02, s12 = m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]
    # Each row is 4 q q_i for one i, so all four point along q. The longest is the most precise.
    rows = [
        [1 + a + b + c, d12, d02, d01],
        [d12, 1 + a - b - c, s01, s02],
        [d02, s01, 1 - a + b - c, s12],
        [d01, s02, s12, 1 - a - b + c],
    ]
    ways = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)  # (..., 4, 4)
    lengths = np.linalg.norm(ways, axis=-1)
    best = np.argmax(lengths, axis=-1)[..., None]
    q = np.take_along_axis(ways, best[..., None], axis=-2)[..., 0, :]
    q = q / np.take_along_axis(lengths, best, axis=-1)
    flipped: F64 = np.where(q[..., :1] < 0, -q, q)
    return flipped


def matrix_to_rotation6(matrix: NDArray[Any]) -> F64:
    """The first two columns of (..., 3, 3), one after the other: (..., 6)."""
    m = np.asarray(matrix, dtype=np.float64)
    return np.concatenate([m[..., :, 0], m[..., :, 1]], axis=-1)


def rotation6_to_matrix(rotation6: NDArray[Any]) -> F64:
    """The rotation by Gram-Schmidt: (..., 3, 3); raises ValueError if the two vectors are parallel."""
    r = np.asarray(rotation6, dtype=np.float64)
    if r.shape[-1:] != (6,):
        raise ValueError(f"a 6-D rotation has 6 numbers, not {r.shape[-1] if r.ndim else 0}")
    first = _unit(r[..., :3])
    second = r[..., 3:]
    second = _unit(second - (first * second).sum(axis=-1, keepdims=True) * first)
    return np.stack([first, second, np.cross(first, second)], axis=-1)


def quaternion_to_rotation6(quaternion: NDArray[Any]) -> F64:
    """(..., 4) quaternions, w first, as (..., 6); q and -q give the same result."""
    return matrix_to_rotation6(quaternion_to_matrix(quaternion))


def rotation6_error(rotation6: NDArray[Any]) -> F64:
    """How far (..., 6) numbers are from two orthonormal vectors; 0 for a rotation."""
    a, b = np.asarray(rotation6[..., :3], np.float64), np.asarray(rotation6[..., 3:6], np.float64)
    lengths = np.abs(np.stack([np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1)]) - 1).max(axis=0)
    error: F64 = np.maximum(lengths, np.abs((a * b).sum(axis=-1)))
    return error


def encode_arm(pose: NDArray[Any], gripper: NDArray[Any]) -> F64:
    """(t, 7) xyz + quaternion and (t,) or (t, 1) gripper as (t, 10)."""
    pose = np.asarray(pose, dtype=np.float64)
    if pose.ndim != 2 or pose.shape[1] != 7:
        raise ValueError(f"a pose is xyz and a quaternion, (t, 7), not {pose.shape}")
    column = np.asarray(gripper, dtype=np.float64).reshape(len(pose), 1)
    return np.concatenate([pose[:, :3], quaternion_to_rotation6(pose[:, 3:]), column], axis=1)


def decode_arm(values: NDArray[Any]) -> tuple[F64, F64]:
    """The inverse of `encode_arm`: (t, 7) poses, quaternions with w >= 0, and (t,) gripper."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != ARM_DIM:
        raise ValueError(f"an arm is {ARM_DIM} numbers, (t, {ARM_DIM}), not {values.shape}")
    quaternion = matrix_to_quaternion(rotation6_to_matrix(values[:, ROTATION]))
    return np.concatenate([values[:, :3], quaternion], axis=1), values[:, GRIPPER].copy()


def encode_arms(
    left_pose: NDArray[Any], left_gripper: NDArray[Any], right_pose: NDArray[Any], right_gripper: NDArray[Any]
) -> F64:
    """Two arms as (t, 20): xyz, 6-D rotation and gripper of the left one, then of the right one."""
    return np.concatenate(
        [encode_arm(left_pose, left_gripper), encode_arm(right_pose, right_gripper)], axis=1
    )


def decode_arms(values: NDArray[Any]) -> tuple[F64, F64, F64, F64]:
    """The inverse of `encode_arms`: left poses (t, 7), left gripper (t,), right poses, right gripper."""
    values = np.asarray(values)
    if values.ndim != 2 or values.shape[1] != 2 * ARM_DIM:
        raise ValueError(f"two arms are {2 * ARM_DIM} numbers, (t, {2 * ARM_DIM}), not {values.shape}")
    return (*decode_arm(values[:, :ARM_DIM]), *decode_arm(values[:, ARM_DIM:]))


def orthonormal6(rotations: NDArray[Any], base: NDArray[Any]) -> F64:
    """(H, 6) made orthonormal; where the two vectors are parallel, those of the base are used."""
    flat = np.linalg.norm(np.cross(rotations[:, :3], rotations[:, 3:]), axis=1) < 1e-3
    r = np.where(flat[:, None], base, rotations).astype(np.float64)
    first = r[:, :3] / np.linalg.norm(r[:, :3], axis=1, keepdims=True)
    second = r[:, 3:] - (first * r[:, 3:]).sum(axis=1, keepdims=True) * first
    return np.concatenate([first, second / np.linalg.norm(second, axis=1, keepdims=True)], axis=1)


def arm_starts(values: NDArray[Any]) -> tuple[int, ...]:
    """The first column of each arm if (t, 10) or (t, 20) numbers are tool poses; () for anything else."""
    if values.ndim != 2 or values.shape[1] not in (ARM_DIM, 2 * ARM_DIM) or not len(values):
        return ()
    starts = tuple(range(0, values.shape[1], ARM_DIM))
    # Ten joint angles are ten numbers too, but columns 3 to 8 are hardly ever nearly orthonormal.
    if all(np.median(rotation6_error(values[:, start + 3 : start + 9])) < 0.25 for start in starts):
        return starts
    return ()


def quaternion_start(values: NDArray[Any]) -> int | None:
    """The first of four columns of (t, d) that look like a varying quaternion in either order, or None."""
    for start in range(min(values.shape[1], 256) - 3):
        block = np.asarray(values[:, start : start + 4], np.float64)
        unit = len(block) and np.abs(np.linalg.norm(block, axis=1) - 1).max() < 1e-3
        if unit and (np.ptp(block, axis=0) > 1e-6).sum() >= 2:  # a constant joint at 1 is no quaternion
            return start
    return None


def canonical_poses3(poses: NDArray[Any], reference: NDArray[Any], symmetry: int) -> F64:
    """Poses (..., 7) replaced by their equivalents under symmetry about z that are nearest to `reference`."""
    out = np.array(poses, np.float64)
    half = np.pi * np.arange(symmetry) / symmetry
    spins = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=-1)  # (k, 4) about z
    ways = _multiplied(out[..., None, 3:], spins)  # (..., k, 4)
    near = np.abs((ways * np.asarray(reference, np.float64)[..., None, 3:]).sum(axis=-1)).argmax(axis=-1)
    out[..., 3:] = np.take_along_axis(ways, near[..., None, None], axis=-2)[..., 0, :]
    return out


def turn_poses(poses: NDArray[Any], turns: NDArray[Any]) -> F64:
    """Poses (..., 7) rotated in place by rotation vectors (..., 3), rad, in the world frame."""
    half = np.linalg.norm(turns, axis=-1, keepdims=True) / 2
    spin = np.concatenate([np.cos(half), np.sinc(half / np.pi) * np.asarray(turns, np.float64) / 2], axis=-1)
    out = np.array(poses, np.float64)
    out[..., 3:] = _multiplied(spin, out[..., 3:])
    return out


def _multiplied(p: F64, q: F64) -> F64:
    """The product of quaternions, w first."""
    w1, x1, y1, z1 = np.moveaxis(p, -1, 0)
    w2, x2, y2, z2 = np.moveaxis(q, -1, 0)
    return np.stack(
        [
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ],
        axis=-1,
    )


def _unit(vectors: F64) -> F64:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if (lengths < 1e-9).any():
        raise ValueError("a 6-D rotation needs two vectors that do not lie along one line")
    unit: F64 = vectors / lengths
    return unit


def without_jumps(quaternions: NDArray[Any]) -> F64:
    """The same rotations (t, 4) with continuous signs; q and -q are the same rotation."""
    wide = quaternions.astype(np.float64)
    signs = np.where((wide[1:] * wide[:-1]).sum(axis=1) < 0, -1.0, 1.0)
    return wide * np.cumprod([1.0, *signs])[:, None]
