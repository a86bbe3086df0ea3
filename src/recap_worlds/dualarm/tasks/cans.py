"""Tasks with cans."""

from __future__ import annotations

import numpy as np

from recap_worlds.dualarm.objects import Body, cylinder, ring, tray
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, down, grip

CAN_RADIUS, CAN_HEIGHT = 0.028, 0.11
BESIDE = 0.15  # m between the axes of can and pot


def can(name: str, colour: tuple[float, float, float]) -> Body:
    """A drink can."""
    return Body(
        name,
        (
            cylinder(CAN_RADIUS, CAN_HEIGHT / 2, (0, 0, CAN_HEIGHT / 2), colour),
            cylinder(0.024, 0.003, (0, 0, CAN_HEIGHT), (0.8, 0.8, 0.82), solid=False),
        ),
        mass=0.12,
    )


KITCHEN_POT = Body(
    "pot",
    (
        cylinder(0.075, 0.005, (0, 0, 0.005), (0.35, 0.36, 0.4)),
        *ring(0.075, 0.045, 0.004, 0.045, (0.35, 0.36, 0.4)),
    ),
    mass=0.9,
)


def _beside(state: State) -> bool:
    side = np.sign(state.start["can"][0] - state.start["pot"][0])
    x, y = (state.objects["can"] - state.objects["pot"])[:2]
    near = abs(x - side * BESIDE) < 0.035 and abs(y) < 0.035
    standing = state.upright("can") > 0.95 and abs(state.raised("can")) < 0.01
    return bool(near and standing and state.released("can"))


def _move_can(hands: Hands) -> Script:
    side, can, pot = hands.side_of("can"), hands.objects["can"], hands.objects["pot"]
    sign = 1 if can[0] > pot[0] else -1
    yield from hands.pick(side, down((can[0], can[1], 0.075)), lift=0.08)
    yield from hands.place(side, down((pot[0] + sign * BESIDE, pot[1], 0.077)), above=0.06)


MOVE_CAN_POT = Task(
    key="move_can_pot",
    bodies=(can("can", (0.8, 0.15, 0.15)), KITCHEN_POT),
    arrange=scattered(
        {"can": Area((0.16, 0.34), (-0.2, 0.2)), "pot": Area((-0.03, 0.07), (-0.12, 0.16))},
        apart=0.19,
        mirrored=True,
    ),
    success=_beside,
    script=_move_can,
    seen=(
        "move the can beside the pot",
        "put the can next to the pot",
        "place the red can at the side of the pot",
        "set the can down close to the pot",
        "pick up the can and stand it beside the pot",
    ),
    unseen=("bring the drink can over to the pot", "the can belongs right next to the cooking pot"),
    objects=("can", "pot"),
)

BOX = Body("box", tray((0.115, 0.085, 0.035), 0.004, (0.25, 0.5, 0.75)), mass=0.6)


def _in_box(state: State) -> bool:
    def inside(name: str) -> bool:
        x, y, z = state.offset(name, "box")
        return abs(x) < 0.115 and abs(y) < 0.085 and z < 0.06 and state.released(name)

    return inside("left_can") and inside("right_can")


def _fill_box(hands: Hands) -> Script:
    for side, x in (("left", -0.05), ("right", 0.05)):
        can, box = hands.objects[f"{side}_can"], hands.objects["box"]
        yield from hands.pick(side, down((can[0], can[1], 0.075)), lift=0.12)
        yield from hands.place(side, grip(box, (x, 0, 0.09)), above=0.09)
        yield hands.home(side)


PLACE_CANS_PLASTICBOX = Task(
    key="place_cans_plasticbox",
    bodies=(can("left_can", (0.8, 0.15, 0.15)), can("right_can", (0.15, 0.55, 0.25)), BOX),
    arrange=scattered(
        {
            "left_can": Area((-0.34, -0.17), (-0.2, 0.2)),
            "right_can": Area((0.17, 0.34), (-0.2, 0.2)),
            "box": Area((-0.02, 0.02), (-0.12, 0.15), (-15, 15)),
        },
        apart=0.18,
    ),
    success=_in_box,
    script=_fill_box,
    seen=(
        "put both cans into the plastic box",
        "place the two cans in the box",
        "each arm puts its can into the blue box",
        "collect the cans in the plastic box",
    ),
    unseen=("drop the two drink cans into the container", "the cans go in the blue plastic bin"),
    objects=("left_can", "right_can", "box"),
    max_steps=600,
)
