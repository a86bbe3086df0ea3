"""Tasks of robosuite: environment, objects, their places and the instruction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from recap.errors import one_of
from recap.types import F64

QUARTER, HALF = math.pi / 4, math.pi / 2
Range = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """An object with a random pose in each scene, the same for every robot."""

    body: str  # robosuite's name without `_main`
    x: Range
    y: Range
    z: float  # of its centre at rest
    yaw: Range = (-QUARTER, QUARTER)  # full range for objects with quarter-turn symmetry


@dataclass(frozen=True)
class Task:
    """One task.

    Args:
        env: the environment in robosuite.
        words: the instruction.
        things: name in an observation -> body; the first is the main object.
        fixed: name -> place of a static target without a body.
        moved: name -> place of a fixture that is moved from robosuite's place to where every arm reaches it.
        goal: the object on which something is placed; empty: the main object is lifted or opened.
        grip: the grip point of the main object, in its frame.
        apart: least distance between two placed objects, m.
        releases: whether the tool must release and leave for success.
    """

    key: str
    env: str
    words: str
    things: Mapping[str, str]
    placed: tuple[Placed, ...]
    fixed: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    moved: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    goal: str = ""
    grip: tuple[float, float, float] = (0.0, 0.0, 0.0)
    apart: float = 0.0
    releases: bool = True
    max_steps: int = 1000  # robosuite's horizon

    @property
    def main(self) -> str:
        """The main object."""
        return next(iter(self.things))

    def scene(self, seed: int) -> list[F64]:
        """Poses (7,) of the placed objects; they depend only on seed and task, not on the embodiment."""
        dice = np.random.default_rng([seed, crc32(self.key.encode())])
        while True:
            poses = []
            for placed in self.placed:
                x, y, yaw = (dice.uniform(*span) for span in (placed.x, placed.y, placed.yaw))
                poses.append(np.array([x, y, placed.z, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]))
            if len(poses) < 2 or np.linalg.norm(poses[0][:2] - poses[1][:2]) >= self.apart:
                return poses


def _into_bin(key: str, env: str, body: str, z: float, place: tuple[float, float, float]) -> Task:
    spot = Placed(body, (-0.03, 0.15), (-0.38, -0.12), z)
    return Task(key, env, f"put the {key} into its bin", {key: body}, (spot,), {"bin": place}, goal="bin")


def _onto_peg(shape: str, peg: int, grip_x: float) -> Task:
    side = 1 if peg == 1 else -1
    y: Range = (0.03, 0.24) if peg == 1 else (-0.24, -0.03)
    moved = {f"peg{peg}": (0.13, side * 0.1, 0.85)}  # 10 cm nearer than in robosuite
    body = f"{shape.title()}Nut"
    spot = Placed(body, (-0.16, -0.04), y, 0.83, (math.pi - 1.2, math.pi + 1.2))
    words = f"put the {shape} nut onto the {shape} peg"
    env = f"NutAssembly{shape.title()}"
    things = {"nut": body, "peg": f"peg{peg}"}
    return Task(f"{shape}_nut", env, words, things, (spot,), {}, moved, "peg", (grip_x, 0.0, 0.0))


_CUBE = Placed("cube", (-0.15, 0.08), (-0.18, 0.18), 0.822)
_STACKED = tuple(Placed(f"cube{n}", (-0.15, 0.08), (-0.18, 0.18), z) for n, z in (("A", 0.82), ("B", 0.825)))
_DOOR = Placed("Door", (-0.09, -0.03), (-0.39, -0.31), 1.1, (-HALF - 0.30, -HALF - 0.12))
SEEN = (
    Task("lift", "Lift", "lift the red cube", {"cube": "cube"}, (_CUBE,), releases=False),
    Task(
        "stack",
        "Stack",
        "put the red cube on the green cube",
        {"cube": "cubeA", "base": "cubeB"},
        _STACKED,
        goal="base",
        apart=0.09,
    ),
    _into_bin("can", "PickPlaceCan", "Can", 0.86, (0.14, 0.33, 0.8)),
)
UNSEEN = (
    _onto_peg("square", 1, 0.062),
    _onto_peg("round", 2, 0.07),
    Task(
        "door",
        "Door",
        "press the handle and open the door",
        {"handle": "Door_latch"},
        (_DOOR,),
        grip=(0.11, -0.085, 0.0),
    ),
    _into_bin("bread", "PickPlaceBread", "Bread", 0.845, (0.16, 0.16, 0.8)),
)
TASKS = {task.key: task for task in (*SEEN, *UNSEEN)}


def task_named(name: str) -> Task:
    """A task by its key."""
    return TASKS[one_of("task", name, tuple(TASKS))]
