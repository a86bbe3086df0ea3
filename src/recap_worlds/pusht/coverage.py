"""Exact overlap area of two blocks, by clipping convex parts."""

from __future__ import annotations

import numpy as np

from recap.compiled import compiled
from recap.types import F64


@compiled
def _clip_area(subject: F64, clip: F64) -> float:
    """Area of the intersection of two convex counter-clockwise polygons (Sutherland-Hodgman)."""
    n_max = subject.shape[0] + clip.shape[0]
    polygon = np.empty((n_max, 2))
    clipped = np.empty((n_max, 2))
    n = subject.shape[0]
    for i in range(n):
        polygon[i, 0] = subject[i, 0]
        polygon[i, 1] = subject[i, 1]
    for e in range(clip.shape[0]):
        ax, ay = clip[e, 0], clip[e, 1]
        bx, by = clip[(e + 1) % clip.shape[0], 0], clip[(e + 1) % clip.shape[0], 1]
        m = 0
        px, py = polygon[n - 1, 0], polygon[n - 1, 1]
        side_p = (bx - ax) * (py - ay) - (by - ay) * (px - ax)
        for i in range(n):
            qx, qy = polygon[i, 0], polygon[i, 1]
            side_q = (bx - ax) * (qy - ay) - (by - ay) * (qx - ax)
            if (side_p >= 0) != (side_q >= 0):
                t = side_p / (side_p - side_q)
                clipped[m, 0] = px + t * (qx - px)
                clipped[m, 1] = py + t * (qy - py)
                m += 1
            if side_q >= 0:
                clipped[m, 0] = qx
                clipped[m, 1] = qy
                m += 1
            px, py, side_p = qx, qy, side_q
        n = m
        if n < 3:
            return 0.0
        polygon, clipped = clipped, polygon
    area = 0.0
    for i in range(n):
        j = (i + 1) % n
        area += polygon[i, 0] * polygon[j, 1] - polygon[j, 0] * polygon[i, 1]
    return 0.5 * area


@compiled
def shared_area(parts_a: F64, parts_b: F64) -> float:
    """Area shared by two shapes, each given as disjoint convex parts (n, k, 2)."""
    area = 0.0
    for i in range(parts_a.shape[0]):
        for j in range(parts_b.shape[0]):
            area += _clip_area(parts_a[i], parts_b[j])
    return area
