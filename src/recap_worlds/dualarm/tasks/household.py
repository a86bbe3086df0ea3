"""The pool's tasks of placing household objects: bodies, and one entry per task."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, Colour, Geom, box, cylinder, ring, tray
from recap_worlds.dualarm.tasks.cans import BOX, can
from recap_worlds.dualarm.tasks.grasps import bottle
from recap_worlds.dualarm.tasks.placements import BLACK, FAR, MIDDLE, NEAR, WHITE, pad, putting
from recap_worlds.dualarm.tasks.skillets import BREAD
from recap_worlds.dualarm.tasks.task import Area, Task

TURNED, FAR_TURNED = Area(NEAR.x, NEAR.y, (-40, 40)), Area(FAR.x, FAR.y, (-40, 40))
MIDDLE_TURNED = Area(MIDDLE.x, MIDDLE.y, (-20, 20))
_INSIDE = (0.075, 0.06, 0.035)
_WICKER, _RED, _BLUE, _GREY = (0.72, 0.52, 0.3), (0.78, 0.2, 0.18), (0.22, 0.42, 0.72), (0.55, 0.57, 0.6)


def worded(thing: str, relation: str, target: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Seen and unseen instructions for placing an object."""
    where = f"{relation} the {target}"
    return (
        (
            f"put the {thing} {where}",
            f"place the {thing} {where}",
            f"pick up the {thing} and set it down {where}",
            f"move the {thing} so that it ends up {where}",
        ),
        (f"the {thing} belongs {where}", f"get the {thing} {where}, and let go of it"),
    )


def cup(name: str, radius: float, height: float, colour: Colour) -> Body:
    """A round vessel with a flat floor."""
    wide = 0.68 * radius
    floor = box((wide, wide, 0.003), (0, 0, 0.003), colour)
    return Body(name, (floor, *ring(radius, height / 2, 0.003, height / 2, colour)), mass=0.08)


def bowl(name: str, colour: Colour) -> Body:
    """A vessel that is wider at the top, so that another one stands in it."""
    floor = box((0.017, 0.017, 0.003), (0, 0, 0.003), colour)
    foot, rim = ring(0.024, 0.009, 0.003, 0.009, colour), ring(0.036, 0.009, 0.003, 0.026, colour)
    return Body(name, (floor, *foot, *rim), mass=0.08)


def disc(name: str, radius: float, height: float, colour: Colour) -> Body:
    """A fixed round object; it collides as a box, which MuJoCo handles better."""
    half = height / 2
    solid = box((0.7 * radius, 0.7 * radius, half), (0, 0, half), colour)
    return Body(name, (cylinder(radius, half, (0, 0, half), colour, solid=False), solid), fixed=True)


BASKET = Body("basket", tray((0.105, 0.085, 0.03), 0.004, _WICKER), mass=0.6)
STAPLER = Body(
    "stapler",
    (
        box((0.055, 0.015, 0.005), (0, 0, 0.005), BLACK),
        box((0.05, 0.013, 0.012), (-0.004, 0, 0.024), _RED),
        box((0.01, 0.013, 0.004), (-0.042, 0, 0.012), BLACK),
    ),
)
MOUSE = Body(
    "mouse",
    (
        box((0.032, 0.02, 0.01), (0, 0, 0.01), BLACK),
        Geom("ellipsoid", (0.032, 0.02, 0.01), (0, 0, 0.02), BLACK, solid=False),
        box((0.006, 0.003, 0.004), (0.018, 0, 0.026), _GREY, solid=False),
    ),
    mass=0.07,
)
PHONE = Body(
    "phone",
    (box((0.05, 0.03, 0.007), (0, 0, 0.007), BLACK), box((0.045, 0.026, 0.001), (0, 0, 0.014), _BLUE)),
    mass=0.1,
)
STAND = Body(
    "stand",
    (
        box((0.04, 0.03, 0.014), (0, 0, 0.014), WHITE),
        box((0.055, 0.036, 0.003), (0, 0, 0.003), _GREY),
    ),
    fixed=True,
)
TOY = Body(
    "toy",
    (
        box((0.024, 0.018, 0.018), (0, 0, 0.018), (0.95, 0.8, 0.15)),
        Geom("sphere", (0.015,), (0.014, 0, 0.045), (0.95, 0.8, 0.15), solid=False),
        box((0.008, 0.006, 0.003), (0.03, 0, 0.044), (0.9, 0.4, 0.1), solid=False),
    ),
    mass=0.06,
)
FAN = Body(
    "fan",
    (
        box((0.032, 0.032, 0.006), (0, 0, 0.006), WHITE),
        box((0.007, 0.007, 0.028), (0, 0, 0.038), WHITE),
        cylinder(0.034, 0.009, (0, 0, 0.09), _BLUE, (90, 0, 0), solid=False),
        box((0.026, 0.01, 0.026), (0, 0, 0.09), _BLUE),
        cylinder(0.01, 0.013, (0, 0, 0.09), WHITE, (90, 0, 0), solid=False),
    ),
    mass=0.12,
)
WEIGHT = Body("weight", (box((0.02, 0.02, 0.025), (0, 0, 0.025), (0.2, 0.55, 0.35)),), mass=0.15)
SCALE = Body(
    "scale",
    (
        box((0.06, 0.05, 0.01), (0, 0, 0.01), _GREY),
        box((0.05, 0.042, 0.003), (0, 0, 0.023), WHITE),
        box((0.02, 0.002, 0.005), (0, -0.051, 0.01), (0.2, 0.8, 0.4), solid=False),
    ),
    fixed=True,
)
SEAL = Body(
    "seal",
    (
        box((0.021, 0.021, 0.014), (0, 0, 0.014), _RED),
        box((0.01, 0.012, 0.022), (0, 0, 0.05), (0.35, 0.2, 0.12)),
    ),
    mass=0.08,
)
CODE = Body(
    "code",
    (
        box((0.032, 0.018, 0.036), (0, 0, 0.036), WHITE),
        *(
            box((0.007, 0.001, 0.007), (x, -0.0185, z + 0.005), BLACK, solid=False)
            for x, z in ((-0.016, 0.014), (-0.016, 0.046), (0.016, 0.046), (0.004, 0.03), (0.016, 0.016))
        ),
    ),
    mass=0.08,
)
MARK = Body("mark", (box((0.044, 0.032, 0.001), (0, 0, 0.001), (0.3, 0.6, 0.35), solid=False),), fixed=True)

PLACEMENTS: tuple[Task, ...] = (
    putting(
        "place_bread_basket",
        BREAD,
        BASKET,
        hold=(0, 0, 0.02),
        at=(0, 0, 0.008),
        within=_INSIDE,
        areas=(FAR_TURNED, MIDDLE_TURNED),
        apart=0.19,
        drop=0.03,
        words=worded("bread", "in", "basket"),
    ),
    putting(
        "move_stapler_pad",
        STAPLER,
        pad(0.07, 0.032, _BLUE),
        hold=(-0.004, 0, 0.026),
        at=(0, 0, 0.004),
        aligned=True,
        areas=(TURNED, TURNED),
        words=worded("stapler", "on", "pad"),
    ),
    putting(
        "place_mouse_pad",
        MOUSE,
        pad(0.06, 0.045, (0.25, 0.55, 0.45), "mat"),
        hold=(0, 0, 0.02),
        at=(0, 0, 0.004),
        aligned=True,
        areas=(TURNED, TURNED),
        words=worded("computer mouse", "on", "mouse mat"),
    ),
    putting(
        "place_phone_stand",
        PHONE,
        STAND,
        hold=(0, 0, 0.019),
        at=(0, 0, 0.028),
        aligned=True,
        areas=(TURNED, TURNED),
        apart=0.16,
        words=worded("phone", "on", "stand"),
    ),
    putting(
        "place_object_basket",
        TOY,
        BASKET,
        hold=(0, 0, 0.025),
        at=(0, 0, 0.008),
        within=_INSIDE,
        areas=(FAR_TURNED, MIDDLE_TURNED),
        apart=0.19,
        drop=0.03,
        words=worded("toy duck", "in", "basket"),
    ),
    putting(
        "place_container_plate",
        cup("container", 0.034, 0.045, _RED),
        disc("plate", 0.07, 0.008, WHITE),
        hold=(0, 0, 0.032),
        at=(0, 0, 0.008),
        words=worded("container", "on", "plate"),
    ),
    putting(
        "place_fan",
        FAN,
        pad(0.05, 0.05, (0.8, 0.45, 0.2)),
        hold=(0, 0, 0.098),
        at=(0, 0, 0.004),
        aligned=True,
        areas=(TURNED, TURNED),
        words=worded("fan", "on", "orange pad"),
    ),
    putting(
        "place_object_scale",
        WEIGHT,
        SCALE,
        hold=(0, 0, 0.035),
        at=(0, 0, 0.026),
        areas=(TURNED, TURNED),
        apart=0.15,
        words=worded("green block", "on", "scale"),
    ),
    putting(
        "place_can_basket",
        can("can", _RED),
        BASKET,
        hold=(0, 0, 0.075),
        at=(0, 0, 0.008),
        within=_INSIDE,
        areas=(FAR, MIDDLE_TURNED),
        apart=0.19,
        words=worded("can", "in", "basket"),
    ),
    putting(
        "stack_bowls_two",
        bowl("bowl", _BLUE),
        bowl("lower_bowl", WHITE),
        hold=(0, 0, 0.028),
        at=(0, 0, 0.018),
        within=(0.015, 0.015, 0.01),
        words=worded("blue bowl", "in", "white bowl"),
    ),
    putting(
        "stamp_seal",
        SEAL,
        pad(0.04, 0.03, (0.9, 0.88, 0.75), "paper"),
        hold=(0, 0, 0.054),
        at=(0, 0, 0.004),
        within=(0.015, 0.015, 0.012),
        areas=(TURNED, TURNED),
        words=worded("seal", "on", "sheet of paper"),
    ),
    putting(
        "place_empty_cup",
        cup("cup", 0.03, 0.075, _BLUE),
        disc("coaster", 0.05, 0.006, (0.6, 0.4, 0.22)),
        hold=(0, 0, 0.055),
        at=(0, 0, 0.006),
        words=worded("empty cup", "on", "coaster"),
    ),
    putting(
        "rotate_qrcode",
        CODE,
        MARK,
        hold=(0, 0, 0.052),
        at=(0, 0, 0),
        aligned=True,
        areas=(Area(FAR.x, FAR.y, (30, 75)), Area((0.06, 0.2), (-0.2, 0.2))),
        apart=0.12,
        words=(
            (
                "turn the code so that it faces the front",
                "rotate the block with the code and set it down on its mark",
                "turn the code block straight",
                "pick up the code and put it down facing the operator",
            ),
            ("make the code readable from the front", "the code should look towards the viewer"),
        ),
    ),
)

PLACE_BOTTLE_PLASTICBOX = putting(
    "place_bottle_plasticbox",
    bottle("bottle", (0.2, 0.55, 0.35)),
    BOX,
    hold=(0, 0, 0.09),
    at=(0, 0, 0.008),
    within=(0.085, 0.055, 0.035),
    areas=(FAR, MIDDLE_TURNED),
    apart=0.19,
    drop=0.02,
    words=worded("bottle", "in", "plastic box"),
)
