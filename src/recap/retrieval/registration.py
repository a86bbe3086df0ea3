"""Estimates how far objects have moved between two scenes, from images of calibrated cameras.

A demonstration gives the key places: where a gripper closed or opened, and where the motion ended. Points
around each place are projected into both images. The estimate is the shift in the horizontal plane for which
the new image at the shifted points best matches the old one. Only points where the two images differ count,
so a static table has no influence. Nothing is learned and no object is named: a new task needs only its
demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError, one_of
from recap.geometry3 import quaternion_to_matrix, rotation6_to_matrix
from recap.pictures import resize_image
from recap.robot import RobotSpec
from recap.types import F32, F64, U8, Frames

SAME = 0.03  # change of a pixel (0 to 1) below which it is noise
MAX_CHANGE = 0.3  # larger changes count as this
MIN_CHANGE = 0.002  # mean over the points below which nothing has moved
SPACING = 0.0125  # m between neighbouring points
DEPTHS = (0.0, -0.04, -0.08)  # m below the tool, because objects lie under a gripper and around it
GRIDS = ((0.02, 0.0), (0.005, 0.015), (0.0025, 0.005))  # m: step and range of the shifts
N_REFINED = 4  # best shifts of the coarse grid that are refined
SETTLE = 10  # frames that a gripper takes to close
HALF_PIXEL = 0.5  # offset of the first pixel's centre
SMOOTH = (0.7, 1.5)  # px, of brightness and of colours; video stores colours at half resolution


@dataclass(frozen=True)
class View:
    """One camera in two scenes: both images and both camera poses."""

    before: F32  # (h, w, 3) of the demonstration, 0 to 1
    now: F32  # (h, w, 3)
    camera_before: Camera
    camera_now: Camera


@dataclass(frozen=True)
class Camera:
    """Pose and lens of a camera: z is the viewing direction, x right, y down; the lens is in pixels."""

    position: F64  # (3,)
    turn: F64  # (3, 3) camera to world
    lens: tuple[float, float, float, float]  # fx, fy, cx, cy

    def project(self, points: F64) -> tuple[F64, NDArray[np.bool_]]:
        """World points (..., 3) -> pixels (..., 2), and which points are in front of the camera."""
        seen = (points - self.position) @ self.turn
        ahead = seen[..., 2] > 1e-6
        depth = np.where(ahead, seen[..., 2], 1.0)
        fx, fy, cx, cy = self.lens
        return np.stack([cx + fx * seen[..., 0] / depth, cy + fy * seen[..., 1] / depth], -1), ahead


def refuse_uncalibrated(name: str, robot: RobotSpec) -> None:
    """Raise an InputError if the camera's pose or lens is unknown."""
    spec = robot.cameras[one_of(f"camera of robot '{robot.name}'", name, tuple(robot.cameras))]
    if len(spec.intrinsics) != 4 or len(spec.at) != 7:
        raise InputError(
            f"camera '{name}' of robot '{robot.name}' is not calibrated: give its intrinsics [fx, fy, cx, "
            "cy] and at [x, y, z, qw, qx, qy, qz] in the robot's description",
            code="robot.camera",
        )
    if spec.tool:
        tool = robot.body.columns(spec.tool)
        after = next((feature.kind for feature, at in robot.body.spans if at.start == tool.stop), "")
        if tool.stop - tool.start != 3 or after != "rotation6d":
            raise InputError(
                f"camera '{name}' is mounted on '{spec.tool}': name a 3-D position that a rotation6d follows",
                code="robot.camera",
            )


def camera_at(name: str, robot: RobotSpec, proprio: F32, size: tuple[int, ...]) -> Camera:
    """The camera at this robot state; the lens is scaled to the size (h, w) of the images."""
    spec = robot.cameras[name]
    height, width = spec.size or size
    fx, fy, cx, cy = spec.intrinsics
    across, down = size[1] / width, size[0] / height
    lens = (fx * across, fy * down, _scaled(cx, across), _scaled(cy, down))
    pose = np.asarray(spec.at, np.float64)
    position, turn = pose[:3], quaternion_to_matrix(pose[3:])
    if spec.tool:
        tool = robot.body.columns(spec.tool)
        rotation = rotation6_to_matrix(np.asarray(proprio[tool.stop : tool.stop + 6], np.float64))
        position, turn = (rotation @ position + np.asarray(proprio[tool], np.float64), rotation @ turn)
    return Camera(position, turn, lens)


def _scaled(centre: float, by: float) -> float:
    return (centre + HALF_PIXEL) * by - HALF_PIXEL


def views_of(demonstration: Frames, now: Frames, robot: RobotSpec, cameras: Sequence[str]) -> list[View]:
    """The first frames of both, for each camera."""
    views = []
    for name in cameras:
        pictures: list[F32] = []
        cameras_at = []
        for frames in (demonstration, now):
            if name not in frames.images or not len(frames.images[name]):
                raise InputError(
                    f"{frames.id} has no image of camera '{name}', which the image aligner compares: use "
                    "demonstrations with its images, or the world aligner"
                )
            picture: U8 = np.asarray(frames.images[name][0])
            for first in pictures[:1]:  # scaled to the demonstration's size
                picture = resize_image(picture, (first.shape[0], first.shape[1]))
            pictures.append(_smooth(picture))
            cameras_at.append(camera_at(name, robot, frames.proprio[0], picture.shape[:2]))
        views.append(View(pictures[0], pictures[1], cameras_at[0], cameras_at[1]))
    return views


def _smooth(picture: U8) -> F32:
    """Blurred image, 0 to 1, so that a video frame and a camera image of the same scene match."""
    import cv2

    parts = cv2.split(cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2YCrCb))
    widths = (SMOOTH[0], SMOOTH[1], SMOOTH[1])
    blurred = [cv2.GaussianBlur(part, (0, 0), width) for part, width in zip(parts, widths, strict=True)]
    return np.asarray(cv2.cvtColor(cv2.merge(blurred), cv2.COLOR_YCrCb2RGB), np.float32)


def shift_between(views: Sequence[View], places: F64, radius: float, reach: float) -> F64:
    """(2,) shift in x and y of what surrounds the places (n, 3); 0 if nothing has changed.

    Args:
        radius: of the neighbourhood of a place, m.
        reach: the largest shift that is tried, m.
    """
    side = np.arange(-radius, radius + 1e-9, SPACING)
    around = np.stack(np.meshgrid(side, side, DEPTHS, indexing="ij"), -1).reshape(-1, 3)
    points = (places[:, None] + around).reshape(-1, 3)
    search = _ShiftSearch(views, points)
    if search.change < MIN_CHANGE:
        return np.zeros(2)
    (coarse, _), *finer = GRIDS
    tried = _grid(np.zeros(2), coarse, reach)
    nearest = tried[np.argsort(search.costs(tried), kind="stable")[:N_REFINED]]
    # Zero is a start too, because a shift much smaller than a coarse step falls between the grid points.
    starts = np.concatenate([np.zeros((1, 2)), nearest])
    for spacing, span in finer:
        grids = [_grid(start, spacing, span) for start in starts]
        costs = [search.costs(grid) for grid in grids]
        best = int(np.argmin([cost.min() for cost in costs]))
        starts = grids[best][[int(costs[best].argmin())]]
    return np.asarray(starts[0], np.float64)


def _grid(centre: F64, spacing: float, span: float) -> F64:
    side = np.arange(-span, span + 1e-9, spacing)
    grid: F64 = centre + np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    return grid


class _ShiftSearch:
    """The points that have changed in each view, and their colours."""

    def __init__(self, views: Sequence[View], points: F64) -> None:
        self._parts: list[tuple[View, F64, F32, F32]] = []
        self.change = 0.0
        for view in views:
            pixels, ahead = view.camera_before.project(points)
            change = np.abs(view.before - view.now).max(axis=-1, keepdims=True)
            amounts, inside = _sampled(change, pixels)
            weights = np.where(inside & ahead, np.clip(amounts[:, 0] - SAME, 0, MAX_CHANGE), 0)
            self.change += float(weights.sum()) / len(points)
            kept = weights > 0
            colours, _ = _sampled(view.before, pixels[kept])
            self._parts.append((view, points[kept], weights[kept].astype(np.float32), colours))

    def costs(self, shifts: F64) -> F64:
        """(s,) colour difference at the points moved by each shift (s, 2), from 0 to MAX_CHANGE."""
        total, weight = np.zeros(len(shifts)), 1e-9
        flat = np.concatenate([shifts, np.zeros((len(shifts), 1))], axis=1)
        for view, points, weights, colours in self._parts:
            if not len(points):
                continue
            pixels, ahead = view.camera_now.project(points + flat[:, None])
            now, inside = _sampled(view.now, pixels)
            difference = np.minimum(np.abs(now - colours).max(axis=-1), MAX_CHANGE)
            total += (weights * np.where(inside & ahead, difference, MAX_CHANGE / 2)).sum(axis=1)
            weight += float(weights.sum())
        return total / weight


def _sampled(picture: F32, pixels: F64) -> tuple[F32, NDArray[np.bool_]]:
    """Bilinear colours (..., c) at pixels (..., 2), and which pixels are inside the image."""
    height, width = picture.shape[:2]
    across, down = pixels[..., 0], pixels[..., 1]
    inside = (across >= 0) & (across <= width - 1) & (down >= 0) & (down <= height - 1)
    left = np.clip(np.floor(across), 0, width - 2).astype(np.int64)
    top = np.clip(np.floor(down), 0, height - 2).astype(np.int64)
    x = np.clip(across - left, 0, 1).astype(np.float32)[..., None]
    y = np.clip(down - top, 0, 1).astype(np.float32)[..., None]
    upper = picture[top, left] * (1 - x) + picture[top, left + 1] * x
    lower = picture[top + 1, left] * (1 - x) + picture[top + 1, left + 1] * x
    return np.asarray(upper * (1 - y) + lower * y, np.float32), inside


@dataclass(frozen=True)
class Tool:
    """Columns of one tool: where its position begins in actions and in proprioception, and its gripper."""

    action: int
    proprio: int
    gripper: int | None  # column of the action


def tools_of(robot: RobotSpec) -> tuple[Tool, ...]:
    """Each 3-D position, with the gripper of the same index."""
    grippers = [at.start for feature, at in robot.act.spans if feature.kind == "gripper"]
    pairs = zip(robot.act.positions, robot.body.positions, strict=False)
    return tuple(Tool(a, p, grippers[i] if i < len(grippers) else None) for i, (a, p) in enumerate(pairs))


def key_rows(opening: F64, least: float = 0.1) -> list[int]:
    """Rows at which a gripper begins to close or open; a change is larger than `least`."""
    rows, last_value = [], float(opening[0])
    for row, value in enumerate(opening):
        if abs(value - last_value) > least:
            rows.append(row)
            # Continue from the settled value, so that a slow closing is one change.
            settled = opening[row : row + SETTLE]
            last_value = float(settled[-1])
    return [row for row, before in zip(rows, [-SETTLE, *rows], strict=False) if row - before >= SETTLE]


def carried_shifts(path: F64, keys: Sequence[int], shifts: F64) -> F64:
    """(t, 2) shift of each row of a tool path (t, 3), given the shifts (k, 2) at the rows `keys`.

    Shifts are interpolated by path length between keys. The shift grows from 0 over a path as long as the
    first shift, so that the chunk does not jump.
    """
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    lengths = np.concatenate([[0.0], np.cumsum(steps)])
    key_lengths = lengths[list(keys)]
    out = np.stack([np.interp(lengths, key_lengths, shifts[:, axis]) for axis in range(2)], axis=1)
    ramp = min(float(np.linalg.norm(shifts[0])), 0.8 * float(key_lengths[0]))
    return out * np.clip(lengths / ramp, 0, 1)[:, None] if ramp > 0 else out


def shifts_of(
    actions: F64, proprio: F64, tool: Tool, views: Sequence[View], radius: float, reach: float
) -> F64:
    """(t, 2) shift of each row of a demonstration, for one tool."""
    keys = [] if tool.gripper is None else key_rows(actions[:, tool.gripper])
    last = len(actions) - 1
    keys = [key for key in keys if key < last]
    path = proprio[:, tool.proprio : tool.proprio + 3]
    places = [path[[key]] for key in keys]
    before = keys[-1] if keys else 0
    places.append(path[[last]] if keys else path[[last, before + int(0.75 * (last - before))]])
    shifts = np.array([shift_between(views, place, radius, reach) for place in places])
    return carried_shifts(actions[:, tool.action : tool.action + 3], [*keys, last], shifts)
