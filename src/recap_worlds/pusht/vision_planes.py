"""The board in two chroma planes: the predicted image, and its derivatives by the poses."""

from __future__ import annotations

import math

import numpy as np

from recap.compiled import compiled
from recap.types import F64, U8
from recap_worlds.pusht.drawing import BLOCK, BOARD_SIZE, GOAL, LINE_RADIUS, PUSHER, Color, lighter
from recap_worlds.pusht.shapes import DISC_RADIUS

# In `blue - red`, white, walls and goal are zero. In `green - (red + blue) / 2`, white, walls and block are
# zero. So the first plane contains only block and pusher, the second the uncovered goal.
N_FREE = 5  # block x, y, theta, pusher x, y
Normal = tuple[float, F64, F64, F64]  # sum of squares, J'J, J'r, mean square at each fitted object


def _chroma(color: Color) -> tuple[float, float]:
    r, g, b = color
    return b - r, g - (r + b) / 2


GOAL_CHROMA = _chroma(GOAL)[1]
BLOCK_CHROMA = np.array([_chroma(BLOCK), _chroma(lighter(BLOCK))])  # (line or fill, plane)
PUSHER_CHROMA = {name: np.array([_chroma(c), _chroma(lighter(c))]) for name, c in PUSHER.items()}


@compiled
def chroma_planes(image: U8) -> tuple[F64, F64]:
    """The plane of block and pusher, and the plane of the goal: (size, size) each."""
    size = image.shape[0]
    first, second = np.empty((size, size)), np.empty((size, size))
    for j in range(size):
        for i in range(size):
            r, g, b = float(image[j, i, 0]), float(image[j, i, 1]), float(image[j, i, 2])
            first[j, i] = b - r
            second[j, i] = g - 0.5 * (r + b)
    return first, second


@compiled
def _bar_distance(bar: F64, x: float, y: float) -> tuple[float, float, float]:
    """Signed distance to a bar in its own frame, and the direction in which it increases."""
    px, py = x - 0.5 * (bar[0] + bar[2]), y - 0.5 * (bar[1] + bar[3])
    qx, qy = abs(px) - 0.5 * (bar[2] - bar[0]), abs(py) - 0.5 * (bar[3] - bar[1])
    sx, sy = (1.0 if px >= 0 else -1.0), (1.0 if py >= 0 else -1.0)
    if qx > 0 and qy > 0:
        d = math.sqrt(qx * qx + qy * qy)
        return d, sx * qx / d, sy * qy / d
    if qx > qy:
        return qx, sx, 0.0
    return qy, 0.0, sy


@compiled
def _pusher_distance(outline: F64, x: float, y: float) -> tuple[float, float, float]:
    """The same for the pusher about its centre; a single vertex is a disc with its rim inside its radius."""
    n = outline.shape[0]
    if n == 1:
        r = max(1e-9, math.sqrt(x * x + y * y))
        return r - DISC_RADIUS + LINE_RADIUS, x / r, y / r
    nearest, nx, ny = 1e18, 0.0, 0.0
    inside = True
    for i in range(n):
        ax, ay = outline[i, 0], outline[i, 1]
        ex, ey = outline[(i + 1) % n, 0] - ax, outline[(i + 1) % n, 1] - ay
        px, py = x - ax, y - ay
        inside = inside and ex * py - ey * px >= 0
        t = min(1.0, max(0.0, (px * ex + py * ey) / (ex * ex + ey * ey)))
        dx, dy = px - t * ex, py - t * ey
        if dx * dx + dy * dy < nearest:
            nearest, nx, ny = dx * dx + dy * dy, dx, dy
    d = max(1e-9, math.sqrt(nearest))
    return (-d, -nx / d, -ny / d) if inside else (d, nx / d, ny / d)


@compiled
def _lay(value: float, slopes: F64, color: float, depth: float, turn: F64, scale: float, first: int) -> float:
    """Blend a colour over a value, `depth` inside its edge, and update the slopes; `turn`: d depth/d pose."""
    alpha = min(1.0, max(0.0, 0.5 + depth * scale))
    if alpha > 0:
        for k in range(N_FREE):
            slopes[k] *= 1.0 - alpha
        if alpha < 1:
            for k in range(3 if first == 0 else 2):
                slopes[first + k] += scale * turn[k] * (color - value)
    return value + alpha * (color - value)


@compiled
def _scene_value(
    scene: F64, bars: F64, outline: F64, colors: F64, x: float, y: float, scale: float, slopes: F64, turn: F64
) -> tuple[float, float, float]:
    """The value of one plane at a point of the board, and the distances to block and pusher.

    `scene` is the block's x, y, cos, sin and the pusher's x, y.
    """
    for k in range(N_FREE):
        slopes[k] = 0.0
    value, near_block = 0.0, 1e9
    c, s = scene[2], scene[3]
    rx, ry = x - scene[0], y - scene[1]
    for p in range(bars.shape[0]):
        d, gx, gy = _bar_distance(bars[p], c * rx + s * ry, c * ry - s * rx)
        near_block = min(near_block, d)
        if (d - LINE_RADIUS) * scale < 0.5:
            turn[0], turn[1] = c * gx - s * gy, s * gx + c * gy  # back in the board's frame
            turn[2] = rx * turn[1] - ry * turn[0]
            value = _lay(value, slopes, colors[0], LINE_RADIUS - d, turn, scale, 0)
            value = _lay(value, slopes, colors[1], -LINE_RADIUS - d, turn, scale, 0)
    px, py = x - scene[4], y - scene[5]
    to_pusher = max(abs(px), abs(py)) - DISC_RADIUS  # a fast lower bound of the distance
    if (to_pusher - LINE_RADIUS) * scale < 0.5:
        to_pusher, turn[0], turn[1] = _pusher_distance(outline, px, py)
        value = _lay(value, slopes, colors[2], LINE_RADIUS - to_pusher, turn, scale, 3)
        value = _lay(value, slopes, colors[3], -LINE_RADIUS - to_pusher, turn, scale, 3)
    return value, near_block, to_pusher


@compiled
def _turned(scene: F64) -> F64:
    """Block x, y, cos, sin, pusher x, y."""
    return np.array([scene[0], scene[1], math.cos(scene[2]), math.sin(scene[2]), scene[3], scene[4]])


@compiled
def _window(low: float, high: float, size: int) -> tuple[int, int]:
    """The range of pixels between two coordinates."""
    scale = size / BOARD_SIZE
    first = min(float(size), max(0.0, (low + 0.5) * scale))
    return int(first), int(min(float(size), max(first, (high + 0.5) * scale + 1)))


@compiled
def _box(pose: F64, bars: F64, margin: float, size: int) -> tuple[int, int, int, int]:
    """The pixels that bars in a pose can colour: i0, i1, j0, j1."""
    c, s = math.cos(pose[2]), math.sin(pose[2])
    x0, x1, y0, y1 = 1e9, -1e9, 1e9, -1e9
    for p in range(bars.shape[0]):
        for k in range(4):
            bx, by = bars[p, 2 * (k // 2)], bars[p, 1 + 2 * (k % 2)]
            x, y = pose[0] + c * bx - s * by, pose[1] + s * bx + c * by
            x0, x1, y0, y1 = min(x0, x), max(x1, x), min(y0, y), max(y1, y)
    i0, i1 = _window(x0 - margin, x1 + margin, size)
    j0, j1 = _window(y0 - margin, y1 + margin, size)
    return i0, i1, j0, j1


@compiled
def scene_normal(plane: F64, scene: F64, bars: F64, outline: F64, colors: F64, blur: float) -> Normal:
    """Squares (relative to an empty board), J'J, J'r, and the mean squares at the block and the pusher."""
    size = plane.shape[0]
    scale = 1 / max(BOARD_SIZE / size, blur)
    pixel = BOARD_SIZE / size
    margin = LINE_RADIUS + 1 / scale
    boxes = np.empty((2, 4), np.int64)
    boxes[0] = _box(scene, bars, margin, size)
    boxes[1, :2] = _window(scene[3] - DISC_RADIUS - margin, scene[3] + DISC_RADIUS + margin, size)
    boxes[1, 2:] = _window(scene[4] - DISC_RADIUS - margin, scene[4] + DISC_RADIUS + margin, size)
    total, jj, jr = 0.0, np.zeros((N_FREE, N_FREE)), np.zeros(N_FREE)
    near, count = np.zeros(2), np.full(2, 1e-9)
    slopes, turn, turned = np.zeros(N_FREE), np.zeros(3), _turned(scene)
    for b in range(2):
        for j in range(boxes[b, 2], boxes[b, 3]):
            for i in range(boxes[b, 0], boxes[b, 1]):
                seen_before = boxes[0, 0] <= i < boxes[0, 1] and boxes[0, 2] <= j < boxes[0, 3]
                if b == 1 and seen_before:
                    continue
                x, y = (i + 0.5) * pixel - 0.5, (j + 0.5) * pixel - 0.5
                value, to_block, to_pusher = _scene_value(
                    turned, bars, outline, colors, x, y, scale, slopes, turn
                )
                r = plane[j, i] - value
                total += r * r - plane[j, i] ** 2
                if to_pusher < LINE_RADIUS + pixel:  # the pusher covers the block: no error of the block
                    near[1] += r * r
                    count[1] += 1
                elif to_block < LINE_RADIUS + pixel:
                    near[0] += r * r
                    count[0] += 1
                for k in range(N_FREE):
                    if slopes[k] != 0:
                        jr[k] += slopes[k] * r
                        for m in range(N_FREE):
                            jj[k, m] += slopes[k] * slopes[m]
    return total, jj, jr, near / count


@compiled
def covered(size: int, scene: F64, bars: F64, outline: F64, colors: F64) -> tuple[F64, F64]:
    """The visible share of the ground at each pixel, and the values that block and pusher add to a plane."""
    clear, added = np.ones((size, size)), np.zeros((size, size))
    pixel = BOARD_SIZE / size
    slopes, turn, turned = np.zeros(N_FREE), np.zeros(3), _turned(scene)
    ink = np.ones(4)
    i0, i1, j0, j1 = _box(scene, bars, LINE_RADIUS + pixel, size)
    for j in range(size):
        for i in range(size):
            x, y = (i + 0.5) * pixel - 0.5, (j + 0.5) * pixel - 0.5
            by_block = i0 <= i < i1 and j0 <= j < j1
            if by_block or (abs(x - scene[3]) < 20 + pixel and abs(y - scene[4]) < 20 + pixel):
                clear[j, i] -= _scene_value(turned, bars, outline, ink, x, y, 1 / pixel, slopes, turn)[0]
                added[j, i] = _scene_value(turned, bars, outline, colors, x, y, 1 / pixel, slopes, turn)[0]
    return clear, added


@compiled
def is_strong(value: float, clear: float) -> bool:
    """True if a pixel of the goal's plane can only be the goal."""
    return clear > 0.3 and value > 0.3 * GOAL_CHROMA


@compiled
def goal_squares(plane: F64, clear: F64) -> tuple[float, float]:
    """Squares of all values in the goal's plane, and of the strong ones."""
    every, strong = 0.0, 0.0
    for j in range(plane.shape[0]):
        for i in range(plane.shape[1]):
            if clear[j, i] >= 0.02:
                square = plane[j, i] ** 2
                every += square
                if is_strong(plane[j, i], clear[j, i]):
                    strong += square
    return every, strong


@compiled
def goal_normal(plane: F64, clear: F64, pose: F64, bars: F64, strong: float, blur: float) -> Normal:
    """Squares (relative to no goal), J'J, J'r, and the mean square at the goal's visible area and edge.

    `strong` is the sum of squares of pixels that are clearly the goal's colour; those elsewhere are errors.
    """
    size = plane.shape[0]
    pixel = BOARD_SIZE / size
    scale = 1 / max(pixel, blur)
    i0, i1, j0, j1 = _box(pose, bars, 1 / scale, size)
    c, s = math.cos(pose[2]), math.sin(pose[2])
    total, near, count = 0.0, strong, 1.0
    jj, jr, slopes = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    for j in range(j0, j1):
        for i in range(i0, i1):
            if clear[j, i] < 0.02:
                continue
            rx, ry = (i + 0.5) * pixel - 0.5 - pose[0], (j + 0.5) * pixel - 0.5 - pose[1]
            slopes[:] = 0.0
            alpha, nearest = 0.0, 1e9
            for p in range(bars.shape[0]):
                d, gx, gy = _bar_distance(bars[p], c * rx + s * ry, c * ry - s * rx)
                nearest = min(nearest, d)
                a = min(1.0, max(0.0, 0.5 - d * scale))
                alpha += a
                if 0 < a < 1:
                    wx, wy = c * gx - s * gy, s * gx + c * gy
                    slopes[0] += scale * wx
                    slopes[1] += scale * wy
                    slopes[2] += scale * (rx * wy - ry * wx)
            if alpha >= 1:
                alpha = 1.0
                slopes[:] = 0.0
            ink = GOAL_CHROMA * clear[j, i]
            r = plane[j, i] - ink * alpha
            total += r * r - plane[j, i] ** 2
            if nearest < pixel:
                near += r * r
                count += 1
                if is_strong(plane[j, i], clear[j, i]):
                    near -= plane[j, i] ** 2
            for k in range(3):
                jr[k] += ink * slopes[k] * r
                for m in range(3):
                    jj[k, m] += ink * ink * slopes[k] * slopes[m]
    return total, jj, jr, np.array([max(0.0, near / count)])


@compiled
def overlap(wanted: F64, points: F64, poses: F64) -> F64:
    """The mean of `wanted` at the shape's points (n, 2) in each pose (m, 3); outside the image it is 0."""
    size = wanted.shape[0]
    scale = size / BOARD_SIZE
    scores: F64 = np.zeros(poses.shape[0])
    for m in range(poses.shape[0]):
        c, s = math.cos(poses[m, 2]), math.sin(poses[m, 2])
        for n in range(points.shape[0]):
            i = int((poses[m, 0] + c * points[n, 0] - s * points[n, 1] + 0.5) * scale)
            j = int((poses[m, 1] + s * points[n, 0] + c * points[n, 1] + 0.5) * scale)
            if 0 <= i < size and 0 <= j < size:
                scores[m] += wanted[j, i] / points.shape[0]
    return scores
