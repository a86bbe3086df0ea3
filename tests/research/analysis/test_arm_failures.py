"""Failure classes of two-arm episodes, on made trajectories and on one of the expert."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recap_research.analysis.arm_failures import (
    HELD_STEPS,
    MOVED_M,
    NEEDS,
    Account,
    Kind,
    Moment,
    brought,
    held,
    kind_of,
    reached,
    tally,
)
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.expert import Expert
from recap_worlds.dualarm.tasks import SEEN, UNSEEN, task_named
from recap_worlds.dualarm.tasks.task import State

Spot = tuple[float, float, float]
NOBODY: frozenset[str] = frozenset()
LEFT, RIGHT, BOTH = frozenset({"left"}), frozenset({"right"}), frozenset({"left", "right"})
# Positions of the objects at the start.
STARTS: dict[str, dict[str, Spot]] = {
    "move_can_pot": {"can": (0.3, 0.0, 0.0), "pot": (0.0, 0.0, 0.0)},
    "place_cans_plasticbox": {
        "left_can": (-0.3, 0.0, 0.0),
        "right_can": (0.3, 0.0, 0.0),
        "box": (0.0, 0.0, 0.0),
    },
    "lift_pot": {"pot": (0.0, 0.0, 0.0)},
    "handover_mic": {"microphone": (0.2, 0.0, 0.0)},
    "open_microwave": {"microwave": (0.1, 0.1, 0.0), "door": (0.0, 0.0, 0.0)},
    "click_bell": {"bell": (0.2, 0.0, 0.0), "button": (0.2, 0.0, 0.044)},
}
BESIDE: Spot = (0.15, 0.0, 0.0)
UP: Spot = (0.2, 0.0, 0.1)


def pose(spot: Spot) -> Any:
    return np.array([*spot, 1.0, 0.0, 0.0, 0.0])


def moment(
    task: str,
    at: Mapping[str, Spot] | None = None,
    by: Mapping[str, frozenset[str]] | None = None,
    resting: bool = True,
    joints: Mapping[str, float] | None = None,
    grip: float = 1.0,
) -> Moment:
    """Objects at their starts except `at`, touched `by`; unless resting, touched objects do not rest."""
    start, by = STARTS[task], by or {}
    state = State(
        objects={name: pose({**start, **(at or {})}[name]) for name in start},
        start={name: pose(spot) for name, spot in start.items()},
        joints=joints or {},
        tools={side: np.zeros(3) for side in ("left", "right")},
        grips=dict.fromkeys(("left", "right"), grip),
        touching={name: by.get(name, NOBODY) for name in start},
    )
    return Moment(state, frozenset(name for name in start if resting or not by.get(name)))


def kind(task: str, *parts: Sequence[Moment]) -> Kind:
    return kind_of(task_named(task), [moment for part in parts for moment in part])


def in_hand(task: str, thing: str, spot: Spot, by: frozenset[str] = RIGHT) -> list[Moment]:
    return [moment(task, {thing: spot}, {thing: by}, resting=False)] * HELD_STEPS


def test_every_task_has_needs_that_name_its_objects() -> None:
    assert set(NEEDS) == {*SEEN, *UNSEEN}
    for key, needs in NEEDS.items():
        bodies = task_named(key).bodies
        things = {body.name for body in bodies} | {part.name for body in bodies for part in body.parts}
        assert {need.thing for need in needs} | {need.of for need in needs if need.of} <= things


def test_an_object_never_touched_is_a_failure_to_reach() -> None:
    assert kind("move_can_pot", [moment("move_can_pot")] * 20) == "reach"
    touched_the_pot = moment("move_can_pot", by={"pot": RIGHT})
    assert kind("move_can_pot", [touched_the_pot] * 20) == "reach"


@pytest.mark.parametrize(
    "tried",
    [
        [moment("move_can_pot", by={"can": RIGHT})],
        [moment("move_can_pot", {"can": (0.3 + 1.01 * MOVED_M, 0, 0)})],  # by an arm, no finger touches it
        [moment("move_can_pot", {"can": BESIDE}, {"can": RIGHT})] * 20,  # pushed there along the table
        in_hand("move_can_pot", "can", UP)[1:],  # not long enough
    ],
)
def test_an_object_touched_or_pushed_but_not_held_is_a_failure_to_grasp(tried: list[Moment]) -> None:
    assert kind("move_can_pot", tried) == "grasp"


def test_an_object_for_two_hands_held_by_one_is_a_failure_to_grasp() -> None:
    assert kind("lift_pot", in_hand("lift_pot", "pot", (0, 0, 0.1))) == "grasp"
    assert kind("lift_pot", in_hand("lift_pot", "pot", (0, 0, 0.05), BOTH)) == "transport"


def test_an_object_held_but_not_brought_is_a_failure_to_transport() -> None:
    elsewhere = [moment("move_can_pot", {"can": (0.3, 0.2, 0.0)})]
    assert kind("move_can_pot", in_hand("move_can_pot", "can", UP), elsewhere) == "transport"


def test_an_object_brought_but_not_released_is_a_failure_to_finish() -> None:
    there = moment("move_can_pot", {"can": BESIDE}, {"can": RIGHT})
    task = task_named("move_can_pot")
    assert not task.success(there.state)
    assert brought(task, there.state)
    assert kind("move_can_pot", in_hand("move_can_pot", "can", UP), [there]) == "finish"


def test_an_object_that_stays_in_the_same_hand_is_a_failure_to_hand_over() -> None:
    assert kind("handover_mic", in_hand("handover_mic", "microphone", UP)) == "hand-over"
    assert kind("handover_mic", in_hand("handover_mic", "microphone", (0.2, 0, 0.02))) == "transport"


def test_the_first_unmet_need_decides_the_class() -> None:
    task = "place_cans_plasticbox"
    missed = [moment(task, by={"left_can": LEFT})]
    assert kind(task, missed) == "grasp"  # though the right can was never reached
    carried = in_hand(task, "left_can", (0.0, 0.0, 0.1), LEFT)
    assert kind(task, carried) == "reach"
    assert kind(task, missed, in_hand(task, "right_can", UP)) == "grasp"


@pytest.mark.parametrize(
    ("task", "part", "body", "little", "some", "enough"),
    [
        ("open_microwave", "door", "microwave", 4.0, 30.0, 61.0),  # degrees
        ("click_bell", "button", "bell", 0.0005, 0.004, 0.008),  # m
    ],
)
def test_a_joint_part_counts_as_held_once_it_moves(
    task: str, part: str, body: str, little: float, some: float, enough: float
) -> None:
    def moved(by: float) -> list[Moment]:
        return [moment(task, by={part: RIGHT}, joints={part: by})] * HELD_STEPS

    still = {part: 0.0}
    assert kind(task, [moment(task, joints=still)]) == "reach"
    assert kind(task, [moment(task, by={body: RIGHT}, joints=still)]) == "grasp"
    assert kind(task, moved(little)) == "grasp"
    assert kind(task, moved(some)) == "transport"
    assert kind(task, moved(some), moved(enough)) == "finish"


def test_the_expert_passes_every_stage_in_order() -> None:
    env = DualArmEnv("move_can_pot", image_size=0)
    env.reset(seed=500)
    expert = Expert("move_can_pot")
    expert.reset(500)
    moments, done = [Moment(env.state(), env.resting())], False
    assert moments[0].resting == {"can", "pot"}
    while not done:
        _, _, done, stopped, _ = env.step(expert.act(env.observe()))
        assert not stopped
        moments.append(Moment(env.state(), env.resting()))
    (need,) = NEEDS["move_can_pot"]
    stages = (
        next(n for n in range(len(moments)) if reached(need, moments[: n + 1])),
        next(n for n in range(len(moments)) if held(need, moments[: n + 1])),
        next(n for n, one in enumerate(moments) if brought(env.task, one.state)),
    )
    assert 0 < stages[0] < stages[1] < stages[2] < len(moments) - 1
    assert kind_of(env.task, moments[: stages[2]]) == "transport"
    env.close()


def test_confused_episodes_are_counted_in_addition_to_the_classes() -> None:
    one = Account("lift_pot", 500, "grasp", 10, 6, ("grab_roller",), False)
    counts = tally(
        [one, replace(one, n_other=5, kind="transport", let_go=True), replace(one, kind="success")]
    )
    assert counts["lift_pot"] == counts["all"]
    found = counts["all"]
    assert [found[name] for name in ("episodes", "success", "grasp", "transport")] == [3, 1, 1, 1]
    assert (found["let_go"], found["confused"]) == (1, 1)  # more than half of the looks, failed episodes only
    assert (found["looks"], found["looks_at_another_task"]) == (30, 17)
