"""Shortest paths of the pusher around the block, through a small graph of corners."""

from __future__ import annotations

import math

import numpy as np

from recap.compiled import compiled
from recap.types import F64
from recap_worlds.pusht.simulator import Body

CLEARANCE = 3.0  # px, smallest gap between pusher and block on the way
DETOUR = 9.0  # px, gap at corners
INSIDE_LOW, INSIDE_HIGH = 14.0, 498.0  # limits of the pusher's centre
UNREACHABLE = 1e9


@compiled
def _lowest(polygon: F64) -> int:
    best = 0
    for i in range(1, polygon.shape[0]):
        if (polygon[i, 1], polygon[i, 0]) < (polygon[best, 1], polygon[best, 0]):
            best = i
    return best


@compiled
def _minkowski_sum(a: F64, b: F64) -> F64:
    """The Minkowski sum of two convex counter-clockwise polygons, with one vertex per edge."""
    n, m = a.shape[0], b.shape[0]
    out = np.empty((n + m, 2))
    first_a, first_b = _lowest(a), _lowest(b)
    i = j = 0
    for k in range(n + m):
        p, q = a[(first_a + i) % n], b[(first_b + j) % m]
        out[k, 0], out[k, 1] = p[0] + q[0], p[1] + q[1]
        if i == n:
            j += 1
        elif j == m:
            i += 1
        else:
            u, v = a[(first_a + i + 1) % n] - p, b[(first_b + j + 1) % m] - q
            if u[0] * v[1] - u[1] * v[0] > 0:
                i += 1
            else:
                j += 1
    return out


@compiled
def obstacles(body: Body, x: float, y: float, theta: float) -> F64:
    """The block grown by the pusher's shape: one convex polygon per bar, (n, k, 2)."""
    bars, pusher = body.bars, body.core
    c, s = math.cos(theta), math.sin(theta)
    n_corners = 4 if pusher.shape[0] == 1 else 4 + pusher.shape[0]
    out = np.empty((bars.shape[0], n_corners, 2))
    corners = np.empty((4, 2))
    for i in range(bars.shape[0]):
        for j in range(4):
            lx = bars[i, 0] + (bars[i, 2] if j in (1, 2) else -bars[i, 2])
            ly = bars[i, 1] + (bars[i, 3] if j in (2, 3) else -bars[i, 3])
            corners[j, 0], corners[j, 1] = x + c * lx - s * ly, y + s * lx + c * ly
        out[i] = corners if pusher.shape[0] == 1 else _minkowski_sum(corners, -pusher)
    return out


@compiled
def _segments_gap(ax: float, ay: float, bx: float, by: float, p: F64, q: F64) -> float:
    """Squared distance between the segments ab and pq."""
    ux, uy, vx, vy = bx - ax, by - ay, q[0] - p[0], q[1] - p[1]
    wx, wy = p[0] - ax, p[1] - ay
    cross = ux * vy - uy * vx
    if abs(cross) > 1e-12:
        t, r = (wx * vy - wy * vx) / cross, (wx * uy - wy * ux) / cross
        if 0 <= t <= 1 and 0 <= r <= 1:
            return 0.0
    best = 1e18
    for end in range(4):
        if end < 2:  # an end of pq against ab
            ox, oy, dx, dy = ax, ay, ux, uy
            ex, ey = (p[0], p[1]) if end == 0 else (q[0], q[1])
        else:  # an end of ab against pq
            ox, oy, dx, dy = p[0], p[1], vx, vy
            ex, ey = (ax, ay) if end == 2 else (bx, by)
        t = ((ex - ox) * dx + (ey - oy) * dy) / (dx * dx + dy * dy + 1e-300)
        t = min(1.0, max(0.0, t))
        gx, gy = ex - ox - t * dx, ey - oy - t * dy
        best = min(best, gx * gx + gy * gy)
    return best


@compiled
def is_clear(ax: float, ay: float, bx: float, by: float, blocked: F64, gap: float) -> bool:
    """True if the segment ab keeps more than `gap` from every polygon."""
    for k in range(blocked.shape[0]):
        polygon = blocked[k]
        inside = True
        for i in range(polygon.shape[0]):
            p, q = polygon[i], polygon[(i + 1) % polygon.shape[0]]
            if _segments_gap(ax, ay, bx, by, p, q) <= gap * gap:
                return False
            if (q[0] - p[0]) * (ay - p[1]) - (q[1] - p[1]) * (ax - p[0]) < 0:
                inside = False
        if inside:
            return False
    return True


@compiled
def _corner_nodes(blocked: F64, radius: float) -> F64:
    """Points a little outside each convex corner, if free and on the board."""
    nodes = np.empty((blocked.shape[0] * blocked.shape[1], 2))
    n = 0
    for k in range(blocked.shape[0]):
        polygon = blocked[k]
        m = polygon.shape[0]
        for i in range(m):
            e = polygon[i] - polygon[(i - 1) % m]
            f = polygon[(i + 1) % m] - polygon[i]
            le, lf = math.sqrt(e[0] ** 2 + e[1] ** 2), math.sqrt(f[0] ** 2 + f[1] ** 2)
            nx, ny = e[1] / le + f[1] / lf, -e[0] / le - f[0] / lf
            stretch = (radius + DETOUR) / (0.5 * (nx * nx + ny * ny))
            reach = math.sqrt(nx * nx + ny * ny) * stretch
            stretch *= min(1.0, 1.5 * (radius + DETOUR) / reach)  # limited at sharp corners
            x, y = polygon[i, 0] + nx * stretch, polygon[i, 1] + ny * stretch
            if INSIDE_LOW < x < INSIDE_HIGH and INSIDE_LOW < y < INSIDE_HIGH:  # noqa: SIM102
                if is_clear(x, y, x, y, blocked, radius + CLEARANCE):
                    nodes[n, 0], nodes[n, 1] = x, y
                    n += 1
    return nodes[:n]


@compiled
def corner_graph(blocked: F64, radius: float) -> tuple[F64, F64, F64]:
    """Corner nodes (n, 2), shortest distances between them (n, n), and the next node on each path."""
    nodes = _corner_nodes(blocked, radius)
    n = nodes.shape[0]
    distance = np.full((n, n), UNREACHABLE)
    follow = np.full((n, n), -1.0)
    for i in range(n):
        distance[i, i] = 0.0
        follow[i, i] = i
        for j in range(i):
            if is_clear(nodes[i, 0], nodes[i, 1], nodes[j, 0], nodes[j, 1], blocked, radius + CLEARANCE):
                d = math.sqrt((nodes[i, 0] - nodes[j, 0]) ** 2 + (nodes[i, 1] - nodes[j, 1]) ** 2)
                distance[i, j] = distance[j, i] = d
                follow[i, j], follow[j, i] = j, i
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if distance[i, k] + distance[k, j] < distance[i, j]:
                    distance[i, j] = distance[i, k] + distance[k, j]
                    follow[i, j] = follow[i, k]
    return nodes, distance, follow


@compiled
def links(x: float, y: float, nodes: F64, blocked: F64, gap: float) -> F64:
    """Distance from a point to each visible node, UNREACHABLE to the others: (n,)."""
    out = np.full(nodes.shape[0], UNREACHABLE)
    for i in range(nodes.shape[0]):
        if is_clear(x, y, nodes[i, 0], nodes[i, 1], blocked, gap):
            out[i] = math.sqrt((x - nodes[i, 0]) ** 2 + (y - nodes[i, 1]) ** 2)
    return out


@compiled
def free_gap(x: float, y: float, blocked: F64, radius: float) -> float:
    """The gap to keep from here: the usual one, or less if the pusher is already closer."""
    gap = CLEARANCE
    while gap > -8.0 and not is_clear(x, y, x, y, blocked, max(0.0, radius + gap)):
        gap -= 1.0
    return max(0.0, radius + gap)


@compiled
def route(start: F64, end: F64, blocked: F64, radius: float) -> F64:
    """Way points from start to end, both included; empty if there is no way."""
    gap = min(free_gap(start[0], start[1], blocked, radius), free_gap(end[0], end[1], blocked, radius))
    if is_clear(start[0], start[1], end[0], end[1], blocked, gap):
        return np.stack((start, end))
    nodes, distance, follow = corner_graph(blocked, radius)
    out_of = links(start[0], start[1], nodes, blocked, free_gap(start[0], start[1], blocked, radius))
    into = links(end[0], end[1], nodes, blocked, free_gap(end[0], end[1], blocked, radius))
    best, first, last = UNREACHABLE, -1, -1
    for i in range(nodes.shape[0]):
        for j in range(nodes.shape[0]):
            total = out_of[i] + distance[i, j] + into[j]
            if total < best:
                best, first, last = total, i, j
    path = np.empty((nodes.shape[0] + 2, 2))
    if first < 0:
        return path[:0]
    path[0] = start
    n = 1
    while True:
        path[n] = nodes[first]
        n += 1
        if first == last:
            break
        first = int(follow[first, last])
    path[n] = end
    return path[: n + 1]
