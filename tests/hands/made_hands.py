"""Synthetic hands with known ground truth: 21 moving points seen by known cameras."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.geometry3 import matrix_to_quaternion
from recap.types import F64
from recap_hands.camera import Camera
from recap_hands.landmarks import Hand

# Knuckles in m: z along the hand, x to a right hand's thumb, y out of the palm. Then bone lengths in mm.
BASES = np.array(
    [(0.03, 0.01, 0.03), (0.027, 0, 0.09), (0.005, 0, 0.094), (-0.015, 0, 0.088), (-0.034, 0, 0.08)]
)
LENGTHS = (38, 30, 26, 42, 26, 22, 46, 29, 23, 42, 27, 23, 33, 20, 20)
BONES = np.array(LENGTHS).reshape(5, 3) / 1000


def about(axis: NDArray[Any], angle: float) -> F64:
    """A rotation about an axis."""
    x, y, z = np.asarray(axis, float) / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k)


def shape_of(closed: float) -> F64:
    """Landmarks (21, 3) of a right hand: open at 0, thumb and index finger together at 1."""
    points = [np.zeros(3)]
    for finger, (base, bones) in enumerate(zip(BASES, BONES, strict=True)):
        if finger == 0:
            bend, heading = 0.25 * closed, np.array([0.75 - 0.72 * closed, 0.35 + 0.35 * closed, 0.6])
            axis = np.array([0.0, -1.0, 0.2])
        else:
            bend, heading = 0.15 + (0.6 * closed if finger == 1 else 0.35), np.array([0.0, 0.05, 1.0])
            axis = np.array([-1.0, 0.0, 0.0])
        heading = heading / np.linalg.norm(heading)
        points.append(base)
        for bone in bones:
            heading = about(axis, bend) @ heading
            points.append(points[-1] + bone * heading)
    return np.array(points)


def motion(n: int = 90, seed: int = 0, fps: float = 30) -> tuple[F64, F64]:
    """Times (n,) and points (n, 21, 3) of a hand above a table: reach, rotate, close, lift, open."""
    rng = np.random.default_rng(seed)
    phase = np.linspace(0, 1, n)
    a, b, c = rng.uniform(0.8, 1.2, 3)
    place = np.column_stack([0.12 * np.sin(2 * a * phase), 0.1 * np.cos(3 * b * phase), 0.25 - 0.15 * phase])
    closed = np.clip(np.minimum(8 * (phase - 0.3), 8 * (0.8 - phase)), 0, 1)
    axis = rng.normal(size=3)
    down = about([1, 0, 0], np.pi - 0.5) @ about([0, 0, 1], rng.uniform(-1, 1))
    points = []
    for i in range(n):
        turn = about(axis, 0.6 * np.sin(4 * c * phase[i])) @ down
        points.append(shape_of(closed[i]) @ turn.T + place[i])
    return np.arange(n) / fps, np.array(points)


def looking_at(
    place: NDArray[Any], target: NDArray[Any], size: tuple[int, int] = (480, 640), focal: float = 600.0
) -> Camera:
    """A camera at `place` that looks at `target`, with the world's z upwards in the image."""
    place, target = np.asarray(place, float), np.asarray(target, float)
    z = (target - place) / np.linalg.norm(target - place)
    x = np.cross(z, [0, 0, 1.0])
    x /= np.linalg.norm(x)
    turn = np.stack([x, np.cross(z, x), z], axis=1)
    centre = ((size[1] - 1) / 2, (size[0] - 1) / 2)
    at = (*place.tolist(), *matrix_to_quaternion(turn).tolist())
    return Camera(size, (focal, focal, *centre), (0.05, -0.1, 0.001, -0.0005, 0.02), at)


FRONT = looking_at([0.1, -0.75, 0.5], [0, 0, 0.12])
SIDE = looking_at([0.7, -0.25, 0.55], [0, 0, 0.12])


def seen_by(
    camera: Camera, points: F64, noise_px: float = 0.0, shape_noise_m: float = 0.0, seed: int = 0
) -> Hand:
    """What an estimator would find: pixels, and the centred shape in the camera's axes."""
    rng = np.random.default_rng(seed)
    pixels = camera.project(points) + rng.normal(0, noise_px, (*points.shape[:2], 2))
    here = camera.seen_from(points)
    shape = here - here.mean(axis=1, keepdims=True) + rng.normal(0, shape_noise_m, points.shape)
    return Hand(pixels, shape)


def angle_deg(a: F64, b: F64) -> F64:
    """Angles (t,) between rotations (t, 3, 3)."""
    trace = np.einsum("tij,tij->t", a, b)
    return np.asarray(np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1))))
