"""Tasks of the pool in which each arm puts one of two objects in the same place."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, box, cylinder, tray
from recap_worlds.dualarm.tasks.placements import bringing_to
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, grip

_SIDE = Area((0.18, 0.33), (-0.18, 0.18), (-30, 30))
_OTHER_SIDE = Area((-0.33, -0.18), _SIDE.y, _SIDE.yaw)


def pairing(
    key: str,
    things: tuple[Body, Body],
    target: Body,
    *,
    height: float,
    room: tuple[float, float],
    drop: float,
    words: tuple[tuple[str, ...], tuple[str, ...]],
) -> Task:
    """Put two objects, one from each side of the table, next to each other on a target in the middle.

    Args:
        key: of the task.
        things: the two objects.
        target: objects are placed 0.05 m left and right of its middle.
        height: metres above an object's base at which it is gripped.
        room: half sizes of the target's area that counts as success.
        drop: metres above the target's base at which objects are released.
        words: seen and unseen instructions.
    """
    first, second = (thing.name for thing in things)

    def both_there(state: State) -> bool:
        def there(name: str) -> bool:
            x, y, z = state.offset(name, target.name)
            return abs(x) < room[0] and abs(y) < room[1] and z < 0.03 and state.released(name)

        return there(first) and there(second)

    def script(hands: Hands) -> Script:
        for name in (first, second):
            side = hands.side_of(name)
            spot = (-0.05 if side == "left" else 0.05, 0.0, drop)
            yield from hands.pick(side, grip(hands.objects[name], (0, 0, height)), lift=0.12)
            yield hands.wait(0.15)
            yield from hands.place(side, bringing_to(hands, side, name, target.name, spot, aligned=True))
            yield hands.home(side)

    return Task(
        key=key,
        bodies=(*things, target),
        arrange=scattered(
            {first: _OTHER_SIDE, second: _SIDE, target.name: Area((-0.02, 0.02), (-0.12, 0.15), (-15, 15))},
            apart=0.18,
            mirrored=True,
        ),
        success=both_there,
        script=script,
        seen=words[0],
        unseen=words[1],
        objects=(first, second, target.name),
        max_steps=600,
    )


_BUN, _SALAD, _SOLE = (0.85, 0.6, 0.3), (0.4, 0.65, 0.25), (0.92, 0.92, 0.9)
BURGER = Body(
    "burger",
    (
        box((0.024, 0.024, 0.02), (0, 0, 0.02), _BUN),
        cylinder(0.027, 0.004, (0, 0, 0.02), _SALAD, solid=False),
        cylinder(0.0255, 0.003, (0, 0, 0.012), (0.4, 0.2, 0.12), solid=False),
    ),
    mass=0.08,
)
FRIES = Body(
    "fries",
    (
        box((0.022, 0.014, 0.022), (0, 0, 0.022), (0.8, 0.15, 0.15)),
        *(box((0.003, 0.003, 0.01), (x, 0, 0.05), (0.95, 0.8, 0.3), solid=False) for x in (-0.014, 0, 0.014)),
    ),
    mass=0.06,
)
SERVING_TRAY = Body("tray", tray((0.115, 0.08, 0.01), 0.004, (0.3, 0.32, 0.36)), mass=0.6)
SHOE_BOX = Body("shoebox", tray((0.115, 0.09, 0.025), 0.004, (0.55, 0.42, 0.3)), mass=0.6)


def shoe(name: str) -> Body:
    """A child's shoe."""
    return Body(
        name,
        (
            box((0.045, 0.018, 0.005), (0, 0, 0.005), _SOLE),
            box((0.04, 0.016, 0.01), (0, 0, 0.02), (0.25, 0.35, 0.75)),
            box((0.018, 0.015, 0.008), (-0.022, 0, 0.038), (0.25, 0.35, 0.75)),
        ),
        mass=0.08,
    )


PAIRS: tuple[Task, ...] = (
    pairing(
        "place_burger_fries",
        (BURGER, FRIES),
        SERVING_TRAY,
        height=0.028,
        room=(0.105, 0.07),
        drop=0.012,
        words=(
            (
                "put the burger and the fries on the tray",
                "place the burger and the chips on the tray, one with each arm",
                "serve the burger and the fries on the tray",
                "both the burger and the fries go on the tray",
            ),
            ("get the meal ready on the tray", "the tray should hold a burger and fries"),
        ),
    ),
    pairing(
        "place_dual_shoes",
        (shoe("left_shoe"), shoe("right_shoe")),
        SHOE_BOX,
        height=0.024,
        room=(0.105, 0.08),
        drop=0.02,
        words=(
            (
                "put both shoes in the shoe box",
                "place the two shoes in the box",
                "each arm puts its shoe into the box",
                "pack the pair of shoes in the shoe box",
            ),
            ("the shoes belong in their box", "box up the two blue shoes"),
        ),
    ),
)
