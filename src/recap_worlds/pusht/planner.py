"""Plans a few pushes ahead by beam search, then refines the first one in an exact simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from recap.compiled import compiled
from recap.types import F64
from recap_worlds.pusht import pushes
from recap_worlds.pusht.motion import timed_targets
from recap_worlds.pusht.pushes import contact_at, expand, pose_error, push_start
from recap_worlds.pusht.routing import obstacles, route
from recap_worlds.pusht.simulator import Body, follow_targets

N_CONTACTS = 40
WIDE_TILTS = np.radians([-50.0, -25.0, 0.0, 25.0, 50.0])
WIDE_CURVATURES = np.radians([-0.5, 0.0, 0.5])
NARROW_TILTS = np.radians([-30.0, 0.0, 30.0])
NARROW_CURVATURES = np.zeros(1)
BEAM = (24, 10)  # nodes kept after the first and the second push
N_CHILDREN = 4
N_TRIES_LAST, N_TRIES = 300, 75
HOME = 2.0  # px, error below which the block counts as placed
SETTLE_STEPS = 3  # simulated steps at the last target in which the pusher comes to rest


@dataclass(frozen=True)
class Scene:
    """The start of planning."""

    state: F64  # (STATE_DIM,) of the simulator
    goal: F64  # (3,) of the block's centre of gravity
    period: float  # rotation after which the block looks the same


@dataclass(frozen=True)
class Plan:
    """The next push: targets to follow, and the simulated state after each."""

    targets: F64  # (t, 2)
    states: F64  # (t, STATE_DIM)
    error: float  # expected at the end


def _diverse(candidates: F64, totals: F64, n: int, period: float, apart: float = 8.0) -> list[int]:
    """The cheapest candidates with different final poses of the block."""
    kept: list[int] = []
    for i in np.argsort(totals, kind="stable")[: 40 * n]:
        if kept:
            delta = candidates[kept] - candidates[i]
            turn = (delta[:, pushes.BLOCK_ANGLE] + period / 2) % period - period / 2
            gap2 = delta[:, pushes.BLOCK_X] ** 2 + delta[:, pushes.BLOCK_Y] ** 2
            if (gap2 + (pushes.TURN_WEIGHT * turn) ** 2).min() < apart**2:
                continue
        kept.append(int(i))
        if len(kept) == n:
            break
    return kept


@compiled
def _try_push(
    state: F64,
    block: F64,
    contact: F64,
    tilt: float,
    curvature: float,
    length: float,
    speed: float,
    initial_speed: float,
    body: Body,
) -> F64:
    """Targets (t, 2) of the whole motion from the pusher's position; empty if there is no way."""
    place = push_start(contact, block, body)
    blocked = obstacles(body, block[0], block[1], block[2])
    way = route(state[:2].copy(), place[:2].copy(), blocked, body.core_radius)
    if way.shape[0] == 0:
        return way
    return timed_targets(way, place[2] + tilt, curvature, length, speed, initial_speed)


class Planner:
    """Plans pushes for one block and pusher; `rng` sets the phase of the contacts and the random search."""

    def __init__(self, body: Body, outline: F64, speed: float = 1.0) -> None:
        self.body = body
        self.outline = np.ascontiguousarray(outline - body.offset)
        self.perimeter = float(np.linalg.norm(np.roll(self.outline, -1, axis=0) - self.outline, axis=1).sum())
        self.speed = speed

    def plan(self, scene: Scene, rng: np.random.Generator, style: F64 | None = None) -> Plan | None:
        """The next push, or None if none is possible; `style` (3, 2) changes the preferred contacts."""
        arcs = (np.arange(N_CONTACTS) + rng.uniform()) * self.perimeter / N_CONTACTS
        chosen = self._search(scene, arcs, self._dislike(arcs, style))
        if chosen is None:
            return None
        first, is_last = chosen
        return self._sharpen(scene, first, float(arcs[int(first[pushes.CONTACT])]), is_last, rng)

    def _dislike(self, arcs: F64, style: F64 | None) -> F64:
        if style is None:
            return np.zeros(len(arcs))
        waves = np.outer(arcs * 2 * np.pi / self.perimeter, np.arange(1, len(style) + 1)) + style[:, 0]
        return np.asarray((np.sin(waves) + 1) @ style[:, 1])

    def _expand(self, node: F64, scene: Scene, contacts: F64, dislike: F64, wide: bool) -> F64:
        return expand(
            node[:3],
            node[3:],
            scene.goal,
            scene.period,
            contacts,
            dislike,
            WIDE_TILTS if wide else NARROW_TILTS,
            WIDE_CURVATURES if wide else NARROW_CURVATURES,
            self.speed,
            self.body,
        )

    def _search(self, scene: Scene, arcs: F64, dislike: F64) -> tuple[F64, bool] | None:
        """The first push of the cheapest plan of up to three, and whether it is the only one."""
        contacts = np.array([contact_at(self.outline, s) for s in arcs])
        s = scene.state
        error_now = pose_error(s[4], s[5], s[6], scene.goal, scene.period)
        enough = max(error_now - 4.0, HOME)
        root = np.array([s[4], s[5], s[6], s[0], s[1]])
        firsts = self._expand(root, scene, contacts, dislike, wide=True)
        if not len(firsts):
            return None
        best_total, best = math.inf, (firsts[0], False)
        totals = firsts[:, pushes.COST] + _to_go(firsts)
        done = np.flatnonzero(firsts[:, pushes.ERROR] < enough)
        if len(done):
            i = done[totals[done].argmin()]
            best_total, best = float(totals[i]), (firsts[i], True)
        beam = [(i, firsts[i]) for i in _diverse(firsts, totals, BEAM[0], scene.period)]
        for depth, width in enumerate((BEAM[1], 0)):
            nodes: list[tuple[int, F64]] = []
            for first, node in beam:
                half = slice(depth % 2, None, 2)
                children = self._expand(
                    node[pushes.BLOCK_X :], scene, contacts[half], dislike[half], wide=False
                )
                if not len(children):
                    continue
                children[:, pushes.COST] += node[pushes.COST]
                totals = children[:, pushes.COST] + _to_go(children)
                for i in _diverse(children, totals, N_CHILDREN, scene.period):
                    if children[i, pushes.ERROR] < enough and totals[i] < best_total:
                        best_total, best = float(totals[i]), (firsts[first], False)
                    nodes.append((first, children[i]))
            if not width or not nodes:
                break
            rows = np.array([row for _, row in nodes])
            totals = rows[:, pushes.COST] + _to_go(rows)
            beam = [nodes[i] for i in _diverse(rows, totals, width, scene.period)]
        return best if math.isfinite(best_total) else (firsts[(firsts[:, pushes.ERROR]).argmin()], False)

    def _sharpen(
        self, scene: Scene, push: F64, arc: float, is_last: bool, rng: np.random.Generator
    ) -> Plan | None:
        """Local random search over the push's parameters; each try is simulated as it will be executed."""
        best = np.array(
            [arc, push[pushes.TILT], push[pushes.CURVATURE], push[pushes.LENGTH] - pushes.APPROACH]
        )
        aim = scene.goal if is_last else push[pushes.BLOCK_X : pushes.BLOCK_X + 3].copy()
        plan = self._simulate(scene, best, aim)
        spread = np.array([6.0, math.radians(8), math.radians(0.15), 8.0])
        n_tries = N_TRIES_LAST if is_last else N_TRIES
        for k in range(n_tries):
            shrink = 1.0 - 0.85 * k / n_tries
            tried = best + rng.normal(size=4) * spread * shrink
            tried[3] = max(tried[3], 4.0)
            other = self._simulate(scene, tried, aim)
            if other is not None and (plan is None or other.error < plan.error):
                plan, best = other, tried
                if plan.error < 0.3:
                    break
        return plan

    def _simulate(self, scene: Scene, push: F64, aim: F64) -> Plan | None:
        body = self.body
        contact = contact_at(self.outline, push[0])
        targets = _try_push(
            scene.state,
            scene.state[4:7],
            contact,
            push[1],
            push[2],
            push[3],
            self.speed,
            float(np.hypot(scene.state[2], scene.state[3])) * 0.1,
            body,
        )
        if not len(targets):
            return None
        settled = np.concatenate([targets, np.repeat(targets[-1:], SETTLE_STEPS, axis=0)])
        states = follow_targets(scene.state, settled, body)
        x, y, theta = states[-1, 4:7]
        return Plan(targets, states[: len(targets)], pose_error(x, y, theta, aim, scene.period))


def _to_go(candidates: F64) -> F64:
    error = candidates[:, pushes.ERROR]
    return np.asarray(50.0 * (1.0 - np.exp(-((error / 3.0) ** 2))) + error)
