"""Success conditions of the tasks, on states made by hand without a simulator."""

from collections.abc import Mapping

import numpy as np
import pytest

from recap.types import F64
from recap_worlds.dualarm.tasks import TASKS, task_named
from recap_worlds.dualarm.tasks.arrangements import in_mirror
from recap_worlds.dualarm.tasks.task import Area, State
from recap_worlds.dualarm.waypoints import standing

LYING = np.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0])


def done(
    key: str,
    objects: Mapping[str, F64],
    start: Mapping[str, F64] | None = None,
    fingers: Mapping[str, str] | None = None,
    joints: Mapping[str, float] | None = None,
    tools: float = 0.5,  # m, height of the tools
) -> bool:
    """True if the task is done in this state; `fingers` names the sides that touch each object."""
    task = task_named(key)
    names = [body.name for body in task.bodies] + [part.name for body in task.bodies for part in body.parts]
    touching = {name: frozenset((fingers or {}).get(name, "").split()) for name in names}
    state = State(
        objects=objects,
        start={**objects, **(start or {})},
        joints=joints or {},
        tools={"left": np.array([-0.05, 0, tools]), "right": np.array([0.2, 0, tools])},
        grips={"left": 1.0, "right": 0.0},
        touching=touching,
    )
    return task.success(state)


def test_move_pillbottle_pad_needs_the_bottle_standing_on_the_pad_and_released() -> None:
    pad = standing(0.2, 0.1, yaw=30)
    on_pad = {"pillbottle": standing(0.21, 0.09, 0.004), "pad": pad}
    assert done("move_pillbottle_pad", on_pad)
    assert not done("move_pillbottle_pad", on_pad, fingers={"pillbottle": "right"}), "still held"
    assert not done("move_pillbottle_pad", {"pillbottle": standing(0.24, 0.1, 0.004), "pad": pad}), "beside"
    assert not done("move_pillbottle_pad", {"pillbottle": standing(0.2, 0.1, 0.05), "pad": pad}), "above"
    lying = np.concatenate([[0.2, 0.1, 0.01], LYING])
    assert not done("move_pillbottle_pad", {"pillbottle": lying, "pad": pad})


def test_click_bell_needs_a_deep_press_by_a_closed_hand() -> None:
    bell = {"bell": standing(0.2, 0), "button": standing(0.2, 0, 0.04)}
    assert done("click_bell", bell, fingers={"button": "right"}, joints={"button": 0.009})
    assert not done("click_bell", bell, fingers={"button": "right"}, joints={"button": 0.004})
    assert not done("click_bell", bell, fingers={"bell": "right"}, joints={"button": 0.009})
    assert not done("click_bell", bell, fingers={"button": "left"}, joints={"button": 0.009}), "an open hand"


@pytest.mark.parametrize(("x", "giver", "taker"), [(-0.2, "left", "right"), (0.2, "right", "left")])
def test_handover_mic_needs_the_microphone_raised_in_the_other_hand_only(
    x: float, giver: str, taker: str
) -> None:
    start, up = {"microphone": standing(x, 0)}, {"microphone": standing(0, 0, 0.2)}
    assert done("handover_mic", up, start, {"microphone": taker})
    assert not done("handover_mic", up, start, {"microphone": f"{giver} {taker}"}), "both have it"
    assert not done("handover_mic", up, start, {"microphone": giver}), "not handed over"
    assert not done("handover_mic", up, start), "not held"
    assert not done("handover_mic", start, start, {"microphone": taker}), "on the table"


def test_place_bread_skillet_needs_the_bread_in_the_raised_skillet() -> None:
    start = {"skillet": standing(0, 0), "bread": standing(-0.25, 0.1)}  # the handle is on the right
    up = {"skillet": standing(0, 0, 0.04), "bread": standing(0.02, 0.01, 0.05)}
    held = {"skillet": "right"}
    assert done("place_bread_skillet", up, start, held)
    assert not done("place_bread_skillet", up, start, held | {"bread": "left"}), "the bread is not released"
    assert not done("place_bread_skillet", up, start, {"skillet": "left"}), "held by the wrong arm"
    assert not done("place_bread_skillet", up | {"bread": standing(0.02, 0.01, 0.09)}, start, held), "above"
    assert not done("place_bread_skillet", up | {"bread": standing(0.1, 0, 0.05)}, start, held), "beside"
    table = {"skillet": standing(0, 0), "bread": standing(0.02, 0.01, 0.008)}
    assert not done("place_bread_skillet", table, start, held), "on the table"


def test_move_stapler_pad_needs_the_direction_of_the_pad() -> None:
    def stapler(yaw: float) -> bool:
        return done(
            "move_stapler_pad", {"stapler": standing(0.2, 0, 0.004, yaw), "pad": standing(0.2, 0, yaw=-20)}
        )

    assert stapler(-15)
    assert not stapler(15)


def test_hanging_mug_needs_the_mug_on_the_rack_and_no_hand_near() -> None:
    rack = standing(0, 0)
    hanging = {"mug": standing(-0.046, 0.02, 0.083), "rack": rack}
    start = {"mug": standing(-0.2, 0)}
    assert done("hanging_mug", hanging, start)
    assert not done("hanging_mug", hanging, start, tools=0.15)
    assert not done("hanging_mug", {"mug": standing(-0.1, 0.02, 0.083), "rack": rack}, start)


def test_mirrored_scenes_still_face_the_middle() -> None:
    arrange = in_mirror({"cup": Area((0.1, 0.3), (-0.2, 0.2), (160, 200))})
    places = [arrange(np.random.default_rng(seed))["cup"] for seed in range(30)]
    assert {np.sign(place.x) for place in places} == {-1.0, 1.0}
    assert all(np.cos(np.radians(place.yaw)) * place.x < 0 for place in places)


@pytest.mark.parametrize("key", sorted(TASKS))
def test_no_task_is_done_at_the_start(key: str) -> None:
    task = task_named(key)
    for seed in range(20):
        places = task.arrange(np.random.default_rng(seed))
        objects = {name: standing(p.x, p.y, p.z, p.yaw) for name, p in places.items()}
        parts = {part.name: part.start for body in task.bodies for part in body.parts}
        assert not done(key, {**objects, **dict.fromkeys(parts, standing(0, 0))}, joints=parts)
