"""Poses in the plane: a pose is (x, y, theta), in any unit of length and radians."""

from __future__ import annotations

import math

import numpy as np

from recap.types import F64


def wrap_angle(angle: float, period: float = 2 * math.pi) -> float:
    """The equal angle in [-period/2, period/2)."""
    return (angle + period / 2) % period - period / 2


def rotation(theta: float) -> F64:
    """The 2x2 matrix that turns by theta."""
    c, s = math.cos(theta), math.sin(theta)
    return np.array([[c, -s], [s, c]])


def transform_points(pose: F64, points: F64) -> F64:
    """Points (..., 2) given in the frame `pose`, expressed in the world."""
    return points @ rotation(float(pose[2])).T + pose[:2]
