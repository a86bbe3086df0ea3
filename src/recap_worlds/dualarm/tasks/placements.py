"""Tasks in which one arm picks up an object and places it: variants of one script."""

from __future__ import annotations

import math

import numpy as np

from recap.types import F64
from recap_worlds.dualarm.objects import Body, Colour, box, cylinder
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, Writer, grip, heading, point, standing

NEAR, FAR = Area((0.05, 0.33), (-0.2, 0.2)), Area((0.17, 0.33), (-0.2, 0.2))
MIDDLE = Area((0.0, 0.06), (-0.12, 0.16))
WHITE, BLACK = (0.93, 0.93, 0.92), (0.14, 0.14, 0.16)


def pad(half_x: float, half_y: float, colour: Colour, name: str = "pad") -> Body:
    """A flat pad that lies on the table."""
    return Body(name, (box((half_x, half_y, 0.002), (0, 0, 0.002), colour),), fixed=True)


def putting(
    key: str,
    thing: Body,
    target: Body,
    *,
    hold: tuple[float, float, float],
    at: tuple[float, float, float],
    words: tuple[tuple[str, ...], tuple[str, ...]],
    within: tuple[float, float, float] = (0.03, 0.03, 0.012),
    aligned: bool = False,
    areas: tuple[Area, Area] = (NEAR, NEAR),
    apart: float = 0.14,
    above: float = 0.08,
    drop: float = 0.003,
) -> Task:
    """Pick up an object at `hold` and place it `at` a point of the target, in the target's frame.

    Args:
        key: of the task.
        thing: the object that is picked up.
        target: the object on which it is placed.
        hold: grip point in the object's frame; the fingers open along its y.
        at: final position of the object's base, in the target's frame.
        words: seen and unseen instructions.
        within: tolerance in metres.
        aligned: whether the object must have the target's heading.
        areas: of the object and of the target.
        apart: initial distance between the two, metres.
        above: metres above the target at which the object is carried.
        drop: metres above its place at which it is released.
    """

    def there(state: State) -> bool:
        away = np.abs(state.offset(thing.name, target.name) - at)
        turned = heading(state.objects[thing.name]) - heading(state.objects[target.name])
        straight = not aligned or math.cos(math.radians(turned)) > 0.94
        stands = state.upright(thing.name) > 0.9
        return bool((away < within).all() and straight and stands and state.released(thing.name))

    return Task(
        key=key,
        bodies=(thing, target),
        arrange=scattered({thing.name: areas[0], target.name: areas[1]}, apart=apart, mirrored=True),
        success=there,
        script=_put(thing.name, target.name, hold, at, above, drop, aligned=aligned),
        seen=words[0],
        unseen=words[1],
        objects=(thing.name, target.name),
    )


def _put(
    thing: str,
    target: str,
    hold: tuple[float, float, float],
    at: tuple[float, float, float],
    above: float,
    drop: float,
    *,
    aligned: bool,
) -> Writer:
    def script(hands: Hands) -> Script:
        side = hands.side_of(thing)
        yield from hands.pick(side, grip(hands.objects[thing], hold), lift=above + at[2])
        yield hands.wait(0.15)
        pose = bringing_to(hands, side, thing, target, (*at[:2], at[2] + drop), aligned=aligned)
        yield from hands.place(side, pose, above)

    return script


def bringing_to(
    hands: Hands, side: str, thing: str, target: str, at: tuple[float, float, float], *, aligned: bool
) -> F64:
    """The tool pose that brings the held object to a point of a target, upright."""
    spot = point(hands.objects[target], *at)
    yaw = heading(hands.objects[target if aligned else thing])
    return hands.bringing(side, thing, standing(spot[0], spot[1], spot[2], yaw))


PILL_BOTTLE = Body(
    "pillbottle",
    (
        cylinder(0.022, 0.033, (0, 0, 0.033), (0.93, 0.55, 0.12)),
        cylinder(0.0225, 0.018, (0, 0, 0.034), WHITE, solid=False),
        cylinder(0.019, 0.01, (0, 0, 0.076), WHITE),
    ),
    mass=0.08,
)

MOVE_PILLBOTTLE_PAD = putting(
    "move_pillbottle_pad",
    PILL_BOTTLE,
    pad(0.045, 0.045, (0.2, 0.4, 0.75)),
    hold=(0, 0, 0.05),
    at=(0, 0, 0.004),
    words=(
        (
            "move the pill bottle onto the pad",
            "put the pill bottle on the blue pad",
            "pick up the pill bottle and stand it on the pad",
            "place the orange bottle of pills on the pad",
            "set the pill bottle down in the middle of the pad",
        ),
        ("the medicine bottle belongs on the blue square", "bring the pills over to the pad"),
    ),
)
