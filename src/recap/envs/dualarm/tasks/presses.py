"""Tasks in which one arm presses something that gives: a table of variants of one script."""

from __future__ import annotations

from recap.envs.dualarm.objects import Body, Part, cylinder
from recap.envs.dualarm.tasks.task import Area, State, Task, scattered
from recap.envs.dualarm.waypoints import Hands, Script, down, point

FINGERTIP = 0.015  # m that the fingers reach beyond the tool frame
EVERYWHERE = Area((0.06, 0.34), (-0.22, 0.22), (-40, 40))


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
    """Press a body's one part from above.

    Args:
        key: of the task.
        body: what is pressed; its first part gives.
        at: of the body's frame, the point that is pressed.
        by: metres to push.
        enough: of the part's joint, degrees or metres that count.
        words: wordings, seen and unseen.
        area: where it stands; mirrored half the time.
    """
    part = body.parts[0].name

    def pressed(state: State) -> bool:
        return state.joints[part] > enough and state.held(part)

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
        cylinder(0.042, 0.006, (0, 0, 0.006), _WOOD),
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
