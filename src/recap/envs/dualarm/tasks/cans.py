"""Tasks with cans."""

from __future__ import annotations

import numpy as np

from recap.envs.dualarm.objects import Body, cylinder, ring
from recap.envs.dualarm.tasks.task import Area, State, Task, scattered
from recap.envs.dualarm.waypoints import Hands, Script, down

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
