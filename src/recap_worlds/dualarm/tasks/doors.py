"""Tasks with hinges."""

from __future__ import annotations

from dataclasses import replace

from recap_worlds.dualarm.objects import Body, Part, box, cylinder
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, grip, point

_SHELL, _GLASS, _BAR = (0.86, 0.86, 0.84), (0.2, 0.22, 0.26), (0.55, 0.1, 0.1)
HINGE = (-0.11, -0.086, 0.0)  # in the microwave's frame
HANDLE = (0.195, -0.05)  # in the door's frame

MICROWAVE = Body(
    "microwave",
    (
        box((0.11, 0.08, 0.004), (0, 0, 0.004), _SHELL),
        box((0.11, 0.08, 0.004), (0, 0, 0.141), _SHELL),
        box((0.004, 0.08, 0.065), (-0.106, 0, 0.0725), _SHELL),
        box((0.004, 0.08, 0.065), (0.106, 0, 0.0725), _SHELL),
        box((0.11, 0.004, 0.065), (0, 0.076, 0.0725), _SHELL),
    ),
    fixed=True,
    parts=(
        Part(
            "door",
            (
                box((0.108, 0.005, 0.068), (0.11, 0, 0.0725), _GLASS),
                cylinder(0.008, 0.06, (*HANDLE, 0.078), _BAR),
                box((0.006, 0.024, 0.006), (HANDLE[0], -0.026, 0.03), _BAR),
                box((0.006, 0.024, 0.006), (HANDLE[0], -0.026, 0.065), _BAR),
            ),
            at=HINGE,
            joint="hinge",
            axis=(0, 0, -1),
            limits=(0, 110),
            mass=0.25,
            damping=0.05,
            friction=0.03,
        ),
    ),
)


def _opened(state: State) -> bool:
    return state.joints["door"] > 60


def _open_door(hands: Hands) -> Script:
    microwave = hands.objects["microwave"]
    pose = grip(microwave, (HINGE[0] + HANDLE[0], HINGE[1] + HANDLE[1], 0.118))
    yield hands.approach("right", pose, opening=0.55)
    yield hands.reach("right", pose)
    yield hands.close("right")
    yield from hands.arc("right", point(microwave, *HINGE), -72, n=12, speed=0.16)
    yield hands.wait(1.0)


OPEN_MICROWAVE = Task(
    key="open_microwave",
    bodies=(MICROWAVE,),
    arrange=scattered({"microwave": Area((0.06, 0.19), (0.04, 0.24), (-14, 34))}),
    success=_opened,
    script=_open_door,
    seen=(
        "open the microwave",
        "pull the door of the microwave open",
        "open the microwave by its red handle",
        "swing the microwave door open",
    ),
    unseen=("get the oven door open with the right arm", "make the inside of the microwave accessible"),
    objects=("microwave", "door"),
)

AJAR = 75.0  # degrees
OPEN_ONE = replace(MICROWAVE, parts=tuple(replace(part, start=AJAR) for part in MICROWAVE.parts))


def _closed(state: State) -> bool:
    return state.joints["door"] < 4


def _push_door(hands: Hands) -> Script:
    pose = grip(hands.objects["door"], (0.14, -0.06, 0.1))  # outside, between hinge and handle
    yield hands.approach("right", pose, opening=0.0)
    yield hands.reach("right", pose)
    yield from hands.arc("right", point(hands.objects["microwave"], *HINGE), AJAR + 16, n=12, speed=0.16)
    yield hands.wait(0.5)
    yield hands.retreat("right")


CLOSE_MICROWAVE = Task(
    key="close_microwave",
    bodies=(OPEN_ONE,),
    arrange=OPEN_MICROWAVE.arrange,
    success=_closed,
    script=_push_door,
    seen=(
        "close the microwave",
        "push the door of the microwave shut",
        "shut the microwave",
        "swing the microwave door closed",
    ),
    unseen=("get the oven door shut with the right arm", "make sure that the microwave is closed"),
    objects=("microwave", "door"),
)
