"""Converts a path to targets with speed limits and smooth starts and corners, one per control step."""

from __future__ import annotations

import math

import numpy as np

from recap.compiled import compiled
from recap.types import F64

FREE_SPEED = 11.0  # px per control step, away from the block
PUSH_SPEED = 6.0
ACCELERATION = 2.0  # px per control step squared
N_HOLD = 1  # steps at rest after a push


@compiled
def _dense_path(way: F64, heading: float, curvature: float, push_length: float) -> tuple[F64, int]:
    """Points about 1 px apart along the way and then the arc, and the index at which the arc begins."""
    total = push_length
    for i in range(way.shape[0] - 1):
        total += math.sqrt((way[i + 1, 0] - way[i, 0]) ** 2 + (way[i + 1, 1] - way[i, 1]) ** 2)
    points = np.empty((int(total) + way.shape[0] + 4, 2))
    points[0] = way[0]
    n = 1
    for i in range(way.shape[0] - 1):
        dx, dy = way[i + 1, 0] - way[i, 0], way[i + 1, 1] - way[i, 1]
        pieces = int(math.sqrt(dx * dx + dy * dy))
        for k in range(1, pieces + 1):
            points[n, 0], points[n, 1] = way[i, 0] + dx * k / pieces, way[i, 1] + dy * k / pieces
            n += 1
    arc_begins = n - 1
    x, y = way[-1, 0], way[-1, 1]
    pieces = max(1, int(push_length))
    step = push_length / pieces
    for _ in range(pieces):
        heading += curvature * step
        x += math.cos(heading) * step
        y += math.sin(heading) * step
        points[n, 0], points[n, 1] = x, y
        n += 1
    return points[:n], arc_begins


@compiled
def _speed_limits(points: F64, arc_begins: int, speed: float) -> F64:
    """Speed limit at each point: lower at bends and along the push, 0 at the end."""
    n = points.shape[0]
    limit = np.empty(n)
    look = 6
    for i in range(n):
        limit[i] = (PUSH_SPEED if i >= arc_begins else FREE_SPEED) * speed
        a, b = max(0, i - look), min(n - 1, i + look)
        ux, uy = points[i, 0] - points[a, 0], points[i, 1] - points[a, 1]
        vx, vy = points[b, 0] - points[i, 0], points[b, 1] - points[i, 1]
        norm = math.sqrt((ux * ux + uy * uy) * (vx * vx + vy * vy))
        if norm > 0:
            straight = max(0.0, (ux * vx + uy * vy) / norm)
            limit[i] *= 0.3 + 0.7 * straight
    limit[n - 1] = 0.0
    return limit


@compiled
def timed_targets(
    way: F64, heading: float, curvature: float, push_length: float, speed: float, initial_speed: float
) -> F64:
    """Targets (t, 2) that follow the way and then push along an arc, ending at rest."""
    points, arc_begins = _dense_path(way, heading, curvature, push_length)
    limit = _speed_limits(points, arc_begins, speed)
    n = points.shape[0]
    spacing = np.empty(n)
    for i in range(1, n):
        spacing[i] = math.sqrt(
            (points[i, 0] - points[i - 1, 0]) ** 2 + (points[i, 1] - points[i - 1, 1]) ** 2
        )
    power = 2 * ACCELERATION * speed * speed
    limit[0] = min(limit[0], max(initial_speed, 2.0 * speed))
    for i in range(1, n):
        limit[i] = min(limit[i], math.sqrt(limit[i - 1] ** 2 + power * spacing[i]))
    for i in range(n - 2, -1, -1):
        limit[i] = min(limit[i], math.sqrt(limit[i + 1] ** 2 + power * spacing[i + 1]))
    targets = np.empty((2 * n + 8, 2))
    count, at, i = 0, 0.0, 0
    along = 0.0  # distance travelled up to points[i]
    while i < n - 1:
        at += max(limit[i], 0.8 * speed)
        while i < n - 1 and along + spacing[i + 1] <= at:
            along += spacing[i + 1]
            i += 1
        if i == n - 1:
            break
        t = (at - along) / spacing[i + 1]
        targets[count] = points[i] + t * (points[i + 1] - points[i])
        count += 1
    targets[count] = points[n - 1]
    count += 1
    smooth = targets[:count].copy()
    for k in range(1, count - 1):
        smooth[k] = (targets[k - 1] + 2 * targets[k] + targets[k + 1]) / 4
    out = np.empty((count + N_HOLD, 2))
    out[:count] = smooth
    for k in range(N_HOLD):
        out[count + k] = smooth[count - 1]
    for k in range(out.shape[0]):
        out[k, 0] = min(512.0, max(0.0, out[k, 0]))
        out[k, 1] = min(512.0, max(0.0, out[k, 1]))
    return out
