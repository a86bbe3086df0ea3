"""Tasks with hinges."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, Part, box, cylinder
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, grip, point

_SHELL, _GLASS, _BAR = (0.86, 0.86, 0.84), (0.2, 0.22, 0.26), (0.55, 0.1, 0.1)
HINGE = (-0.11, -0.086, 0.0)  # in the microwave's frame
HANDLE = (0.195, -0.05)  # in the door's

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
