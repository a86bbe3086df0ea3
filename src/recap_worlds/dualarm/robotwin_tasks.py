"""Training tasks, unseen tasks and pool levels, with RoboTwin's names; data only."""

from __future__ import annotations

from collections.abc import Mapping

from recap.errors import InputError

SEEN = ("place_cans_plasticbox", "move_can_pot", "open_microwave", "grab_roller", "pick_dual_bottles")
UNSEEN = ("move_pillbottle_pad", "lift_pot", "click_bell", "handover_mic", "place_bread_skillet")

# What each level, counted from 1, adds to the previous one. From level 2 on the first is the unseen task. The
# paper gives 35 tasks for level 6, but its table lists these 36. Its "stack bowls" can be either of
# RoboTwin's stack_bowls_two and stack_bowls_three.
LEVELS: tuple[tuple[str, ...], ...] = (
    SEEN,
    (
        "lift_pot",
        "place_bread_basket",
        "beat_block_hammer",
        "move_stapler_pad",
        "press_stapler",
        "click_alarmclock",
    ),
    (
        "handover_mic",
        "dump_bin_bigbin",
        "adjust_bottle",
        "open_laptop",
        "place_mouse_pad",
        "shake_bottle",
    ),
    (
        "move_pillbottle_pad",
        "place_burger_fries",
        "place_phone_stand",
        "place_dual_shoes",
        "place_object_basket",
        "move_playingcard_away",
    ),
    (
        "place_bread_skillet",
        "place_container_plate",
        "place_fan",
        "place_object_scale",
        "hanging_mug",
        "place_can_basket",
    ),
    (
        "click_bell",
        "stack_bowls_two",
        "handover_block",
        "turn_switch",
        "stamp_seal",
        "place_empty_cup",
        "rotate_qrcode",
    ),
)

# The paper's tasks for a real robot and a human hand, with a microwave in place of its cabinet. A policy is
# trained on the first only; the other two are demonstrated.
REAL_ROBOT = ("open_microwave", "close_microwave", "place_bottle_plasticbox")

# Actions after which RoboTwin ends an evaluation episode.
STEP_LIMITS: Mapping[str, int] = {
    "place_cans_plasticbox": 800,
    "move_can_pot": 400,
    "open_microwave": 1500,
    "grab_roller": 400,
    "pick_dual_bottles": 400,
    "move_pillbottle_pad": 400,
    "lift_pot": 400,
    "click_bell": 400,
    "handover_mic": 600,
    "place_bread_skillet": 500,
}

# The paper's training: pairs per task, and episodes that were left out because retrieval failed on them.
PAIRED_EPISODES: Mapping[str, int] = dict(zip(SEEN, (50, 48, 49, 49, 50), strict=True))
LEFT_OUT: Mapping[str, tuple[int, ...]] = {
    "move_can_pot": (32, 45),
    "open_microwave": (34,),
    "grab_roller": (38,),
}


def pool_tasks(level: int) -> tuple[str, ...]:
    """All tasks that can be retrieved at a level, in the order in which they were added."""
    if not 1 <= level <= len(LEVELS):
        raise InputError(f"there is no pool level {level}: give 1 (the trained tasks) to {len(LEVELS)}")
    return tuple(task for added in LEVELS[:level] for task in added)
