"""Tasks with a pot that is lifted by two handles."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, box, cylinder, ring
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, grip, in_step, together

_STEEL, _HANDLE = (0.62, 0.64, 0.68), (0.12, 0.12, 0.14)
HANDLE_X, HANDLE_Z = 0.135, 0.075

TWO_HANDLED_POT = Body(
    "pot",
    (
        cylinder(0.09, 0.005, (0, 0, 0.005), _STEEL),
        *ring(0.09, 0.045, 0.004, 0.045, _STEEL),
        box((0.028, 0.009, 0.007), (HANDLE_X - 0.01, 0, HANDLE_Z), _HANDLE),
        box((0.028, 0.009, 0.007), (0.01 - HANDLE_X, 0, HANDLE_Z), _HANDLE),
    ),
    mass=0.35,
)


def _lifted(state: State) -> bool:
    level = state.upright("pot") > 0.93
    return state.raised("pot") > 0.08 and level and state.held("pot", "left", "right")


def _lift(hands: Hands) -> Script:
    pot = hands.objects["pot"]
    grips = {
        side: grip(pot, (sign * HANDLE_X, 0, HANDLE_Z + 0.002)) for side, sign in (("left", -1), ("right", 1))
    }
    yield from in_step(*(hands.pick(side, pose, lift=0.0, back=0.1) for side, pose in grips.items()))
    yield together(*(hands.lift(side, 0.13, speed=0.12) for side in grips))
    yield hands.wait(1.0)


LIFT_POT = Task(
    key="lift_pot",
    bodies=(TWO_HANDLED_POT,),
    arrange=scattered({"pot": Area((-0.06, 0.06), (-0.16, 0.16), (-35, 35))}),
    success=_lifted,
    script=_lift,
    seen=(
        "lift the pot with both arms",
        "take the pot by its two handles and lift it",
        "pick the pot up using both hands",
        "raise the cooking pot off the table",
    ),
    unseen=("hoist the saucepan with two arms", "grab both handles and bring the pot up"),
    objects=("pot",),
)
