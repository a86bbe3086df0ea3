"""Definition of a task: bodies, initial poses, success check and script of the expert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from recap.geometry3 import quaternion_to_matrix
from recap.types import F64
from recap_worlds.dualarm.objects import Body, Place
from recap_worlds.dualarm.waypoints import Writer


@dataclass(frozen=True)
class State:
    """The true state, for success checks."""

    objects: Mapping[str, F64]  # poses (7,) of every body and part
    start: Mapping[str, F64]  # the same at the start of the episode
    joints: Mapping[str, float]  # of every part: degrees or m
    tools: Mapping[str, F64]  # side -> point between the pads (3,)
    grips: Mapping[str, float]  # side -> 0 closed … 1 open
    touching: Mapping[str, frozenset[str]]  # body or part -> sides whose fingers touch it

    def raised(self, name: str) -> float:
        """Height above the initial pose, in metres."""
        return float(self.objects[name][2] - self.start[name][2])

    def upright(self, name: str) -> float:
        """The cosine between its z axis and the world's: 1 if upright."""
        return float(quaternion_to_matrix(self.objects[name][3:])[2, 2])

    def offset(self, name: str, of: str) -> F64:
        """Position of `name` in the frame of `of`: (3,)."""
        frame = self.objects[of]
        offset: F64 = quaternion_to_matrix(frame[3:]).T @ (self.objects[name][:3] - frame[:3])
        return offset

    def released(self, name: str) -> bool:
        """True if no finger touches it."""
        return not self.touching[name]

    def held(self, name: str, *sides: str) -> bool:
        """True if the fingers of these arms (or of any arm) touch it."""
        return set(sides) <= set(self.touching[name]) if sides else bool(self.touching[name])


@dataclass(frozen=True)
class Task:
    """One task; `objects` are the observed objects, in the order in which they are manipulated."""

    key: str
    bodies: tuple[Body, ...]
    arrange: Callable[[np.random.Generator], Mapping[str, Place]]
    success: Callable[[State], bool]  # must hold for `HOLD_STEPS` steps
    script: Writer
    seen: tuple[str, ...]  # instructions used in demonstrations
    unseen: tuple[str, ...]  # instructions reserved for evaluation
    objects: tuple[str, ...]
    max_steps: int = 400

    @property
    def id(self) -> str:
        """Its Gymnasium id."""
        return f"recap/DualArm-{''.join(word.title() for word in self.key.split('_'))}-v0"


@dataclass(frozen=True)
class Area:
    """A rectangle of the table and a range of headings, from which places are drawn."""

    x: tuple[float, float]
    y: tuple[float, float]
    yaw: tuple[float, float] = (0.0, 0.0)

    def draw(self, rng: np.random.Generator) -> Place:
        """Draw a place."""
        return Place(rng.uniform(*self.x), rng.uniform(*self.y), rng.uniform(*self.yaw))


def scattered(
    areas: Mapping[str, Area], *, apart: float = 0.0, mirrored: bool = False
) -> Callable[[np.random.Generator], Mapping[str, Place]]:
    """Draw each object from its area until all are `apart`; `mirrored` swaps left and right half the time."""

    def arrange(rng: np.random.Generator) -> Mapping[str, Place]:
        sign = -1.0 if mirrored and rng.random() < 0.5 else 1.0
        while True:
            places = {name: area.draw(rng) for name, area in areas.items()}
            if min(_gaps(places), default=np.inf) >= apart:
                return {k: Place(sign * p.x, p.y, sign * p.yaw) for k, p in places.items()}

    return arrange


def _gaps(places: Mapping[str, Place]) -> Iterator[float]:
    spots = list(places.values())
    for i, a in enumerate(spots):
        for b in spots[i + 1 :]:
            yield float(np.hypot(a.x - b.x, a.y - b.y))
