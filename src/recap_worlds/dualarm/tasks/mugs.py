"""A task of the pool: a mug is hung on a peg by its handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from recap.types import F64
from recap_worlds.dualarm.objects import Body, Place, box
from recap_worlds.dualarm.tasks.arrangements import in_mirror
from recap_worlds.dualarm.tasks.household import cup
from recap_worlds.dualarm.tasks.task import Area, State, Task
from recap_worlds.dualarm.waypoints import Hands, Script, grip, heading, point, shifted, standing

_RED, _WOOD = (0.78, 0.2, 0.18), (0.6, 0.4, 0.2)
HOLE = (0.046, 0.0, 0.039)  # of the handle, in the mug's frame
PEG_Z, IN_Y = 0.13, 0.02  # in the rack's frame

MUG = cup("mug", 0.03, 0.07, _RED)
MUG = replace(
    MUG,
    geoms=(
        *MUG.geoms,
        box((0.016, 0.003, 0.003), (0.047, 0, 0.021), _RED),
        box((0.016, 0.003, 0.003), (0.047, 0, 0.057), _RED),
        box((0.003, 0.003, 0.021), (0.062, 0, 0.039), _RED),
    ),
)
RACK = Body(
    "rack",
    (
        box((0.035, 0.03, 0.005), (0, 0.06, 0.005), _WOOD),
        box((0.008, 0.008, 0.07), (0, 0.06, 0.07), _WOOD),
        box((0.004, 0.034, 0.004), (0, 0.024, PEG_Z), _WOOD),
        box((0.004, 0.003, 0.006), (0, -0.01, PEG_Z + 0.004), _WOOD),
    ),
    fixed=True,
)


def _hole(mug: F64) -> F64:
    return point(mug, *HOLE)


def _hung(state: State) -> bool:
    hole, peg = _hole(state.objects["mug"]), point(state.objects["rack"], 0, IN_Y, PEG_Z)
    alone = min(np.linalg.norm(tool - hole) for tool in state.tools.values()) > 0.1
    return bool(np.linalg.norm(hole - peg) < 0.035 and state.raised("mug") > 0.02 and alone)


def _hang(hands: Hands) -> Script:
    side, rack = hands.side_of("mug"), hands.objects["rack"]
    yield from hands.pick(side, grip(hands.objects["mug"], (0, 0, 0.052)), lift=0.18)
    yield hands.wait(0.15)
    yaw = heading(rack) + (0 if side == "left" else 180)

    def with_hole_at(y: float, z: float) -> F64:
        foot = shifted(standing(0, 0, 0, yaw), *(point(rack, 0, y, z) - _hole(standing(0, 0, 0, yaw))))
        return hands.bringing(side, "mug", foot)

    before, inside = with_hole_at(-0.06, PEG_Z), with_hole_at(IN_Y, PEG_Z)
    yield hands.carry(side, shifted(before, z=0.06))
    yield hands.reach(side, before)
    yield hands.reach(side, inside, speed=0.1)
    yield hands.reach(side, shifted(inside, z=-0.011), speed=0.1)
    yield hands.open(side)
    yield hands.retreat(side, 0.13)


_facing = in_mirror(
    {"mug": Area((0.15, 0.31), (-0.18, 0.14), (145, 215)), "rack": Area((-0.02, 0.05), (-0.04, 0.12))},
    apart=0.19,
)


def _arrange(rng: np.random.Generator) -> Mapping[str, Place]:
    """Like `_facing`, but the peg always points to the operator."""
    places = _facing(rng)
    return {**places, "rack": replace(places["rack"], yaw=rng.uniform(-12, 12))}


HANGING_MUG = Task(
    key="hanging_mug",
    bodies=(MUG, RACK),
    arrange=_arrange,
    success=_hung,
    script=_hang,
    seen=(
        "hang the mug on the rack",
        "hang the red mug up by its handle",
        "put the handle of the mug over the peg",
        "pick up the mug and hang it on the peg of the rack",
    ),
    unseen=("the mug belongs on its hook", "get the mug hanging from the stand"),
    objects=("mug", "rack"),
)
