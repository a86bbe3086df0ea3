"""The tasks by their key, which are seen in training, and the levels at which the pool grows."""

from __future__ import annotations

from recap.envs.dualarm.tasks.cans import MOVE_CAN_POT, PLACE_CANS_PLASTICBOX
from recap.envs.dualarm.tasks.doors import OPEN_MICROWAVE
from recap.envs.dualarm.tasks.grasps import GRAB_ROLLER, PICK_DUAL_BOTTLES
from recap.envs.dualarm.tasks.pots import LIFT_POT
from recap.envs.dualarm.tasks.task import Task
from recap.errors import InputError, one_of

SEEN = ("place_cans_plasticbox", "move_can_pot", "open_microwave", "grab_roller", "pick_dual_bottles")
UNSEEN = ("move_pillbottle_pad", "lift_pot", "click_bell", "handover_mic", "place_bread_skillet")
# What each level adds to the pool; one unseen task, the first, becomes retrievable at each from 1 on.
LEVELS = (
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
TASKS: dict[str, Task] = {
    task.key: task
    for task in (
        PLACE_CANS_PLASTICBOX,
        MOVE_CAN_POT,
        OPEN_MICROWAVE,
        GRAB_ROLLER,
        PICK_DUAL_BOTTLES,
        LIFT_POT,
    )
}
FIRST_COLLECTION_SEED = 100_000


def task_named(key: str) -> Task:
    """The task of that key, or an error that helps."""
    return TASKS[one_of("task", key, TASKS)]


def tasks_named(text: str) -> tuple[str, ...]:
    """Keys from `move_can_pot,lift_pot`, or from a group: seen, unseen, all."""
    groups = {"seen": SEEN, "unseen": UNSEEN, "all": tuple(TASKS)}
    keys = [key for name in text.split(",") for key in groups.get(name.strip(), (name.strip(),))]
    return tuple(dict.fromkeys(task_named(key).key for key in keys))


def check_collection_seeds(first: int, count: int) -> None:
    """Refuse seeds that are kept for evaluation (42…91) and development (500…999)."""
    if first < FIRST_COLLECTION_SEED:
        raise InputError(
            f"seeds {first}…{first + count - 1} are not for collection: 42…91 are kept for evaluation and "
            f"500…999 for development; start at {FIRST_COLLECTION_SEED} or above"
        )
