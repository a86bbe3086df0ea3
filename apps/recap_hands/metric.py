"""Landmarks in metres: with one camera from the hand's shape and size, with several by triangulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F64
from recap_hands.camera import Camera, triangulate
from recap_hands.landmarks import Hand, Landmarks, at_times
from recap_hands.tool import N_LANDMARKS, PALM, palm_length

LATEST_S = 2.0  # most by which a film may start after another
AGREE_PX, CLEARLY_PX = 9.0, 1.5  # at 640 px of width: largest error of an accepted offset, and its least gain
MAX_ERROR_PX = 25.0  # at 640 px of width: with larger errors two cameras do not see the same point


@dataclass(frozen=True)
class Points:
    """Landmarks of a hand in the world."""

    points: F64  # (t, 21, 3) m
    error_px: F64  # (t,) root mean square reprojection error of the landmarks


def from_one_camera(
    camera: Camera,
    hand: Hand,
    size_m: float | None = None,
    depth: Sequence[NDArray[Any]] | None = None,
    numbers: Sequence[int] | NDArray[np.int64] | None = None,
) -> Points:
    """Landmarks from the pose in which the hand's shape matches its pixels.

    The distance follows from the size of the hand: an error of a tenth in size is an error of a tenth in
    distance. A depth image corrects it.

    Args:
        size_m: from the wrist to the knuckle of the middle finger; by default the estimator's.
        depth: images (h, w) in metres along the camera's axis, 0 if unknown.
        numbers: index of the image for each frame; by default in order.
    """
    if hand.points is not None:
        error = np.full(len(hand.points), np.nan)
        world = camera.to_world(hand.points)
        both = np.isfinite(hand.pixels).all(axis=(1, 2)) & hand.seen
        if both.any():
            off = camera.project(world[both]) - hand.pixels[both]
            error[both] = np.sqrt((off**2).sum(axis=2).mean(axis=1))
        return Points(world, error)
    if hand.shape is None:
        raise InputError(
            "one camera needs the hand's shape beside its pixels: give shape in landmarks.npz, or two films",
            code="hands.metric",
        )
    n = len(hand.pixels)
    points, errors = np.full((n, N_LANDMARKS, 3), np.nan), np.full(n, np.nan)
    usable = np.isfinite(hand.pixels).all(axis=(1, 2)) & np.isfinite(hand.shape).all(axis=(1, 2))
    if not usable.any():
        return Points(points, errors)
    length = float(np.median(palm_length(hand.shape[usable])))
    scale = 1.0 if size_m is None else size_m / length
    rays = camera.rays(hand.pixels)
    focal = float(np.mean(camera.intrinsics[:2]))
    for number in np.flatnonzero(usable).tolist():
        found = _posed(hand.shape[number] * scale, rays[number])
        if found is None:
            continue
        if depth is not None:
            ratio = _depth_ratio(
                depth[number if numbers is None else numbers[number]], hand.pixels[number], found
            )
            if ratio is None:
                continue  # no depth at the hand: a gap
            found = found * ratio
        points[number] = found
        off = (found[:, :2] / found[:, 2:] - rays[number]) * focal
        errors[number] = np.sqrt((off**2).sum(axis=1).mean())
    return Points(camera.to_world(points), errors)


def from_cameras(cameras: Sequence[Camera], hands: Sequence[Hand]) -> Points:
    """Landmarks by triangulation; one on which the cameras disagree counts as not seen."""
    pixels = np.stack([hand.pixels for hand in hands])  # (c, t, 21, 2)
    n = pixels.shape[1]
    points, error = triangulate(cameras, pixels.reshape(len(cameras), -1, 2))
    error = error.reshape(n, N_LANDMARKS)
    points = points.reshape(n, N_LANDMARKS, 3)
    points[error > MAX_ERROR_PX * max(cameras[0].size) / 640] = np.nan
    known = np.isfinite(error)
    square = np.where(known, error**2, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return Points(points, np.where(known.any(axis=1), np.sqrt(square), np.nan))


def find_offset(cameras: tuple[Camera, Camera], films: tuple[Landmarks, Landmarks], side: str) -> float:
    """Seconds by which the second film is later than the first: the offset with the least reprojection error.

    0 if it is not clearly better than no offset, for example with a hand at rest.
    """
    first, second = films
    step = float(np.median(np.diff(first.times)))
    tracked = [0, 4, 8]
    here = first.hands[side].pixels[:, tracked]

    def off(shift: float) -> float:
        there = at_times(second, first.times + shift).hands[side].pixels[:, tracked]
        both = np.asarray(np.isfinite(here).all(axis=(1, 2)) & np.isfinite(there).all(axis=(1, 2)))
        if both.sum() < max(8, 0.5 * len(both)):
            return float("inf")
        pixels = np.stack([here[both], there[both]]).reshape(2, -1, 2)
        error = triangulate(cameras, pixels)[1]
        known = error[np.isfinite(error)]
        return float(np.percentile(known, 90)) if len(known) else float("inf")  # wrong offsets fit in part

    shifts = step * np.arange(-round(LATEST_S / step), round(LATEST_S / step) + 1)
    best = float(shifts[np.argmin([off(float(shift)) for shift in shifts])])
    finer = best + step * np.linspace(-0.75, 0.75, 7)
    best = float(finer[np.argmin([off(float(shift)) for shift in finer])])
    found, unit = off(best), max(cameras[0].size) / 640
    agrees = found < AGREE_PX * unit and found < off(0.0) - CLEARLY_PX * unit
    return best if agrees else 0.0


def _posed(shape: F64, rays: F64) -> F64 | None:
    """The shape (21, 3) in the pose that fits its rays (21, 2), in the camera's frame."""
    import cv2

    found, turn, shift = cv2.solvePnP(shape, rays, np.eye(3), None, flags=cv2.SOLVEPNP_SQPNP)
    if not found:
        return None
    turn, shift = cv2.solvePnPRefineLM(shape, rays, np.eye(3), None, turn, shift)
    points = shape @ cv2.Rodrigues(turn)[0].T + shift.reshape(3)
    return np.asarray(points) if np.isfinite(points).all() and (points[:, 2] > 0.01).all() else None


def _depth_ratio(image: NDArray[Any], pixels: F64, points: F64) -> float | None:
    """Distance of the palm in a depth image, divided by its estimated distance."""
    at = np.rint(pixels[PALM]).astype(int)
    inside = (at >= 0).all(axis=1) & (at[:, 0] < image.shape[1]) & (at[:, 1] < image.shape[0])
    measured = np.array([float(image[y, x]) for x, y in at[inside]])
    known = np.isfinite(measured) & (measured > 0)
    if known.sum() < 3:
        return None
    return float(np.median(measured[known] / points[PALM][inside][known, 2]))
