"""A compiled copy of the Chipmunk step for planning: about a million steps per second.

It follows Chipmunk's order (move, find contacts, solve by iterated impulses with a bias against
penetration) for one free block, one kinematic pusher and four walls. It agrees with pymunk closely but not
always. So it is used for planning with replanning; all reported results come from the real environment.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from recap.compiled import compiled
from recap.types import F64
from recap_worlds.pusht.blocks import INERTIA, Block
from recap_worlds.pusht.pushers import TRIANGLE
from recap_worlds.pusht.shapes import DISC_RADIUS

DT = 0.01
N_SUBSTEPS = 10
STIFFNESS, DAMPING = 100.0, 20.0
N_ITERATIONS = 10
BIAS = 1.0 - 0.9**0.6  # share of a penetration undone in one step
SLOP = 0.1
WALL_LOW, WALL_HIGH = 7.0, 504.0  # the walls' inner faces
ROUNDING = 2.0  # px, shrinks the pusher so that it counts as outside the block while it presses on it

# Layout of a state: pusher x y vx vy | block centre of gravity x y, angle, vx vy w | bias velocity x y w
STATE_DIM = 13


class Body(NamedTuple):
    """What planning needs of a block and a pusher; a tuple, because compiled code accepts it."""

    bars: F64  # (n, 4): centre x y relative to the centre of gravity, half width, half height
    inverse_inertia: float
    pusher: F64  # (k, 2) vertices about its centre, counter-clockwise; one vertex for a disc
    radius: float  # of the disc; 0 for a polygon
    core: F64  # (k, 2) the pusher shrunk by core_radius; together they are its rounded shape for routing
    core_radius: float
    offset: F64  # (2,) the centre of gravity in the block's frame


def make_body(block: Block, pusher: str) -> Body:
    """The simulator's representation of a block and a pusher."""
    offset = np.array(block.center_of_gravity)
    bars = [
        ((x0 + x1) / 2 - offset[0], (y0 + y1) / 2 - offset[1], (x1 - x0) / 2, (y1 - y0) / 2)
        for x0, y0, x1, y1 in block.bars
    ]
    point = np.zeros((1, 2))
    if pusher == "disc":
        return Body(np.array(bars), 1 / INERTIA, point, DISC_RADIUS, point, DISC_RADIUS, offset)
    core = _shrunk(TRIANGLE, ROUNDING)
    return Body(np.array(bars), 1 / INERTIA, TRIANGLE, 0.0, core, ROUNDING, offset)


def _shrunk(triangle: F64, by: float) -> F64:
    """The triangle with every side moved inwards by `by`."""
    opposite = np.linalg.norm(np.roll(triangle, -2, axis=0) - np.roll(triangle, -1, axis=0), axis=1)
    center = opposite @ triangle / opposite.sum()
    (ax, ay), (bx, by_) = triangle[1] - triangle[0], triangle[2] - triangle[0]
    inner_radius = abs(ax * by_ - ay * bx) / opposite.sum()
    return np.asarray(center + (triangle - center) * (1 - by / inner_radius))


def initial_state(body: Body, pusher_xy: F64, block_pose: F64) -> F64:
    """A state at rest from the environment's poses."""
    state = np.zeros(STATE_DIM)
    c, s = math.cos(block_pose[2]), math.sin(block_pose[2])
    ox, oy = body.offset
    state[:2] = pusher_xy
    state[4:7] = block_pose[0] + c * ox - s * oy, block_pose[1] + s * ox + c * oy, block_pose[2]
    return state


@compiled
def _add_contact(
    contacts: F64,
    k: int,
    slot: int,
    nx: float,
    ny: float,
    rx: float,
    ry: float,
    depth: float,
    approach: float,
) -> None:
    """Add a contact: normal into the block, arm from its centre, gap (negative), speed of the pusher."""
    contacts[k, 0], contacts[k, 1] = nx, ny
    contacts[k, 2], contacts[k, 3] = rx, ry
    contacts[k, 4] = -BIAS * min(0.0, depth + SLOP) / DT
    contacts[k, 5] = approach
    contacts[k, 6] = 0.0  # bias impulse so far
    contacts[k, 7] = slot


@compiled
def _disc_contact(
    state: F64, bar: F64, slot: int, radius: float, c: float, s: float, contacts: F64, k: int
) -> int:
    # The disc's centre in the frame of the bar.
    dx, dy = state[0] - state[4], state[1] - state[5]
    lx, ly = c * dx + s * dy - bar[0], -s * dx + c * dy - bar[1]
    qx, qy = min(bar[2], max(-bar[2], lx)), min(bar[3], max(-bar[3], ly))
    gx, gy = qx - lx, qy - ly
    d = math.sqrt(gx * gx + gy * gy)
    if d >= radius:
        return k
    if d > 1e-9:
        nx, ny, depth = gx / d, gy / d, d - radius
    else:  # the centre is inside: push out through the nearest face
        out_x, out_y = bar[2] - abs(lx), bar[3] - abs(ly)
        if out_x < out_y:
            nx, ny, qx, depth = -math.copysign(1.0, lx), 0.0, math.copysign(bar[2], lx), -out_x - radius
        else:
            nx, ny, qy, depth = 0.0, -math.copysign(1.0, ly), math.copysign(bar[3], ly), -out_y - radius
    px, py = qx + bar[0], qy + bar[1]
    wx, wy = c * nx - s * ny, s * nx + c * ny
    approach = state[2] * wx + state[3] * wy
    _add_contact(contacts, k, slot, wx, wy, c * px - s * py, s * px + c * py, depth, approach)
    return k + 1


@compiled
def _support_edge(polygon: F64, nx: float, ny: float) -> int:
    """Index i of the edge (i, i+1) at the extreme vertex that faces (nx, ny) most."""
    n = polygon.shape[0]
    best, top = 0, -1e18
    for i in range(n):
        reach = polygon[i, 0] * nx + polygon[i, 1] * ny
        if reach > top:
            best, top = i, reach
    before, after = (best - 1) % n, (best + 1) % n
    ax, ay = polygon[best, 0] - polygon[before, 0], polygon[best, 1] - polygon[before, 1]
    bx, by = polygon[after, 0] - polygon[best, 0], polygon[after, 1] - polygon[best, 1]
    facing_before = (nx * ay - ny * ax) / math.sqrt(ax * ax + ay * ay)
    facing_after = (nx * by - ny * bx) / math.sqrt(bx * bx + by * by)
    return before if facing_before > facing_after else best


@compiled
def _separation(a: F64, b: F64) -> tuple[float, float, float]:
    """Largest gap between two convex polygons along the edge normals of `a`, and that normal."""
    best, bx, by = -1e18, 0.0, 0.0
    n = a.shape[0]
    for i in range(n):
        ex, ey = a[(i + 1) % n, 0] - a[i, 0], a[(i + 1) % n, 1] - a[i, 1]
        length = math.sqrt(ex * ex + ey * ey)
        nx, ny = ey / length, -ex / length
        gap = 1e18
        for j in range(b.shape[0]):
            gap = min(gap, (b[j, 0] - a[i, 0]) * nx + (b[j, 1] - a[i, 1]) * ny)
        if gap > best:
            best, bx, by = gap, nx, ny
        if best > 0:
            break
    return best, bx, by


@compiled
def _unit(x: float) -> float:
    return min(1.0, max(0.0, x))


@compiled
def _polygon_contact(state: F64, pusher: F64, corners: F64, slot: int, contacts: F64, k: int) -> int:
    """Up to two contacts between the pusher (a polygon in the world) and the corners of one bar."""
    gap_a, ax, ay = _separation(pusher, corners)
    if gap_a > 0:
        return k
    gap_b, bx, by = _separation(corners, pusher)
    if gap_b > 0:
        return k
    nx, ny = (ax, ay) if gap_a > gap_b else (-bx, -by)
    i, j = _support_edge(pusher, nx, ny), _support_edge(corners, -nx, -ny)
    p, q = pusher[i], pusher[(i + 1) % pusher.shape[0]]
    u, v = corners[j], corners[(j + 1) % 4]
    # Positions along the contact line; the two edges run in opposite directions.
    dp, dq = p[0] * ny - p[1] * nx, q[0] * ny - q[1] * nx
    du, dv = u[0] * ny - u[1] * nx, v[0] * ny - v[1] * nx
    on_pusher, on_bar = 1 / (dq - dp + 1e-300), 1 / (dv - du + 1e-300)
    approach = state[2] * nx + state[3] * ny
    for side in range(2):
        if side == 0:
            t, w = _unit((dv - dp) * on_pusher), _unit((dp - du) * on_bar)
        else:
            t, w = _unit((du - dp) * on_pusher), _unit((dq - du) * on_bar)
        x1, y1 = p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])
        x2, y2 = u[0] + w * (v[0] - u[0]), u[1] + w * (v[1] - u[1])
        depth = (x2 - x1) * nx + (y2 - y1) * ny
        if depth <= 0:
            _add_contact(contacts, k, slot + side, nx, ny, x2 - state[4], y2 - state[5], depth, approach)
            k += 1
    return k


@compiled
def _wall_contacts(state: F64, corners: F64, slot: int, contacts: F64, k: int) -> int:
    """Contacts of one bar's corners with walls; a slot is given by wall and parity of the corner."""
    for j in range(4):
        x, y = corners[j, 0], corners[j, 1]
        if WALL_LOW < x < WALL_HIGH and WALL_LOW < y < WALL_HIGH:
            continue
        rx, ry = x - state[4], y - state[5]
        for wall in range(4):
            if wall == 0:
                nx, ny, gap = 1.0, 0.0, x - WALL_LOW
            elif wall == 1:
                nx, ny, gap = -1.0, 0.0, WALL_HIGH - x
            elif wall == 2:
                nx, ny, gap = 0.0, 1.0, y - WALL_LOW
            else:
                nx, ny, gap = 0.0, -1.0, WALL_HIGH - y
            if gap <= 0 and k < contacts.shape[0]:
                _add_contact(contacts, k, slot + 2 * wall + j % 2, nx, ny, rx, ry, gap, 0.0)
                k += 1
    return k


@compiled
def contact_memory(body: Body) -> tuple[F64, F64]:
    """Impulses (slots, 2) that are kept between steps, and scratch for contacts (slots, 8).

    A bar has ten slots: two for the pusher and two for each wall.
    """
    n = 10 * body.bars.shape[0]
    return np.zeros((n, 2)), np.empty((n, 8))


@compiled
def substep(state: F64, body: Body, impulses: F64, contacts: F64) -> bool:
    """One Chipmunk step in place, with the pusher's velocity from the state; True if the pusher touches."""
    bars, inverse_inertia, pusher, radius = body.bars, body.inverse_inertia, body.pusher, body.radius
    state[0] += state[2] * DT
    state[1] += state[3] * DT
    state[4] += (state[7] + state[10]) * DT
    state[5] += (state[8] + state[11]) * DT
    state[6] += (state[9] + state[12]) * DT
    c, s = math.cos(state[6]), math.sin(state[6])
    n_bars = bars.shape[0]
    world = np.empty((4, 2))
    tip = np.empty_like(pusher)
    for i in range(pusher.shape[0]):
        tip[i, 0], tip[i, 1] = pusher[i, 0] + state[0], pusher[i, 1] + state[1]
    k = 0
    for i in range(n_bars):
        bar = bars[i]
        ux, uy, vx, vy = c * bar[2], s * bar[2], -s * bar[3], c * bar[3]
        mx, my = state[4] + c * bar[0] - s * bar[1], state[5] + s * bar[0] + c * bar[1]
        reach = bar[2] + bar[3] + 22.0
        near = abs(state[0] - mx) < reach and abs(state[1] - my) < reach
        edge = min(mx - WALL_LOW, WALL_HIGH - mx, my - WALL_LOW, WALL_HIGH - my) < bar[2] + bar[3]
        if not (near or edge):
            continue
        world[0, 0], world[0, 1] = mx - ux - vx, my - uy - vy
        world[1, 0], world[1, 1] = mx + ux - vx, my + uy - vy
        world[2, 0], world[2, 1] = mx + ux + vx, my + uy + vy
        world[3, 0], world[3, 1] = mx - ux + vx, my - uy + vy
        if near:
            if radius > 0:
                k = _disc_contact(state, bar, 10 * i, radius, c, s, contacts, k)
            else:
                k = _polygon_contact(state, tip, world, 10 * i, contacts, k)
        if edge:
            k = _wall_contacts(state, world, 10 * i + 2, contacts, k)
    touching = False
    # Velocities start from zero, because the space damps them fully, plus the last step's impulses.
    vx = vy = w = bx = by = bw = 0.0
    for i in range(impulses.shape[0]):
        impulses[i, 1] = 0.0
    for i in range(k):
        slot = int(contacts[i, 7])
        if slot % 10 < 2:
            touching = True
        j = impulses[slot, 0]
        impulses[slot, 1] = j
        if j > 0:
            nx, ny, rx, ry = contacts[i, 0], contacts[i, 1], contacts[i, 2], contacts[i, 3]
            vx += nx * j
            vy += ny * j
            w += inverse_inertia * (rx * ny - ry * nx) * j
    for _ in range(N_ITERATIONS if k else 0):
        for i in range(k):
            nx, ny, rx, ry = contacts[i, 0], contacts[i, 1], contacts[i, 2], contacts[i, 3]
            arm = rx * ny - ry * nx
            mass = 1 / (1 + inverse_inertia * arm * arm)
            slot = int(contacts[i, 7])
            bias_old = contacts[i, 6]
            bias_new = max(0.0, bias_old + (contacts[i, 4] - (bx * nx + by * ny + bw * arm)) * mass)
            contacts[i, 6] = bias_new
            push_old = impulses[slot, 1]
            push_new = max(0.0, push_old - (vx * nx + vy * ny + w * arm - contacts[i, 5]) * mass)
            impulses[slot, 1] = push_new
            j = bias_new - bias_old
            bx += nx * j
            by += ny * j
            bw += inverse_inertia * arm * j
            j = push_new - push_old
            vx += nx * j
            vy += ny * j
            w += inverse_inertia * arm * j
    for i in range(impulses.shape[0]):
        impulses[i, 0] = impulses[i, 1]
    state[7], state[8], state[9] = vx, vy, w
    state[10], state[11], state[12] = bx, by, bw
    return touching


@compiled
def follow_targets(state: F64, targets: F64, body: Body) -> F64:
    """The states (t, STATE_DIM) after each control step towards targets (t, 2), as in the environment."""
    impulses, contacts = contact_memory(body)
    state = state.copy()
    out = np.empty((targets.shape[0], state.shape[0]))
    for t in range(targets.shape[0]):
        for _ in range(N_SUBSTEPS):
            state[2] += (STIFFNESS * (targets[t, 0] - state[0]) - DAMPING * state[2]) * DT
            state[3] += (STIFFNESS * (targets[t, 1] - state[1]) - DAMPING * state[3]) * DT
            substep(state, body, impulses, contacts)
        out[t] = state
    return out
