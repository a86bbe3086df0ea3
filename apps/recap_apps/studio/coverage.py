"""A pool's coverage: the distance of its nearest match to the start of tasks, and what to record next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recap.geometry import wrap_angle
from recap.pool.view import PoolView
from recap.retrieval.explain import observation_at
from recap.retrieval.retriever import Retriever
from recap.types import F64, Observation, Query, TaskContext
from recap_apps.studio.task import Task
from recap_worlds.pusht.env import BOARD_CENTER
from recap_worlds.pusht.robot import IMAGE_SIZE
from recap_worlds.pusht.suite import context_of

STEP = 15  # degrees between queried goals
N_STARTS = 24  # per goal
N_LEFT_OUT = 200  # most demonstrations that are compared with the rest
N_SUGGESTIONS = 4
APART = 40.0  # degrees between the goals of two suggestions
PUSHER = "triangle"


@dataclass(frozen=True, slots=True)
class Cell:
    """A goal and a start, with the distance of the pool's nearest match."""

    angle: float
    start: int
    block: tuple[float, float, float]  # pose at the start
    distance: float | None  # px; None without a match


@dataclass(frozen=True, slots=True)
class Survey:
    """Coverage of one block by one version of a pool."""

    version: int
    block: str
    n_demonstrations: int  # of that block, that can be used
    cells: tuple[Cell, ...]
    usual: float | None  # median distance of a demonstration's start to the rest of the pool
    left_out: dict[str, float]  # demonstration -> that distance
    suggestions: tuple[Cell, ...]

    def to_json(self) -> dict[str, Any]:
        """Results by goal, with the worst goals and starts."""
        goals = []
        for angle in goal_angles(Task(self.block).symmetry):
            cells = [cell for cell in self.cells if cell.angle == angle]
            known = [cell.distance for cell in cells if cell.distance is not None]
            goals.append(
                {
                    "angle": angle,
                    "median": round(float(np.median(known)), 1) if known else None,
                    "worst": round(max(known), 1) if known else None,
                    "starts": [_cell(cell) for cell in cells],
                }
            )
        return {
            "version": self.version,
            "block": self.block,
            "n_demonstrations": self.n_demonstrations,
            "usual": None if self.usual is None else round(self.usual, 1),
            "left_out": {name: round(value, 1) for name, value in self.left_out.items()},
            "goals": goals,
            "suggestions": [_cell(cell) for cell in self.suggestions],
        }


def goal_angles(symmetry: int) -> list[float]:
    """Every queried goal; goals that look equal for a symmetric block occur only once."""
    period = 360 // symmetry
    return [float(a) for a in range(-period // 2 + STEP, period // 2 + 1, STEP)]


def survey(retriever: Retriever, block: str) -> Survey:
    """Query the pool's newest version with the starts of many tasks of that block."""
    index = retriever.index()
    view = retriever.source.view()
    mine, others = _by_block(view, block)
    mine = [name for name in mine if name not in index.unusable]
    context = context_of(block, PUSHER)
    looks = bool(retriever.requires.cameras)
    starts = [_beginning(Task(block, 0.0, number)) for number in range(N_STARTS)]
    cells = []
    for angle in goal_angles(context.symmetry):
        goal = np.array([*BOARD_CENTER, math.radians(angle)])
        for number, start in enumerate(starts):
            distance = None
            if mine:
                # Drawing a goal takes seconds, so it is done only if the retrieval uses images.
                drawn = _beginning(Task(block, angle, number), IMAGE_SIZE) if looks else None
                seen = drawn or _with_goal(start, goal)
                distance = _nearest(retriever, seen, context, others)
            x, y, turn = start.objects["block"].tolist()
            cells.append(Cell(angle, number, (x, y, turn), distance))
    left_out = _left_out(retriever, view, mine, others, context)
    return Survey(
        version=index.version,
        block=block,
        n_demonstrations=len(mine),
        cells=tuple(cells),
        usual=float(np.median(list(left_out.values()))) if left_out else None,
        left_out=left_out,
        suggestions=suggest(cells),
    )


def suggest(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The worst starts, no two with a similar goal or the same start number."""
    # Without demonstrations all starts are equally bad: sort goals by their distance from upright.
    order = sorted(cells, key=lambda c: (-c.distance if c.distance is not None else -math.inf, abs(c.angle)))
    chosen: list[Cell] = []
    for cell in order:
        near = (abs(wrap_angle(cell.angle - other.angle, 360.0)) < APART for other in chosen)
        if not any(near) and cell.start not in {other.start for other in chosen}:
            chosen.append(cell)
        if len(chosen) == N_SUGGESTIONS:
            break
    return tuple(chosen)


def _by_block(view: PoolView, block: str) -> tuple[list[str], frozenset[str]]:
    """Demonstrations of that block, and those of other blocks, which must not be retrieved."""
    mine, others = [], set()
    for name in view.episode_ids:
        episode = view.episode(name)
        if str(episode.attributes.get("block", "tee")) != block:
            others.add(name)
        elif episode.cut_from is None:
            mine.append(name)
    return mine, frozenset(others)


def _left_out(
    retriever: Retriever, view: PoolView, mine: Sequence[str], others: frozenset[str], context: TaskContext
) -> dict[str, float]:
    """Distance of each demonstration's start to the rest of the pool, without its own scene."""
    chosen = sorted(np.random.default_rng(0).permutation(len(mine))[:N_LEFT_OUT].tolist())
    found: dict[str, float] = {}
    for name in (mine[i] for i in chosen):
        episode = view.episode(name)
        looks = bool(retriever.requires.cameras)
        seen = observation_at(episode if looks else replace(episode, images={}), 0)  # opening a video is slow
        distance = _nearest(retriever, seen, context, others | {name, episode.scene_id})
        if distance is not None:
            found[name] = distance
    return found


def _nearest(
    retriever: Retriever, seen: Observation, context: TaskContext, exclude: frozenset[str]
) -> float | None:
    matches = retriever.retrieve(Query((seen,), seen, context, exclude)).matches
    return matches[0].distance if matches else None


def _beginning(task: Task, image_size: int | None = None) -> Observation:
    return task.open(PUSHER).observe(image_size)


def _with_goal(seen: Observation, goal: F64) -> Observation:
    return Observation(seen.proprio, seen.task, seen.time_s, objects=seen.objects, goal=goal)


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "angle": cell.angle,
        "start": cell.start,
        "block": [round(value, 3) for value in cell.block],
        "distance": None if cell.distance is None else round(cell.distance, 1),
    }
