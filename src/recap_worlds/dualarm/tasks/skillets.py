"""A task in which one arm holds a pan that the other one fills."""

from __future__ import annotations

import numpy as np

from recap.types import F64
from recap_worlds.dualarm.objects import Body, box, cylinder, ring
from recap_worlds.dualarm.tasks.arrangements import in_mirror
from recap_worlds.dualarm.tasks.task import Area, State, Task
from recap_worlds.dualarm.waypoints import Hands, Script, down, grip, heading, in_step, other, point

_IRON, _HANDLE = (0.2, 0.2, 0.22), (0.45, 0.2, 0.12)
PAN_RADIUS, HANDLE_X, HANDLE_Z = 0.072, 0.115, 0.03

SKILLET = Body(
    "skillet",
    (
        cylinder(PAN_RADIUS, 0.004, (0, 0, 0.004), _IRON, solid=False),
        *(box((0.05, 0.05, 0.004), (0, 0, 0.004), _IRON, (0, 0, turn)) for turn in (0, 45)),
        *ring(PAN_RADIUS, 0.014, 0.003, 0.014, _IRON),
        box((0.045, 0.009, 0.007), (0.115, 0, HANDLE_Z), _HANDLE),
        box((0.008, 0.009, 0.012), (PAN_RADIUS, 0, 0.022), _IRON),
    ),
    mass=0.12,
)
BREAD = Body(
    "bread",
    (
        box((0.03, 0.02, 0.014), (0, 0, 0.014), (0.8, 0.55, 0.28)),
        box((0.026, 0.016, 0.002), (0, 0, 0.0275), (0.92, 0.75, 0.5), solid=False),
    ),
    mass=0.05,
)


def _holder(skillet: F64) -> str:
    return "right" if point(skillet, HANDLE_X, 0)[0] > skillet[0] else "left"


def _in_skillet(state: State) -> bool:
    x, y, z = state.offset("bread", "skillet")
    inside = np.hypot(x, y) < PAN_RADIUS and 0 < z < 0.02 and state.released("bread")
    held = state.held("skillet", _holder(state.start["skillet"])) and state.raised("skillet") > 0.015
    return bool(inside and held and state.upright("skillet") > 0.9)


def _fill_skillet(hands: Hands) -> Script:
    skillet, bread = hands.objects["skillet"], hands.objects["bread"]
    holder = _holder(skillet)
    cook = other(holder)
    yield from in_step(
        hands.pick(holder, grip(skillet, (HANDLE_X, 0, HANDLE_Z)), lift=0.045),
        hands.pick(cook, grip(bread, (0, 0, 0.02)), lift=0.14),
    )
    yield hands.wait(0.3)
    spot = point(hands.objects["skillet"], 0, 0, 0.035)
    yield from hands.place(cook, down((spot[0], spot[1], spot[2]), heading(bread)), above=0.08)
    yield hands.wait(0.5)


PLACE_BREAD_SKILLET = Task(
    key="place_bread_skillet",
    bodies=(BREAD, SKILLET),
    arrange=in_mirror(
        {
            "skillet": Area((0.0, 0.07), (-0.16, 0.16), (-30, 30)),
            "bread": Area((-0.33, -0.14), (-0.2, 0.2), (-40, 40)),
        },
        apart=0.17,
    ),
    success=_in_skillet,
    script=_fill_skillet,
    seen=(
        "hold the skillet and put the bread in it",
        "one arm lifts the skillet by its handle, the other one puts the bread in",
        "place the bread in the skillet",
        "pick up the pan and lay the slice of bread into it",
    ),
    unseen=("the loaf goes into the frying pan", "get the bread in the pan while the other arm holds it up"),
    objects=("bread", "skillet"),
    max_steps=500,
)
