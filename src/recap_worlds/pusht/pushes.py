"""Push primitives: contact point, direction and length, evaluated by the thousand."""

from __future__ import annotations

import math

import numpy as np

from recap.compiled import compiled
from recap.types import F64
from recap_worlds.pusht.routing import (
    CLEARANCE,
    INSIDE_HIGH,
    INSIDE_LOW,
    UNREACHABLE,
    corner_graph,
    free_gap,
    is_clear,
    links,
    obstacles,
)
from recap_worlds.pusht.simulator import DT, STATE_DIM, Body, contact_memory, substep

APPROACH = 5.0  # px, gap to the block at the start of a push
MAX_PUSH = 168.0
RECORD_EVERY = 7.0
STRIDE = 2.0  # px per planning step of the pusher
MAX_MISS = 14.0  # px without contact after which a push ends
TURN_WEIGHT = 60.0  # px per radian of error

# Columns of a candidate push.
COST, ERROR, CONTACT, TILT, CURVATURE, LENGTH, BLOCK_X, BLOCK_Y, BLOCK_ANGLE, PUSHER_X, PUSHER_Y = range(11)
N_COLUMNS = 11


@compiled
def contact_at(outline: F64, s: float) -> F64:
    """Point and inward normal (4,) at arc length s on a counter-clockwise outline."""
    perimeter = 0.0
    n = outline.shape[0]
    for i in range(n):
        e = outline[(i + 1) % n] - outline[i]
        perimeter += math.sqrt(e[0] ** 2 + e[1] ** 2)
    s = s % perimeter
    out = np.empty(4)
    for i in range(n):
        e = outline[(i + 1) % n] - outline[i]
        length = math.sqrt(e[0] ** 2 + e[1] ** 2)
        if s <= length or i == n - 1:
            out[0], out[1] = outline[i, 0] + e[0] * s / length, outline[i, 1] + e[1] * s / length
            out[2], out[3] = -e[1] / length, e[0] / length
            break
        s -= length
    return out


@compiled
def push_start(contact: F64, block: F64, body: Body) -> F64:
    """Position of the pusher's centre before the push and the direction into the block: (3,)."""
    pusher, radius = body.pusher, body.radius
    c, s = math.cos(block[2]), math.sin(block[2])
    nx, ny = c * contact[2] - s * contact[3], s * contact[2] + c * contact[3]
    top = -1e18
    for i in range(pusher.shape[0]):
        top = max(top, pusher[i, 0] * nx + pusher[i, 1] * ny)
    # The vertex that will touch, or the middle of the edge if two are equally far.
    tx = ty = count = 0.0
    for i in range(pusher.shape[0]):
        if pusher[i, 0] * nx + pusher[i, 1] * ny > top - 2.0:
            tx += pusher[i, 0]
            ty += pusher[i, 1]
            count += 1.0
    out = np.empty(3)
    out[0] = block[0] + c * contact[0] - s * contact[1] - nx * (radius + APPROACH) - tx / count
    out[1] = block[1] + s * contact[0] + c * contact[1] - ny * (radius + APPROACH) - ty / count
    out[2] = math.atan2(ny, nx)
    return out


@compiled
def pose_error(x: float, y: float, theta: float, goal: F64, period: float) -> float:
    """Distance of a block from its goal (by centre of gravity) with weighted rotation, up to symmetry."""
    turn = (theta - goal[2] + period / 2) % period - period / 2
    return math.sqrt((x - goal[0]) ** 2 + (y - goal[1]) ** 2 + (TURN_WEIGHT * turn) ** 2)


@compiled
def cost_to_go(error: float) -> float:
    """Estimated remaining steps: about one more push, unless the block is nearly at its goal."""
    return 50.0 * (1.0 - math.exp(-((error / 3.0) ** 2))) + error


@compiled
def roll_push(
    block: F64,
    start: F64,
    curvature: float,
    body: Body,
    impulses: F64,
    contacts: F64,
    records: F64,
) -> int:
    """Push along an arc from `start` (x, y, heading); fill records (k, 5) of block and pusher, return k."""
    state = np.zeros(STATE_DIM)
    state[0], state[1] = start[0], start[1]
    state[4], state[5], state[6] = block[0], block[1], block[2]
    impulses[:] = 0.0
    heading = start[2]
    missed = 0.0
    n = 0
    travelled = 0.0
    next_record = RECORD_EVERY
    while travelled < MAX_PUSH:
        heading += curvature * STRIDE
        state[2], state[3] = math.cos(heading) * STRIDE / DT, math.sin(heading) * STRIDE / DT
        touching = substep(state, body, impulses, contacts)
        travelled += STRIDE
        missed = 0.0 if touching else missed + STRIDE
        inside = INSIDE_LOW < state[0] < INSIDE_HIGH and INSIDE_LOW < state[1] < INSIDE_HIGH
        if missed > MAX_MISS or not inside:
            break
        if travelled >= next_record:
            next_record += RECORD_EVERY
            # Include the block's last velocity, because it still moves.
            records[n, 0], records[n, 1] = state[4] + state[7] * DT, state[5] + state[8] * DT
            records[n, 2] = state[6] + state[9] * DT
            records[n, 3], records[n, 4] = state[0], state[1]
            n += 1
    return n


@compiled
def expand(
    block: F64,
    pusher_xy: F64,
    goal: F64,
    period: float,
    contacts: F64,
    dislike: F64,
    tilts: F64,
    curvatures: F64,
    speed: float,
    body: Body,
) -> F64:
    """All pushes from all reachable contacts, each at its best length: candidates (n, N_COLUMNS).

    `contacts` is (m, 4), `dislike` (m,) an extra cost for each. Cost counts steps of travel and push.
    """
    radius = body.core_radius
    blocked = obstacles(body, block[0], block[1], block[2])
    nodes, distance, _ = corner_graph(blocked, radius)
    here = free_gap(pusher_xy[0], pusher_xy[1], blocked, radius)
    out_of = links(pusher_xy[0], pusher_xy[1], nodes, blocked, here)
    to_node = np.full(nodes.shape[0], UNREACHABLE)
    for j in range(nodes.shape[0]):
        for i in range(nodes.shape[0]):
            to_node[j] = min(to_node[j], out_of[i] + distance[i, j])
    out = np.empty((contacts.shape[0] * tilts.shape[0] * curvatures.shape[0], N_COLUMNS))
    impulses, scratch = contact_memory(body)
    records = np.empty((int(MAX_PUSH / RECORD_EVERY) + 2, 5))
    start = np.empty(3)
    n = 0
    for k in range(contacts.shape[0]):
        place = push_start(contacts[k], block, body)
        x, y = place[0], place[1]
        if not (INSIDE_LOW < x < INSIDE_HIGH and INSIDE_LOW < y < INSIDE_HIGH):
            continue
        if not is_clear(x, y, x, y, blocked, radius + CLEARANCE):
            continue
        travel = UNREACHABLE
        if is_clear(pusher_xy[0], pusher_xy[1], x, y, blocked, min(here, radius + CLEARANCE)):
            travel = math.sqrt((x - pusher_xy[0]) ** 2 + (y - pusher_xy[1]) ** 2)
        else:
            into = links(x, y, nodes, blocked, radius + CLEARANCE)
            for j in range(nodes.shape[0]):
                travel = min(travel, to_node[j] + into[j])
        if travel >= UNREACHABLE:
            continue
        for a in range(tilts.shape[0]):
            for b in range(curvatures.shape[0]):
                start[0], start[1], start[2] = x, y, place[2] + tilts[a]
                count = roll_push(block, start, curvatures[b], body, impulses, scratch, records)
                best, best_cost = -1, 1e18
                for r in range(count):
                    e = pose_error(records[r, 0], records[r, 1], records[r, 2], goal, period)
                    cost = (r + 1) * RECORD_EVERY / (6.0 * speed) + cost_to_go(e)
                    if cost < best_cost:
                        best, best_cost = r, cost
                if best >= 0:
                    row = out[n]
                    row[ERROR] = pose_error(
                        records[best, 0], records[best, 1], records[best, 2], goal, period
                    )
                    row[LENGTH] = (best + 1) * RECORD_EVERY
                    row[COST] = travel / (10.0 * speed) + row[LENGTH] / (6.0 * speed) + 6.0 + dislike[k]
                    row[CONTACT], row[TILT], row[CURVATURE] = k, tilts[a], curvatures[b]
                    for c in range(5):
                        row[BLOCK_X + c] = records[best, c]
                    n += 1
    return out[:n]
