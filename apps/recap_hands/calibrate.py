"""Camera intrinsics from views of a board; camera pose from a board on a table, or from a robot's poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F64, U8
from recap_hands.board import Board
from recap_hands.camera import Camera, pose7

LEAST_VIEWS = 5
LEAST_TILT_DEG = (
    10.0  # between the most different views; with less, focal length and distance cannot be separated
)
WORST_PX = 2.0  # at 640 px of width
LEAST_TURN_DEG = 5.0  # between two robot poses that are used


@dataclass(frozen=True)
class View:
    """The board in one image."""

    name: str
    corners: F64  # (k, 3) in the board's frame
    pixels: F64  # (k, 2)


@dataclass(frozen=True)
class Calibrated:
    """A camera, and the views that it was calibrated with."""

    camera: Camera
    views: tuple[View, ...]
    boards: F64  # (n, 4, 4): the board in the camera's frame, in each view
    errors_px: F64  # (n,) root mean square of each view


def find_views(images: Sequence[tuple[str, U8]], board: Board) -> tuple[View, ...]:
    """The images that show enough of the board."""
    found = []
    for name, image in images:
        corners, pixels = board.find(image)
        if len(corners):
            found.append(View(name, corners, pixels))
    return tuple(found)


def calibrate(views: Sequence[View], size: tuple[int, int]) -> Calibrated:
    """Camera intrinsics from the views; the camera's pose is the origin.

    Args:
        size: height, width of the images.
    """
    import cv2

    if len(views) < LEAST_VIEWS:
        raise InputError(
            f"the board is seen in {len(views)} images, {LEAST_VIEWS} are needed: take 10 to 20 of it, "
            "sharp, near and tilted to all sides",
            code="calibrate.views",
        )
    places = [view.corners.astype(np.float32) for view in views]
    pixels = [view.pixels.astype(np.float32) for view in views]
    rms, matrix, bent, turns, shifts = cv2.calibrateCamera(places, pixels, size[::-1], None, None)
    boards = np.stack(
        [_matrix(cv2.Rodrigues(turn)[0], shift) for turn, shift in zip(turns, shifts, strict=True)]
    )
    tilt = _most_apart(boards[:, :3, 2])
    if tilt < LEAST_TILT_DEG:
        raise InputError(
            f"the board is tilted by {tilt:.0f} degrees at most, {LEAST_TILT_DEG:.0f} are needed: tilt it "
            "to all sides",
            code="calibrate.views",
        )
    fx, fy, cx, cy = (float(n) for n in (matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]))
    bent = tuple(float(n) for n in bent.ravel()[:5])
    lens = Camera(size, (fx, fy, cx, cy), bent, error_px=float(rms))
    if rms > WORST_PX * max(size) / 640:
        raise InputError(
            f"corners are {rms:.1f} px off: is the board flat, and of that size? measure a square",
            code="calibrate.error",
        )
    errors = np.array([_off(lens, board, view) for board, view in zip(boards, views, strict=True)])
    return Calibrated(lens, tuple(views), boards, errors)


def board_in_camera(camera: Camera, view: View) -> F64:
    """The board's pose (4, 4) in one view, for known intrinsics."""
    import cv2

    bent = np.array(camera.distortion or (0.0,) * 4)
    _, turn, shift = cv2.solvePnP(view.corners, view.pixels, camera.matrix, bent, flags=cv2.SOLVEPNP_IPPE)
    turn, shift = cv2.solvePnPRefineLM(view.corners, view.pixels, camera.matrix, bent, turn, shift)
    return _matrix(cv2.Rodrigues(turn)[0], shift)


def standing_at(camera: Camera, pose: NDArray[Any]) -> Camera:
    """The camera with its pose set to (4, 4)."""
    return replace(camera, at=pose7(pose[:3, :3], pose[:3, 3]))


def hand_eye(robot: NDArray[Any], boards: NDArray[Any], carries: str) -> tuple[F64, float, float]:
    """The camera's pose from a robot's tool poses, and the disagreement of the poses in mm and degrees.

    Args:
        robot: (n, 4, 4) poses of the tool in the robot's frame.
        boards: (n, 4, 4) the board in the camera's frame, at the same times.
        carries: `board`: the tool holds the board, and the result is the camera's pose in the robot's frame;
            `camera`: the tool holds the camera, and the result is the camera's pose in the tool's frame.
    """
    inverse = np.linalg.inv(robot) if carries == "camera" else robot
    first: list[F64] = []
    second: list[F64] = []
    for i in range(len(robot)):
        for j in range(i):
            b = boards[i] @ np.linalg.inv(boards[j])
            if _angle(b[:3, :3]) >= LEAST_TURN_DEG:
                first.append(inverse[i] @ np.linalg.inv(inverse[j]))
                second.append(b)
    if len(first) < 3 or _spread(second) < 0.1:
        raise InputError(
            "the robot's poses hardly turn: give 8 or more, turned by 20 degrees about different axes",
            code="calibrate.robot",
        )
    a, b = np.stack(first), np.stack(second)
    u, _, vt = np.linalg.svd(
        sum(np.outer(_log(x), _log(y)) for x, y in zip(a[:, :3, :3], b[:, :3, :3], strict=True))
    )
    turn = u @ np.diag([1, 1, np.sign(np.linalg.det(u @ vt))]) @ vt
    rows = (a[:, :3, :3] - np.eye(3)).reshape(-1, 3)
    right = (b[:, :3, 3] @ turn.T - a[:, :3, 3]).reshape(-1)
    found = _matrix(turn, np.linalg.lstsq(rows, right, rcond=None)[0])
    # The board is fixed in the tool's or the robot's frame. The variation of its pose there is the error.
    fixed = np.stack(
        [
            np.linalg.inv(r) @ found @ c if carries == "board" else r @ found @ c
            for r, c in zip(robot, boards, strict=True)
        ]
    )
    middle = np.median(fixed[:, :3, 3], axis=0)
    far = 1000 * float(np.sqrt(((fixed[:, :3, 3] - middle) ** 2).sum(axis=1).mean()))
    turned = float(np.median([_angle(fixed[0, :3, :3].T @ pose[:3, :3]) for pose in fixed[1:]]))
    return found, far, turned


def drawn(image: U8, camera: Camera, view: View, board_pose: NDArray[Any]) -> U8:
    """A view with detected corners (circles), reprojected corners (crosses) and the board's axes."""
    import cv2

    out = image.copy()
    size = max(3, max(image.shape[:2]) // 200)
    expected = _projected(camera, board_pose, view.corners)
    for found, wanted in zip(view.pixels, expected, strict=True):
        cv2.circle(out, _pixel(found), size, (40, 160, 255), 1, cv2.LINE_AA)
        cv2.drawMarker(out, _pixel(wanted), (255, 60, 60), cv2.MARKER_CROSS, 2 * size, 1, cv2.LINE_AA)
    axes = _projected(camera, board_pose, 0.08 * np.vstack([np.zeros(3), np.eye(3)]))
    for end, colour in zip(axes[1:], ((230, 60, 60), (60, 200, 90), (70, 110, 255)), strict=True):
        cv2.line(out, _pixel(axes[0]), _pixel(end), colour, max(2, size // 2), cv2.LINE_AA)
    return out


def _off(camera: Camera, pose: NDArray[Any], view: View) -> float:
    off = _projected(camera, pose, view.corners) - view.pixels
    return float(np.sqrt((off**2).sum(axis=1).mean()))


def _projected(camera: Camera, pose: NDArray[Any], points: F64) -> F64:
    there = points @ pose[:3, :3].T + pose[:3, 3]
    return replace(camera, at=(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)).project(there)


def _matrix(turn: NDArray[Any], shift: NDArray[Any]) -> F64:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = turn, np.ravel(shift)
    return out


def _log(turn: NDArray[Any]) -> F64:
    """The rotation vector of a rotation."""
    import cv2

    return np.asarray(cv2.Rodrigues(np.asarray(turn, np.float64))[0]).reshape(3)


def _angle(turn: NDArray[Any]) -> float:
    return float(np.degrees(np.linalg.norm(_log(turn))))


def _spread(moves: Sequence[F64]) -> float:
    """How much the rotation axes differ: 0 if all are parallel."""
    axes = np.stack([_log(move[:3, :3]) for move in moves])
    strengths = np.linalg.svd(axes / np.linalg.norm(axes, axis=1, keepdims=True), compute_uv=False)
    return float(strengths[1] / strengths[0])


def _most_apart(axes: F64) -> float:
    return float(np.degrees(np.arccos(np.clip((axes @ axes.T).min(), -1, 1))))


def _pixel(point: NDArray[Any]) -> tuple[int, int]:
    x, y = np.clip(point, -10_000, 10_000)
    return round(float(x)), round(float(y))
