"""Calibrated cameras: projection of points, and triangulation by several cameras."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap import config as configs
from recap.errors import InputError
from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.types import F64

ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
REFINEMENTS = 5  # of a triangulated point; two or three are enough


@dataclass(frozen=True)
class Camera:
    """A calibrated camera, as in a robot's description.

    Args:
        size: height, width of its images.
        intrinsics: fx, fy, cx, cy in pixels at that size.
        distortion: k1, k2, p1, p2, k3 as in OpenCV; none: a pinhole camera.
        at: x, y, z, qw, qx, qy, qz: its pose, looking along its z axis, y down.
        error_px: root mean square reprojection error of the calibration.
    """

    size: tuple[int, int]
    intrinsics: tuple[float, float, float, float]
    distortion: tuple[float, ...] = ()
    at: tuple[float, ...] = ORIGIN
    error_px: float = 0.0

    def __post_init__(self) -> None:
        fx, fy, *_ = self.intrinsics
        numbers = (*self.intrinsics, *self.distortion, *self.at)
        if not all(map(math.isfinite, numbers)) or min(fx, fy, *self.size) <= 0:
            raise InputError("a camera needs a size, fx and fy above 0: calibrate it", code="hands.camera")
        if len(self.at) != 7 or len(self.distortion) not in (0, 4, 5, 8, 12, 14):
            raise InputError("a camera has 7 numbers in at, 0, 4, 5 or 8 in distortion", code="hands.camera")

    @property
    def matrix(self) -> F64:
        """(3, 3) intrinsics."""
        fx, fy, cx, cy = self.intrinsics
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])

    @property
    def rotation(self) -> F64:
        """(3, 3): rotation from the camera's frame to the world's."""
        return quaternion_to_matrix(np.array(self.at[3:]))

    @property
    def position(self) -> F64:
        """(3,) in the world."""
        return np.array(self.at[:3], np.float64)

    def seen_from(self, points: NDArray[Any]) -> F64:
        """World points (..., 3) in the camera's frame."""
        return np.asarray((np.asarray(points, np.float64) - self.position) @ self.rotation)

    def to_world(self, points: NDArray[Any]) -> F64:
        """Points (..., 3) in the camera's frame in the world."""
        return np.asarray(np.asarray(points, np.float64) @ self.rotation.T + self.position)

    def project(self, points: NDArray[Any]) -> F64:
        """Pixels (..., 2) of world points (..., 3); nan for points behind the camera."""
        import cv2

        here = self.seen_from(points)
        flat = here.reshape(-1, 3)
        usable = np.isfinite(flat).all(axis=1) & (flat[:, 2] > 1e-6)
        out = np.full((len(flat), 2), np.nan)
        if usable.any():
            zero, bent = np.zeros(3), np.array(self.distortion or (0.0,) * 4)
            out[usable] = cv2.projectPoints(flat[usable], zero, zero, self.matrix, bent)[0][:, 0]
        return out.reshape(*here.shape[:-1], 2)

    def rays(self, pixels: NDArray[Any]) -> F64:
        """Pixels (..., 2) without distortion: x / z and y / z in the camera's frame."""
        import cv2

        pixels = np.asarray(pixels, np.float64)
        flat = pixels.reshape(-1, 2)
        usable = np.isfinite(flat).all(axis=1)
        out = np.full_like(flat, np.nan)
        if usable.any():
            bent = np.array(self.distortion or (0.0,) * 4)
            out[usable] = cv2.undistortPoints(flat[usable][:, None], self.matrix, bent)[:, 0]
        return out.reshape(pixels.shape)

    def for_size(self, height: int, width: int, what: str) -> Camera:
        """The camera for images of another size and equal aspect ratio; another ratio is an error."""
        high, wide = self.size
        if (height, width) == self.size:
            return self
        if abs(height / width - high / wide) > 0.01 * high / wide:
            turned = " (it is turned by 90 degrees)" if (height > width) != (high > wide) else ""
            raise InputError(
                f"{what} is {width}x{height}, the calibration of {wide}x{high}{turned}: calibrate with the "
                "same camera setting",
                code="hands.camera",
            )
        scale = width / wide
        fx, fy, cx, cy = self.intrinsics
        # Pixel centres are at integers, so the corner of the image stays at -0.5.
        moved = (fx * scale, fy * scale, (cx + 0.5) * scale - 0.5, (cy + 0.5) * scale - 0.5)
        return replace(self, size=(height, width), intrinsics=moved)


@dataclass(frozen=True)
class Calibration:
    """The content of `calibration.yaml`."""

    cameras: Mapping[str, Camera] = field(default_factory=dict)
    frame: str = "board"  # frame of `at`: board, table, robot or camera


def load_calibration(path: Path) -> Calibration:
    """Read the file that `recap calibrate` wrote."""
    found = configs.read(Calibration, configs.load_file(path), str(path))
    if not found.cameras:
        raise InputError(f"{path} has no cameras: run recap calibrate", code="hands.camera")
    return found


def pose7(rotation: NDArray[Any], position: NDArray[Any]) -> tuple[float, ...]:
    """Rotation matrix and position as x, y, z, qw, qx, qy, qz."""
    return (*map(float, np.ravel(position)), *map(float, matrix_to_quaternion(rotation)))


def triangulate(cameras: Sequence[Camera], pixels: NDArray[Any]) -> tuple[F64, F64]:
    """Points (n, 3) from pixels (c, n, 2), and their root mean square reprojection error (n,) in px.

    The linear solution is refined to the least reprojection error. A nan pixel is not seen. Points that fewer
    than two cameras see are nan in both results.
    """
    rays = np.stack([camera.rays(seen) for camera, seen in zip(cameras, pixels, strict=True)])
    focal = np.array([np.mean(camera.intrinsics[:2]) for camera in cameras])
    seen = np.asarray(np.isfinite(rays).all(axis=-1))  # (c, n)
    turns = np.stack([camera.rotation.T for camera in cameras])  # (c, 3, 3) world to camera
    shifts = -np.einsum("cij,cj->ci", turns, np.stack([camera.position for camera in cameras]))
    enough = seen.sum(axis=0) >= 2
    points = np.full((rays.shape[1], 3), np.nan)
    errors = np.full(rays.shape[1], np.nan)
    if not enough.any():
        return points, errors
    weights = np.where(seen, focal[:, None], 0.0)[:, enough]  # (c, m)
    xy = np.where(seen[..., None], rays, 0.0)[:, enough]
    rows = xy[..., None] * turns[:, None, 2:3] - turns[:, None, :2]  # (c, m, 2, 3)
    right = shifts[:, None, :2] - xy * shifts[:, None, 2:3]  # (c, m, 2)
    found = _least_squares(rows * weights[..., None, None], right * weights[..., None])
    for _ in range(REFINEMENTS):
        here = np.einsum("cij,mj->cmi", turns, found) + shifts[:, None]
        depth = np.where(np.abs(here[..., 2:]) < 1e-9, 1e-9, here[..., 2:])
        flat = here[..., :2] / depth
        slope = (turns[:, None, :2] - flat[..., None] * turns[:, None, 2:3]) / depth[..., None]
        step = _least_squares(slope * weights[..., None, None], (xy - flat) * weights[..., None])
        found = found + step
    here = np.einsum("cij,mj->cmi", turns, found) + shifts[:, None]
    depth = np.where(here[..., 2:] > 1e-9, here[..., 2:], np.nan)
    off = np.where(seen[:, enough, None], (here[..., :2] / depth - xy) * weights[..., None], 0.0)
    points[enough] = found
    errors[enough] = np.sqrt((off**2).sum(axis=(0, 2)) / seen[:, enough].sum(axis=0))
    points[~np.isfinite(errors)] = np.nan  # behind a camera
    return points, errors


def _least_squares(rows: F64, right: F64) -> F64:
    """Minimise |rows x - right| over x (3,) for each of m points; rows are (c, m, 2, 3)."""
    left = np.einsum("cmki,cmkj->mij", rows, rows)
    left += (1e-12 * np.trace(left, axis1=1, axis2=2) + 1e-12)[:, None, None] * np.eye(3)  # for parallel rays
    values = np.einsum("cmki,cmk->mi", rows, right)
    return np.asarray(np.linalg.solve(left, values[..., None])[..., 0])
