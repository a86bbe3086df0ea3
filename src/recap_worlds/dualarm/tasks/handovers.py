"""Tasks in which one arm hands an object to the other in the air."""

from __future__ import annotations

import math

from recap_worlds.dualarm.objects import Body, Geom, box
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Script, grip, heading, other, standing

MEET_Z = 0.2  # m above the table
LYING = Area((0.1, 0.25), (-0.2, 0.2), (-50, 50))  # inside the head camera's view


def handing(
    key: str, thing: Body, *, reach: float, height: float, words: tuple[tuple[str, ...], tuple[str, ...]]
) -> Task:
    """Pick up a long object at its outer end and hand it to the other arm in the middle.

    Args:
        key: of the task.
        thing: the object; it lies along its x axis.
        reach: metres from its middle to each grip.
        height: metres of the grip above its base.
        words: seen and unseen instructions.
    """
    name = thing.name

    def handed_over(state: State) -> bool:
        giver = "left" if state.start[name][0] < 0 else "right"
        taken = state.held(name, other(giver)) and not state.held(name, giver)
        return taken and state.raised(name) > 0.08

    def script(hands: Hands) -> Script:
        giver = hands.side_of(name)
        taker = other(giver)
        outwards = -1.0 if giver == "left" else 1.0
        along = outwards if math.cos(math.radians(heading(hands.objects[name]))) > 0 else -outwards
        yield from hands.pick(giver, grip(hands.objects[name], (along * reach, 0, height)), lift=0.15)
        yield hands.wait(0.1)
        thing = hands.objects[name]
        meeting = standing(0.0, 0.6 * thing[1], MEET_Z, 0.0 if along == outwards else 180.0)
        yield hands.carry(giver, hands.bringing(giver, name, meeting))
        offered = grip(hands.objects[name], (-along * reach, 0, height))
        yield hands.approach(taker, offered, back=0.1)
        yield hands.reach(taker, offered)
        yield hands.close(taker)
        yield hands.open(giver)
        yield hands.retreat(giver, 0.1)
        yield hands.wait(1.0)

    return Task(
        key=key,
        bodies=(thing,),
        arrange=scattered({name: LYING}, mirrored=True),
        success=handed_over,
        script=script,
        seen=words[0],
        unseen=words[1],
        objects=(name,),
    )


_METAL, _GRILLE = (0.15, 0.16, 0.2), (0.7, 0.72, 0.75)
MICROPHONE = Body(
    "microphone",
    (
        box((0.08, 0.011, 0.011), (0, 0, 0.02), _METAL),
        box((0.006, 0.013, 0.02), (-0.082, 0, 0.02), _METAL),
        box((0.018, 0.02, 0.02), (0.094, 0, 0.02), _GRILLE),
        Geom("ellipsoid", (0.016, 0.02, 0.02), (0.112, 0, 0.02), _GRILLE, solid=False),
    ),
    mass=0.1,
)

HANDOVER_MIC = handing(
    "handover_mic",
    MICROPHONE,
    reach=0.052,
    height=0.02,
    words=(
        (
            "hand the microphone over to the other arm",
            "pick up the microphone and pass it to the other hand",
            "give the mic from one arm to the other",
            "one arm takes the microphone and the other one receives it",
        ),
        ("transfer the mic in the air", "let the far arm have the microphone"),
    ),
)

BLOCK = Body("block", (box((0.09, 0.014, 0.014), (0, 0, 0.014), (0.8, 0.2, 0.2)),), mass=0.1)

HANDOVER_BLOCK = handing(
    "handover_block",
    BLOCK,
    reach=0.055,
    height=0.02,
    words=(
        (
            "hand the block over to the other arm",
            "pick up the red block and pass it to the other hand",
            "give the block from one arm to the other",
            "one arm takes the block and the other one receives it",
        ),
        ("transfer the red bar in the air", "let the far arm have the block"),
    ),
)
