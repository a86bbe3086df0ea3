"""Tasks of the pool: strike with a tool, push open, move away."""

from __future__ import annotations

from recap_worlds.dualarm.objects import Body, Part, box
from recap_worlds.dualarm.tasks.arrangements import in_mirror
from recap_worlds.dualarm.tasks.task import Area, State, Task, scattered
from recap_worlds.dualarm.waypoints import Hands, Move, Script, down, grip, heading, point, shifted, standing

_WOOD, _STEEL, _DARK = (0.6, 0.4, 0.2), (0.5, 0.52, 0.56), (0.16, 0.16, 0.18)
HEAD_X, NAIL_TOP = 0.07, 0.058

HAMMER = Body(
    "hammer",
    (
        box((0.06, 0.01, 0.009), (0, 0, 0.018), _WOOD),
        box((0.005, 0.012, 0.018), (-0.06, 0, 0.018), _WOOD),
        box((0.014, 0.028, 0.018), (HEAD_X, 0, 0.018), _STEEL),
    ),
    mass=0.12,
)
BLOCK = Body(
    "block",
    (box((0.025, 0.025, 0.022), (0, 0, 0.022), (0.75, 0.2, 0.2)),),
    mass=0.6,
    parts=(
        Part(
            "nail",
            (box((0.012, 0.012, 0.007), (0, 0, 0.007), (0.9, 0.75, 0.3)),),
            at=(0, 0, 0.044),
            joint="slide",
            axis=(0, 0, -1),
            limits=(0, 0.012),
            mass=0.02,
            damping=1.0,
            stiffness=120.0,
        ),
    ),
)


def _struck(state: State) -> bool:
    return state.joints["nail"] > 0.006 and state.released("nail") and state.held("hammer")


def _strike(hands: Hands) -> Script:
    side = hands.side_of("hammer")
    yield from hands.pick(side, grip(hands.objects["hammer"], (-0.02, 0, 0.018)), lift=0.12)
    yield hands.wait(0.15)
    yaw = heading(hands.objects["hammer"])
    block = hands.objects["block"]
    x, y, _ = point(standing(block[0], block[1], yaw=yaw), -HEAD_X, 0)
    pose = hands.bringing(side, "hammer", standing(x, y, NAIL_TOP + 0.04, yaw))
    yield hands.carry(side, pose)
    yield Move({side: shifted(pose, z=-0.053)}, speed=0.2, settle_s=0.8)


BEAT_BLOCK_HAMMER = Task(
    key="beat_block_hammer",
    bodies=(HAMMER, BLOCK),
    arrange=in_mirror(
        {"hammer": Area((0.16, 0.3), (-0.18, 0.18), (145, 215)), "block": Area((-0.02, 0.1), (-0.18, 0.18))},
        apart=0.17,
    ),
    success=_struck,
    script=_strike,
    seen=(
        "beat the block with the hammer",
        "pick up the hammer and strike the block",
        "hit the block on the table with the hammer",
        "hammer on the red block",
    ),
    unseen=("drive the nail in the block with the hammer", "use the hammer on the block"),
    objects=("hammer", "block"),
)

_LID, _LEAN = 0.055, 45.0  # half the lid's length; initial opening in degrees
_UP = 0.7071 * _LID
LAPTOP = Body(
    "laptop",
    (
        box((0.075, 0.055, 0.006), (0, 0, 0.006), _STEEL),
        box((0.06, 0.03, 0.001), (0, 0.01, 0.0125), _DARK, solid=False),
    ),
    fixed=True,
    parts=(
        Part(
            "lid",
            (
                box((0.075, _LID, 0.003), (0, -_UP, _UP), _STEEL, (-_LEAN, 0, 0)),
                box(
                    (0.066, _LID - 0.007, 0.0035),
                    (0, -_UP, _UP),
                    (0.25, 0.5, 0.8),
                    (-_LEAN, 0, 0),
                    solid=False,
                ),
            ),
            at=(0, 0.055, 0.014),
            joint="hinge",
            axis=(-1, 0, 0),
            limits=(0, 75),
            mass=0.05,
            damping=0.02,
            stiffness=0.04,  # closes again, so that brushing past does not count
        ),
    ),
)


def _lid_open(state: State) -> bool:
    return state.joints["lid"] > 45 and state.held("lid") and min(state.grips.values()) < 0.1


def _open_lid(hands: Hands) -> Script:
    side, laptop = hands.side_of("laptop"), hands.objects["laptop"]
    before, behind = (grip(laptop, (0, y, 0.078)) for y in (-0.09, 0.07))
    yield Move({side: shifted(before, z=0.08)}, {side: 0.0})
    yield hands.reach(side, before)
    yield Move({side: behind}, speed=0.12, settle_s=0.5)


OPEN_LAPTOP = Task(
    key="open_laptop",
    bodies=(LAPTOP,),
    arrange=scattered({"laptop": Area((0.08, 0.28), (-0.1, 0.16), (-25, 25))}, mirrored=True),
    success=_lid_open,
    script=_open_lid,
    seen=(
        "open the laptop",
        "push the lid of the laptop open",
        "open the screen of the laptop upright",
        "lift the lid of the laptop",
    ),
    unseen=("get the laptop ready to type on", "make the screen of the notebook visible"),
    objects=("laptop", "lid"),
)

CARDS = Body(
    "playingcards",
    (
        box((0.03, 0.02, 0.012), (0, 0, 0.012), (0.93, 0.93, 0.92)),
        box((0.026, 0.016, 0.001), (0, 0, 0.0245), (0.7, 0.15, 0.2), solid=False),
    ),
    mass=0.06,
)
AWAY = 0.32  # m from the middle of the table


def _away(state: State) -> bool:
    now, before = state.objects["playingcards"], state.start["playingcards"]
    straight = abs(now[1] - before[1]) < 0.04 and abs(heading(now) - heading(before)) < 20  # not pushed
    far = AWAY - 0.04 < abs(now[0]) < AWAY + 0.04 and straight
    flat = abs(state.raised("playingcards")) < 0.01 and state.upright("playingcards") > 0.95
    return bool(far and flat and state.released("playingcards"))


def _take_away(hands: Hands) -> Script:
    side, cards = hands.side_of("playingcards"), hands.objects["playingcards"]
    yield from hands.pick(side, grip(cards, (0, 0, 0.02)), lift=0.08)
    x = -AWAY if side == "left" else AWAY
    yield from hands.place(side, down((x, cards[1], 0.023), heading(cards)), above=0.06)


MOVE_PLAYINGCARD_AWAY = Task(
    key="move_playingcard_away",
    bodies=(CARDS,),
    arrange=scattered({"playingcards": Area((0.03, 0.2), (-0.2, 0.2), (-40, 40))}, mirrored=True),
    success=_away,
    script=_take_away,
    seen=(
        "move the playing cards away",
        "take the pack of cards to the side",
        "put the playing cards away from the middle",
        "move the cards outwards to the edge of the table",
    ),
    unseen=("clear the pack of cards from the centre", "the cards should lie at the side of the table"),
    objects=("playingcards",),
)
