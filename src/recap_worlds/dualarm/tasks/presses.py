"""Tasks in which one arm presses a movable part: variants of one script."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, Part, box, cylinder
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, down, point

FINGERTIP = 0.015  # m that the fingers extend beyond the tool frame
EVERYWHERE = Area((0.05, 0.31), (-0.2, 0.22), (-40, 40))


def pressing(
    key: str,
    body: Body,
    *,
    at: tuple[float, float, float],
    by: float,
    enough: float,
    words: tuple[tuple[str, ...], tuple[str, ...]],
    area: Area = EVERYWHERE,
) -> Task:
    """Press the movable part of a body from above.

    Args:
        key: of the task.
        body: the object; its first part is pressed.
        at: the pressed point, in the body's frame.
        by: metres to push.
        enough: joint position that counts as success, degrees or metres.
        words: seen and unseen instructions.
        area: area of the object; mirrored half the time.
    """
    part = body.parts[0].name

    def pressed(state: State) -> bool:
        by_closed = any(state.grips[side] < 0.1 for side in state.touching[part])  # rarely closed by accident
        return state.joints[part] > enough and by_closed

    def script(hands: Hands) -> Script:
        spot = point(hands.objects[body.name], *at)
        yield from hands.press(hands.side_of(body.name), down((spot[0], spot[1], spot[2] + FINGERTIP)), by)

    return Task(
        key=key,
        bodies=(body,),
        arrange=scattered({body.name: area}, mirrored=True),
        success=pressed,
        script=script,
        seen=words[0],
        unseen=words[1],
        objects=(body.name,),
    )


_BRASS, _WOOD = (0.85, 0.68, 0.25), (0.4, 0.24, 0.14)
BELL = Body(
    "bell",
    (
        cylinder(0.042, 0.006, (0, 0, 0.006), _WOOD, solid=False),
        *(box((0.029, 0.029, 0.006), (0, 0, 0.006), _WOOD, (0, 0, turn)) for turn in (0, 45)),
        cylinder(0.036, 0.01, (0, 0, 0.022), _BRASS),
        cylinder(0.026, 0.006, (0, 0, 0.038), _BRASS),
    ),
    mass=0.6,
    parts=(
        Part(
            "button",
            (cylinder(0.009, 0.01, (0, 0, 0.008), (0.75, 0.12, 0.12)),),
            at=(0, 0, 0.044),
            joint="slide",
            axis=(0, 0, -1),
            limits=(0, 0.012),
            mass=0.02,
            damping=2.0,
            stiffness=250.0,
        ),
    ),
)

CLICK_BELL = pressing(
    "click_bell",
    BELL,
    at=(0, 0, 0.062),
    by=0.014,
    enough=0.007,
    words=(
        (
            "click the bell",
            "press the button on top of the bell",
            "ring the bell on the table",
            "push the red button of the bell down",
        ),
        ("give the service bell a ding", "make the desk bell sound"),
    ),
)

_RED, _BLACK, _WHITE = (0.78, 0.2, 0.18), (0.14, 0.14, 0.16), (0.93, 0.93, 0.92)
ALARM_CLOCK = Body(
    "alarmclock",
    (
        box((0.04, 0.022, 0.03), (0, 0, 0.03), (0.2, 0.5, 0.5)),
        box((0.032, 0.001, 0.02), (0, -0.0225, 0.032), _WHITE, solid=False),
        box((0.001, 0.0015, 0.012), (0, -0.0225, 0.04), _BLACK, solid=False),
    ),
    mass=0.6,
    parts=(
        Part(
            "snooze",
            (box((0.014, 0.01, 0.008), (0, 0, 0.006), _RED),),
            at=(0, 0, 0.06),
            joint="slide",
            axis=(0, 0, -1),
            limits=(0, 0.01),
            mass=0.02,
            damping=2.0,
            stiffness=250.0,
        ),
    ),
)
STAPLER = Body(
    "stapler",
    (box((0.06, 0.018, 0.006), (0, 0, 0.006), _BLACK), box((0.008, 0.012, 0.014), (-0.05, 0, 0.02), _BLACK)),
    mass=0.5,
    parts=(
        Part(
            "arm",
            (box((0.052, 0.013, 0.007), (0.05, 0, 0.008), _RED, (0, -12, 0)),),
            at=(-0.05, 0, 0.034),
            joint="hinge",
            axis=(0, 1, 0),
            limits=(0, 15),
            mass=0.03,
            damping=0.02,
            stiffness=1.0,
        ),
    ),
)
SWITCH = Body(
    "switch",
    (
        box((0.04, 0.028, 0.012), (0, 0, 0.012), _WHITE),
        box((0.006, 0.018, 0.006), (0, 0, 0.026), (0.6, 0.6, 0.62)),
    ),
    fixed=True,
    parts=(
        Part(
            "rocker",
            (box((0.03, 0.016, 0.004), (0, 0, 0.008), (0.2, 0.45, 0.8), (0, -16, 0)),),
            at=(0, 0, 0.032),
            joint="hinge",
            axis=(0, 1, 0),
            limits=(0, 30),
            mass=0.02,
            damping=0.01,
            friction=0.02,
        ),
    ),
)

PRESSES: tuple[Task, ...] = (
    pressing(
        "press_stapler",
        STAPLER,
        at=(0.035, 0, 0.065),
        by=0.024,
        enough=8.0,
        words=(
            (
                "press the stapler",
                "push the stapler down",
                "staple with the red stapler",
                "press its red arm down",
            ),
            ("use the stapler once", "make the stapler click"),
        ),
    ),
    pressing(
        "click_alarmclock",
        ALARM_CLOCK,
        at=(0, 0, 0.074),
        by=0.012,
        enough=0.006,
        words=(
            (
                "click the alarm clock",
                "press the button on top of the alarm clock",
                "switch the alarm off",
                "push the red button of the clock down",
            ),
            ("silence the clock", "make the alarm stop ringing"),
        ),
    ),
    pressing(
        "turn_switch",
        SWITCH,
        at=(0.022, 0, 0.05),
        by=0.016,
        enough=20.0,
        words=(
            (
                "turn the switch",
                "flip the switch over",
                "push the blue rocker down",
                "press the raised side of the switch",
            ),
            ("toggle the switch on the table", "turn it on at the switch"),
        ),
    ),
)
