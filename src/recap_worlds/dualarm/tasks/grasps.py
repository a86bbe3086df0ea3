"""Tasks in which both arms grasp and lift."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, cylinder
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, down, grip, in_step, together

_WOOD, _DARK_WOOD = (0.85, 0.62, 0.36), (0.55, 0.33, 0.16)
_ALONG = (0.0, 90.0, 0.0)
ROLLER_GRIP, ROLLER_RADIUS = 0.125, 0.024

ROLLER = Body(
    "roller",
    (
        cylinder(ROLLER_RADIUS, 0.09, (0, 0, ROLLER_RADIUS), _WOOD, _ALONG),
        cylinder(0.012, 0.15, (0, 0, ROLLER_RADIUS), _DARK_WOOD, _ALONG),
    ),
    mass=0.3,
)


def _roller_lifted(state: State) -> bool:
    return state.raised("roller") > 0.08 and state.held("roller", "left", "right")


def _grab_roller(hands: Hands) -> Script:
    roller = hands.objects["roller"]
    grips = {
        side: grip(roller, (x, 0, ROLLER_RADIUS))
        for side, x in (("left", -ROLLER_GRIP), ("right", ROLLER_GRIP))
    }
    yield from in_step(*(hands.pick(side, pose, lift=0.0) for side, pose in grips.items()))
    yield together(*(hands.lift(side, 0.13, speed=0.15) for side in grips))
    yield hands.wait(1.0)


GRAB_ROLLER = Task(
    key="grab_roller",
    bodies=(ROLLER,),
    arrange=scattered({"roller": Area((-0.06, 0.06), (-0.18, 0.18), (-35, 35))}),
    success=_roller_lifted,
    script=_grab_roller,
    seen=(
        "grab the roller with both arms and lift it",
        "pick up the rolling pin by its two ends",
        "lift the wooden roller using both hands",
        "take hold of the roller and raise it",
    ),
    unseen=("bring the rolling pin up with two arms", "hold the wooden roller above the table"),
    objects=("roller",),
)


def bottle(name: str, colour: tuple[float, float, float]) -> Body:
    """A small drinking bottle with a cap."""
    return Body(
        name,
        (
            cylinder(0.024, 0.06, (0, 0, 0.06), colour),
            cylinder(0.013, 0.012, (0, 0, 0.132), colour),
            cylinder(0.014, 0.006, (0, 0, 0.148), (0.95, 0.95, 0.95), solid=False),
        ),
        mass=0.12,
    )


def _both_up(state: State) -> bool:
    return all(
        state.raised(f"{side}_bottle") > 0.08 and state.held(f"{side}_bottle", side)
        for side in ("left", "right")
    )


def _pick_bottles(hands: Hands) -> Script:
    spots = {side: hands.objects[f"{side}_bottle"] for side in ("left", "right")}
    yield from in_step(
        *(hands.pick(side, down((p[0], p[1], 0.102)), lift=0.13, back=0.1) for side, p in spots.items())
    )
    yield hands.wait(1.0)


PICK_DUAL_BOTTLES = Task(
    key="pick_dual_bottles",
    bodies=(bottle("left_bottle", (0.2, 0.45, 0.85)), bottle("right_bottle", (0.9, 0.6, 0.15))),
    arrange=scattered(
        {
            "left_bottle": Area((-0.34, -0.1), (-0.2, 0.2)),
            "right_bottle": Area((0.1, 0.34), (-0.2, 0.2)),
        }
    ),
    success=_both_up,
    script=_pick_bottles,
    seen=(
        "pick up both bottles, one with each arm",
        "lift the two bottles at once",
        "take a bottle in each hand and raise them",
        "each arm picks up the bottle on its side",
    ),
    unseen=("get both drinks off the table", "hold the blue and the orange bottle up"),
    objects=("left_bottle", "right_bottle"),
)
