"""Finds block, goal and pusher in one camera image, by fitting the known drawing to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry import transform_points, wrap_angle
from recap.types import F64, U8
from recap_worlds.pusht.blocks import BLOCKS, Block, block_named
from recap_worlds.pusht.drawing import BOARD_SIZE
from recap_worlds.pusht.pushers import PUSHERS, TRIANGLE, pusher_named
from recap_worlds.pusht.shapes import DISC_RADIUS
from recap_worlds.pusht.vision_fit import Fit, fit
from recap_worlds.pusht.vision_planes import (
    BLOCK_CHROMA,
    GOAL_CHROMA,
    PUSHER_CHROMA,
    Normal,
    chroma_planes,
    covered,
    goal_normal,
    goal_squares,
    overlap,
    scene_normal,
)

AFAR = -1000.0  # position of a pusher that is not in the image
MAX_BLOCK_ERROR, MAX_GOAL_ERROR, MAX_PUSHER_ERROR = 11.5, 35.0, 60.0  # grey levels; more: not found
GOOD = 3.0  # an error below which no other start is tried
GOOD_BLOCK, GOOD_GOAL = 8.0, 12.0  # errors below which the previous pose is tracked without a search
LOOSE = np.array([1e-3, 1e-3, 1.0])  # stiffness of x, y, theta: keeps what the image does not determine
FIRM = 4000 * LOOSE  # weak compared with a fully visible rim, strong compared with a faint one
MIN_VISIBLE = 0.25  # of the block's area
MIN_EVIDENCE = 50.0  # times the noise squared: least evidence for a goal
WIDE_TO_SHARP, SHARP = (12.0, 0.0), (0.0,)  # px, widths of edge blur in turn
OUTLINES = {"disc": np.zeros((1, 2)), "triangle": TRIANGLE}
AREAS = {"disc": math.pi * DISC_RADIUS**2, "triangle": 2 * DISC_RADIUS**2}


@dataclass(frozen=True, slots=True)
class Seen:
    """Poses found in one image; None if not found."""

    block: F64 | None  # (3,) x, y in px of the board, theta in rad
    goal: F64 | None  # (3,)
    pusher: F64 | None  # (2,)
    block_error: float  # grey levels by which image and drawing differ at the object
    goal_error: float


NOTHING = Seen(None, None, None, 255.0, 255.0)


@dataclass(frozen=True)
class _Shape:
    """A block, prepared for the search."""

    block: Block
    bars: F64  # (n, 4)
    points: F64  # (m, 2) evenly spaced over it
    center: F64  # (2,) of its area


@lru_cache(maxsize=len(BLOCKS))
def _shape(name: str) -> _Shape:
    block = block_named(name)
    bars = np.array(block.bars, np.float64)
    grids = [
        np.stack(np.meshgrid(np.arange(x0 + 5, x1, 10.0), np.arange(y0 + 5, y1, 10.0)), -1).reshape(-1, 2)
        for x0, y0, x1, y1 in bars
    ]
    points = np.concatenate(grids)
    return _Shape(block, bars, points, points.mean(axis=0))


def look(image: U8, block: str, pusher: str | None = None, previous: Seen | None = None) -> Seen:
    """Find block, goal and pusher in an image of the board; a goal hidden by the block is not found.

    Args:
        image: (size, size, 3), the whole board, size 32 to 1024.
        block: the block's name.
        pusher: `disc` or `triangle`; if None, found by its colour.
        previous: the result of the previous frame. It saves the search, and keeps a goal that the block now
            hides, because goals do not move. It is dropped if the image contradicts it.
    """
    shape = _shape(block_named(block).name)
    if pusher is not None:
        pusher_named(pusher)
    _check(image)
    first, second = chroma_planes(np.ascontiguousarray(image))
    name, at = _find_pusher(first, pusher)
    found = _find_block(first, shape, name, at, previous)
    if found is None:
        return NOTHING
    scene, (block_error, pusher_error) = found.at, found.errors.tolist()
    seen_pusher = scene[3:].copy() if scene[3] > AFAR / 2 and pusher_error < MAX_PUSHER_ERROR else None
    if block_error > MAX_BLOCK_ERROR or not _in_view(shape, scene):
        return Seen(None, None, seen_pusher, block_error, 255.0)
    colors = np.concatenate([BLOCK_CHROMA[:, 1], PUSHER_CHROMA[name][:, 1]])
    clear, added = covered(len(image), scene, shape.bars, OUTLINES[name], colors)
    goal = _find_goal(second - added, clear, shape, scene[:3], previous)
    goal_error = 255.0 if goal is None else float(goal.errors[0])
    old = previous or NOTHING
    found_block = _like(scene[:3], shape, old.block)
    found_goal = _like(goal.at, shape, old.goal) if goal is not None and goal_error < MAX_GOAL_ERROR else None
    return Seen(found_block, found_goal, seen_pusher, block_error, goal_error)


def _check(image: U8) -> None:
    shape, kind = np.shape(image), getattr(image, "dtype", None)
    if kind != np.uint8 or len(shape) != 3 or shape[2] != 3 or shape[0] != shape[1]:
        raise InputError(f"an image of {kind} {shape} is no picture of the board: give uint8 (size, size, 3)")
    if not 32 <= shape[0] <= 1024:
        raise InputError(f"an image of {shape[0]} pixels is out of range: give 32 to 1024")


def _like(pose: F64, shape: _Shape, old: F64 | None) -> F64:
    """The pose with the equivalent angle nearest to the old one, or to 0."""
    near = 0.0 if old is None else float(old[2])
    return np.array([pose[0], pose[1], near + wrap_angle(pose[2] - near, shape.block.angle_period)])


def _in_view(shape: _Shape, pose: F64) -> bool:
    """True if enough of the block is inside the image, because parts outside agree with any image."""
    points = transform_points(pose, shape.points)
    return bool(((points > 0) & (points < BOARD_SIZE)).all(axis=1).mean() > MIN_VISIBLE)


def _plainly(ink: F64) -> F64:
    """Ink above the noise level: weak noise over the whole image would shift a centre far."""
    return np.where(ink > 0.4, np.minimum(ink, 1.0), 0.0)


def _centroid(weight: F64) -> tuple[float, F64]:
    """Area in px² of the board, and centre."""
    pixel = BOARD_SIZE / len(weight)
    along = (np.arange(len(weight)) + 0.5) * pixel - 0.5
    total = float(weight.sum())
    center = np.array([weight.sum(axis=0) @ along, weight.sum(axis=1) @ along]) / max(total, 1e-9)
    return total * pixel**2, center


def _find_pusher(plane: F64, name: str | None) -> tuple[str, F64]:
    """The pusher and its approximate position; AFAR if there is none."""
    best, at, most = name or PUSHERS[0], np.full(2, AFAR), 0.2
    for kind in (name,) if name else PUSHERS:
        line = PUSHER_CHROMA[kind][0, 0]
        block = BLOCK_CHROMA[1, 0] if line > 0 else 0.0  # a block pixel is no pusher
        area, center = _centroid(_plainly((plane - block) / (line - block)))
        if area / AREAS[kind] > most:
            best, at, most = kind, center, area / AREAS[kind]
    return best, at


def _poses(shape: _Shape, center: F64, reach: float, step: float, turns: int) -> F64:
    """A grid of poses with the area's centre near `center`: (n, 3)."""
    offsets = np.arange(-reach, reach + 1e-9, step)
    thetas = np.arange(turns) * shape.block.angle_period / turns
    c, s = np.cos(thetas), np.sin(thetas)
    cx, cy = shape.center
    origin = np.stack([center[0] - c * cx + s * cy, center[1] - s * cx - c * cy], axis=-1)
    poses = np.empty((turns, len(offsets), len(offsets), 3))
    poses[..., 0] = origin[:, 0, None, None] + offsets[:, None]
    poses[..., 1] = origin[:, 1, None, None] + offsets
    poses[..., 2] = thetas[:, None, None]
    return poses.reshape(-1, 3)


def _best_poses(wanted: F64, shape: _Shape, poses: F64, n: int) -> list[F64]:
    """The n poses that cover most of `wanted`, with different directions."""
    scores = overlap(wanted, shape.points, poses)
    chosen: list[F64] = []
    for m in np.argsort(-scores)[:200]:
        pose = poses[m]
        if all(abs(wrap_angle(pose[2] - p[2], shape.block.angle_period)) > 0.4 for p in chosen):
            chosen.append(pose)
            if len(chosen) == n:
                break
    return chosen


def _find_block(plane: F64, shape: _Shape, pusher: str, at: F64, previous: Seen | None) -> Fit | None:
    """Block and pusher (5,); None if nothing resembles a block."""
    colors = np.concatenate([BLOCK_CHROMA[:, 0], PUSHER_CHROMA[pusher][:, 0]])
    outline = OUTLINES[pusher]
    stiffness = np.concatenate([LOOSE, LOOSE[:2]])

    def normal(blur: float, scene: F64) -> Normal:
        return scene_normal(plane, scene, shape.bars, outline, colors, blur)

    if previous is not None and previous.block is not None:
        found = fit(normal, [np.concatenate([previous.block, at])], stiffness, GOOD_BLOCK, WIDE_TO_SHARP)
        if found.errors[0] < GOOD_BLOCK and _in_view(shape, found.at):
            return found
    ink = plane / BLOCK_CHROMA[1, 0]
    wanted = 2 * np.clip(ink, 0, 1) - 1
    hidden = _under_pusher(plane)
    ink[hidden] = wanted[hidden] = 0
    area, center = _centroid(_plainly(ink))
    if not MIN_VISIBLE < area / shape.block.area < 4:
        return None
    turns = 24 // shape.block.symmetry
    poses = _best_poses(wanted, shape, _poses(shape, center, 12.0, 6.0, turns), 3)
    starts = [np.concatenate([pose, at]) for pose in poses]
    return fit(normal, starts, stiffness, GOOD, WIDE_TO_SHARP)


def _under_pusher(plane: F64) -> NDArray[np.bool_]:
    """Pixels that a pusher colours at least in part, and their neighbours."""
    strong = (plane > 1.5 * BLOCK_CHROMA[1, 0]) | (plane < -BLOCK_CHROMA[1, 0])
    wide: NDArray[np.bool_] = strong.copy()
    for axis in (0, 1):
        wide |= np.roll(strong, 1, axis) | np.roll(strong, -1, axis)
    return wide


def _find_goal(plane: F64, clear: F64, shape: _Shape, block: F64, previous: Seen | None) -> Fit | None:
    """The goal's pose; None if too little of it is visible."""
    every, strong = goal_squares(plane, clear)

    def normal(blur: float, pose: F64) -> Normal:
        return goal_normal(plane, clear, pose, shape.bars, strong, blur)

    if previous is not None and previous.goal is not None:
        kept = fit(normal, [previous.goal], FIRM, GOOD_GOAL, SHARP)
        if kept.errors[0] < GOOD_GOAL and _in_view(shape, kept.at):
            return kept
    noise = 1.0 + (1.5 * float(np.median(np.abs(plane)))) ** 2
    if every < MIN_EVIDENCE * noise:
        return None
    ink = plane / GOAL_CHROMA
    area, center = _centroid(_plainly(ink))
    wanted = (2 * np.clip(ink / np.maximum(clear, 0.2), 0, 1) - 1) * clear
    turns = 24 // shape.block.symmetry
    starts = [block]
    if area > 0:  # else only a faint rim around the block is visible
        starts = [*_best_poses(wanted, shape, _poses(shape, center, 75.0, 15.0, turns), 4), block]
    found = fit(normal, starts, LOOSE, GOOD, WIDE_TO_SHARP)
    return found if found.total < -MIN_EVIDENCE * noise and _in_view(shape, found.at) else None
