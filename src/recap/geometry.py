"""Poses in the plane: (x, y, theta), in any unit of length, and radians."""

from __future__ import annotations

import math

import numpy as np

from recap.types import F64


def wrap_angle(angle: float, period: float = 2 * math.pi) -> float:
    """The equivalent angle in [-period/2, period/2)."""
    return (angle + period / 2) % period - period / 2


def rotation(theta: float) -> F64:
    """The 2x2 rotation matrix of theta."""
    c, s = math.cos(theta), math.sin(theta)
    return np.array([[c, -s], [s, c]])


def transform_points(pose: F64, points: F64) -> F64:
    """Points (..., 2) given in the frame `pose`, expressed in the world."""
    return points @ rotation(float(pose[2])).T + pose[:2]


def into_frame(frame: F64, points: F64) -> F64:
    """World points (..., 2) expressed in the frame (or frames, (..., 3)) given as poses."""
    c, s = np.cos(frame[..., 2]), np.sin(frame[..., 2])
    dx, dy = points[..., 0] - frame[..., 0], points[..., 1] - frame[..., 1]
    return _paired(c * dx + s * dy, c * dy - s * dx)


def out_of_frame(frame: F64, points: F64) -> F64:
    """The inverse of `into_frame`."""
    c, s = np.cos(frame[..., 2]), np.sin(frame[..., 2])
    x, y = points[..., 0], points[..., 1]
    return _paired(frame[..., 0] + c * x - s * y, frame[..., 1] + s * x + c * y)


def _paired(x: F64, y: F64) -> F64:
    """Stack to (..., 2); np.stack takes ten times as long for a few points."""
    out = np.empty((*np.shape(x), 2))
    out[..., 0], out[..., 1] = x, y
    return out


def canonical_poses(poses: F64, goal: F64, symmetry: int) -> F64:
    """Poses (..., 3), each with the symmetric angle that is nearest to the goal's angle."""
    period = 2 * math.pi / symmetry
    turn = (poses[..., 2] - goal[..., 2] + period / 2) % period - period / 2
    out = np.array(poses, np.float64)
    out[..., 2] = goal[..., 2] + turn
    return out
