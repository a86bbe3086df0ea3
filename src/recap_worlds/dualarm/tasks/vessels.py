"""Tasks of the pool in which a held object is turned or shaken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from recap.geometry3 import quaternion_to_matrix
from recap_worlds.dualarm.objects import Body, Colour, Geom, Part, Place, box, cylinder, tray
from recap_worlds.dualarm.tasks.arrangements import in_mirror
from recap_worlds.dualarm.tasks.grasps import bottle
from recap_worlds.dualarm.tasks.household import cup
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Move, Script, down, grip, shifted

_GREEN = (0.2, 0.55, 0.3)


def prism(radius: float, half: float, at: tuple[float, float, float], colour: Colour) -> tuple[Geom, ...]:
    """An octagonal bar along x: nearly round, but it does not roll."""
    return tuple(box((half, radius, 0.414 * radius), at, colour, (turn, 0, 0)) for turn in (0, 45, 90, 135))


LYING_BOTTLE = Body(
    "bottle",
    (
        *prism(0.022, 0.055, (0, 0, 0.022), _GREEN),
        cylinder(0.011, 0.014, (0.068, 0, 0.022), _GREEN, (0, 90, 0), solid=False),
        cylinder(0.012, 0.006, (0.086, 0, 0.022), (0.95, 0.95, 0.95), (0, 90, 0), solid=False),
    ),
    mass=0.1,
)


def _stood_up(state: State) -> bool:
    neck_up = quaternion_to_matrix(state.objects["bottle"][3:])[2, 0] > 0.9
    return bool(neck_up and state.raised("bottle") > 0.08 and state.held("bottle"))


def _stand_up(hands: Hands) -> Script:
    side, lying = hands.side_of("bottle"), hands.objects["bottle"]
    yield from hands.pick(side, grip(lying, (0, 0, 0.022)), lift=0.12)
    free = shifted(hands.poses[side], z=0.1)
    free[0] = -0.03 if side == "left" else 0.03
    yield hands.carry(side, free)
    yield hands.turn(side, -90, quaternion_to_matrix(lying[3:])[:, 1])
    yield hands.wait(1.0)


ADJUST_BOTTLE = Task(
    key="adjust_bottle",
    bodies=(LYING_BOTTLE,),
    arrange=in_mirror({"bottle": Area((0.1, 0.3), (-0.18, 0.18), (150, 210))}),
    success=_stood_up,
    script=_stand_up,
    seen=(
        "pick up the bottle and hold it upright",
        "turn the bottle so that its neck points up",
        "lift the lying bottle and stand it up in the air",
        "adjust the bottle until it is upright",
    ),
    unseen=("bring the green bottle into an upright position", "hold the bottle neck up"),
    objects=("bottle",),
)

SHAKEN_BOTTLE = replace(
    bottle("bottle", (0.75, 0.3, 0.6)),
    parts=(
        Part(
            "bead",  # stays in the middle when carried; moves to an end when shaken
            (Geom("sphere", (0.006,), (0, 0, 0), (1.0, 1.0, 1.0)),),
            at=(0, 0, 0.06),
            joint="slide",
            axis=(0, 1, 0),
            limits=(-0.015, 0.015),
            mass=0.01,
            damping=0.0,
            stiffness=-6.0,
            friction=0.032,
        ),
    ),
)


def _shaken(state: State) -> bool:
    return abs(state.joints["bead"]) > 0.008 and state.raised("bottle") > 0.05 and state.held("bottle")


def _shake(hands: Hands) -> Script:
    side, at = hands.side_of("bottle"), hands.objects["bottle"]
    yield from hands.pick(side, down((at[0], at[1], 0.102)), lift=0.13, back=0.1)
    held = hands.poses[side]
    for _ in range(6):
        for y in (0.035, -0.035):
            yield Move({side: shifted(held, y=y)}, speed=0.35)


SHAKE_BOTTLE = Task(
    key="shake_bottle",
    bodies=(SHAKEN_BOTTLE,),
    arrange=scattered({"bottle": Area((0.06, 0.33), (-0.2, 0.2))}, mirrored=True),
    success=_shaken,
    script=_shake,
    seen=(
        "shake the bottle",
        "pick up the bottle and shake it",
        "lift the bottle and move it quickly to and fro",
        "give the bottle a good shake",
    ),
    unseen=("mix what is in the bottle", "agitate the pink bottle in the air"),
    objects=("bottle",),
)

_CRUMBS = ("crumb_1", "crumb_2")


def _slippery(body: Body) -> Body:
    return replace(body, geoms=tuple(replace(geom, slippery=True) for geom in body.geoms))


BIN = _slippery(cup("bin", 0.03, 0.06, (0.3, 0.5, 0.75)))
BIG_BIN = Body("bigbin", tray((0.1, 0.09, 0.045), 0.004, (0.35, 0.37, 0.4)), fixed=True)
CRUMBS = tuple(
    _slippery(Body(name, (box((0.008, 0.008, 0.008), (0, 0, 0.008), (0.95, 0.85, 0.3)),), mass=0.01))
    for name in _CRUMBS
)


def _dumped(state: State) -> bool:
    def inside(name: str) -> bool:
        x, y, z = state.offset(name, "bigbin")
        return bool(abs(x) < 0.1 and abs(y) < 0.09 and z < 0.06)

    return all(inside(name) for name in _CRUMBS)


def _dump(hands: Hands) -> Script:
    side, bigbin = hands.side_of("bin"), hands.objects["bigbin"]
    inwards = 1.0 if side == "left" else -1.0
    yield from hands.pick(side, grip(hands.objects["bin"], (0, 0, 0.045)), lift=0.16)
    yield hands.carry(side, down((bigbin[0] + 0.01 * inwards, bigbin[1], 0.24)))
    yield hands.turn(side, -125 * inwards, np.array([0.0, 1.0, 0.0]))
    yield hands.wait(1.5)


_bins = scattered({"bin": Area((0.19, 0.33), (-0.18, 0.18)), "bigbin": Area((-0.02, 0.04), (-0.1, 0.14))},
                  apart=0.2, mirrored=True)  # fmt: skip


def _filled_bin(rng: np.random.Generator) -> Mapping[str, Place]:
    places = dict(_bins(rng))
    for name, shift in zip(_CRUMBS, (-0.01, 0.01), strict=True):
        places[name] = Place(places["bin"].x + shift, places["bin"].y, z=0.008)
    return places


DUMP_BIN_BIGBIN = Task(
    key="dump_bin_bigbin",
    bodies=(BIN, BIG_BIN, *CRUMBS),
    arrange=_filled_bin,
    success=_dumped,
    script=_dump,
    seen=(
        "dump the small bin into the big bin",
        "empty the small bin into the large one",
        "pick up the bin and pour what is in it into the big bin",
        "tip the litter from the small bin into the big bin",
    ),
    unseen=("pour the rubbish over into the large container", "the big bin should get all the litter"),
    objects=("bin", "bigbin"),
)
