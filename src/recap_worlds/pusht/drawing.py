"""Draws the board at any size, anti-aliased, in the colours of stock PushT."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from recap.compiled import compiled
from recap.types import F32, F64, U8

BOARD_SIZE = 512.0
LINE_RADIUS = 2.0

Color = tuple[float, float, float]
GOAL: Color = (144, 238, 144)
WALL: Color = (211, 211, 211)
BLOCK: Color = (119, 136, 153)
PUSHER: dict[str, Color] = {"disc": (65, 105, 225), "triangle": (255, 140, 0)}
ACTION: Color = (220, 20, 60)


def lighter(color: Color) -> Color:
    r, g, b = (min(255.0, 1.2 * c) for c in color)
    return r, g, b


@compiled
def _distance(polygon: F64, x: float, y: float) -> float:
    """Signed distance from a point to a convex counter-clockwise polygon, negative inside."""
    nearest = 1e18
    inside = True
    n = polygon.shape[0]
    for i in range(n):
        ax, ay = polygon[i, 0], polygon[i, 1]
        ex, ey = polygon[(i + 1) % n, 0] - ax, polygon[(i + 1) % n, 1] - ay
        px, py = x - ax, y - ay
        if ex * py - ey * px < 0:
            inside = False
        t = min(1.0, max(0.0, (px * ex + py * ey) / (ex * ex + ey * ey)))
        dx, dy = px - t * ex, py - t * ey
        nearest = min(nearest, dx * dx + dy * dy)
    return -math.sqrt(nearest) if inside else math.sqrt(nearest)


@compiled
def _blend(pixel: F32, color: F32, alpha: float) -> None:
    for c in range(3):
        pixel[c] += alpha * (color[c] - pixel[c])


@compiled
def _paint_shape(image: F32, polygon: F64, line: F32, fill: F32) -> None:
    """Draw a filled convex polygon with an edge line of LINE_RADIUS."""
    size = image.shape[0]
    scale = size / BOARD_SIZE
    margin = LINE_RADIUS + 1 / scale
    x0 = max(0, int((polygon[:, 0].min() - margin + 0.5) * scale))
    x1 = min(size, int((polygon[:, 0].max() + margin + 0.5) * scale) + 1)
    y0 = max(0, int((polygon[:, 1].min() - margin + 0.5) * scale))
    y1 = min(size, int((polygon[:, 1].max() + margin + 0.5) * scale) + 1)
    for j in range(y0, y1):
        for i in range(x0, x1):
            d = _distance(polygon, (i + 0.5) / scale - 0.5, (j + 0.5) / scale - 0.5)
            outer = min(1.0, max(0.0, 0.5 + (LINE_RADIUS - d) * scale))
            if outer > 0:
                inner = min(1.0, max(0.0, 0.5 - (LINE_RADIUS + d) * scale))
                _blend(image[j, i], line, outer)
                _blend(image[j, i], fill, inner)


@compiled
def _paint_disc(image: F32, x: float, y: float, radius: float, line: F32, fill: F32) -> None:
    """Draw a disc with stock PushT's rim, 4 px wide, inside its radius."""
    size = image.shape[0]
    scale = size / BOARD_SIZE
    reach = radius + 1 / scale
    for j in range(max(0, int((y - reach + 0.5) * scale)), min(size, int((y + reach + 0.5) * scale) + 1)):
        for i in range(max(0, int((x - reach + 0.5) * scale)), min(size, int((x + reach + 0.5) * scale) + 1)):
            dx, dy = (i + 0.5) / scale - 0.5 - x, (j + 0.5) / scale - 0.5 - y
            d = math.sqrt(dx * dx + dy * dy) - radius
            outer = min(1.0, max(0.0, 0.5 - d * scale))
            if outer > 0:
                inner = min(1.0, max(0.0, 0.5 - (d + 2 * LINE_RADIUS) * scale))
                _blend(image[j, i], line, outer)
                _blend(image[j, i], fill, inner)


@compiled
def _paint_flat(image: F32, parts: F64, color: F32) -> None:
    """Draw adjacent parts without lines and without a seam between them."""
    size = image.shape[0]
    scale = size / BOARD_SIZE
    for j in range(size):
        for i in range(size):
            alpha = 0.0
            for p in range(parts.shape[0]):
                d = _distance(parts[p], (i + 0.5) / scale - 0.5, (j + 0.5) / scale - 0.5)
                alpha += min(1.0, max(0.0, 0.5 - d * scale))
            _blend(image[j, i], color, min(1.0, alpha))


@compiled
def _paint_moving(background: F32, block: F64, colors: F32, pusher: F64, radius: float) -> U8:
    """Draw block and pusher over the background; a pusher of one vertex is a disc."""
    image = background.copy()
    for p in range(block.shape[0]):
        _paint_shape(image, block[p], colors[0], colors[1])
    if pusher.shape[0] == 1:
        _paint_disc(image, pusher[0, 0], pusher[0, 1], radius, colors[2], colors[3])
    else:
        _paint_shape(image, pusher, colors[2], colors[3])
    out = np.empty(image.size, np.uint8)
    flat = image.ravel()
    for i in range(image.size):  # one flat loop, so that it vectorises
        out[i] = np.uint8(flat[i] + np.float32(0.5))
    return out.reshape(image.shape)


@lru_cache(maxsize=8)
def _empty_board(size: int) -> F32:
    image = np.full((size, size, 3), 255, np.float32)
    walls = np.array([(5.0, 5.0), (506.0, 5.0), (506.0, 506.0), (5.0, 506.0)])
    _paint_shape(image, walls, np.array(WALL, np.float32), np.full(3, 255, np.float32))
    return image


def draw_background(size: int, goal_parts: F64) -> F32:
    """Walls and goal (n, 4, 2), which do not change during an episode: (size, size, 3) in 0..255."""
    image = _empty_board(size).copy()
    _paint_flat(image, goal_parts, np.array(GOAL, np.float32))
    return image


def draw_board(background: F32, block_parts: F64, pusher: str, outline: F64, radius: float) -> U8:
    """The whole scene: (size, size, 3). `outline` is the pusher's in the world; for a disc, its centre."""
    color = PUSHER[pusher]
    colors = np.array([BLOCK, lighter(BLOCK), color, lighter(color)], np.float32)
    return _paint_moving(background, block_parts, colors, outline, radius)


def draw_target(image: U8, x: float, y: float) -> None:
    """Mark the pusher's target with a small cross, in place."""
    size = image.shape[0]
    scale = size / BOARD_SIZE
    arm, half = max(2, round(8 * scale)), max(0, round(scale) - 1)
    i, j = (min(size - 1, max(0, round((v + 0.5) * scale - 0.5))) for v in (x, y))
    for di, dj in ((arm, half), (half, arm)):
        image[max(0, j - dj) : max(0, j + dj + 1), max(0, i - di) : max(0, i + di + 1)] = ACTION
