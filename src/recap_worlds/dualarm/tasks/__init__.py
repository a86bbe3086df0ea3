"""The tasks by key, the training tasks, and the levels of the pool."""

from __future__ import annotations

from recap.errors import InputError, one_of
from recap_worlds.dualarm.robotwin_tasks import LEVELS, REAL_ROBOT, SEEN, UNSEEN
from recap_worlds.dualarm.tasks.cans import MOVE_CAN_POT, PLACE_CANS_PLASTICBOX
from recap_worlds.dualarm.tasks.doors import CLOSE_MICROWAVE, OPEN_MICROWAVE
from recap_worlds.dualarm.tasks.grasps import GRAB_ROLLER, PICK_DUAL_BOTTLES
from recap_worlds.dualarm.tasks.handovers import HANDOVER_BLOCK, HANDOVER_MIC
from recap_worlds.dualarm.tasks.household import PLACE_BOTTLE_PLASTICBOX, PLACEMENTS
from recap_worlds.dualarm.tasks.mugs import HANGING_MUG
from recap_worlds.dualarm.tasks.pairs import PAIRS
from recap_worlds.dualarm.tasks.placements import MOVE_PILLBOTTLE_PAD
from recap_worlds.dualarm.tasks.pots import LIFT_POT
from recap_worlds.dualarm.tasks.presses import CLICK_BELL, PRESSES
from recap_worlds.dualarm.tasks.skillets import PLACE_BREAD_SKILLET
from recap_worlds.dualarm.tasks.task import Task
from recap_worlds.dualarm.tasks.tools import BEAT_BLOCK_HAMMER, MOVE_PLAYINGCARD_AWAY, OPEN_LAPTOP
from recap_worlds.dualarm.tasks.vessels import ADJUST_BOTTLE, DUMP_BIN_BIGBIN, SHAKE_BOTTLE

__all__ = (
    "FIRST_COLLECTION_SEED",
    "LEVELS",
    "REAL_ROBOT",
    "SEEN",
    "TASKS",
    "UNSEEN",
    "Task",
    "check_collection_seeds",
    "task_named",
    "tasks_named",
)

_WRITTEN: tuple[Task, ...] = (
    PLACE_CANS_PLASTICBOX,
    MOVE_CAN_POT,
    OPEN_MICROWAVE,
    GRAB_ROLLER,
    PICK_DUAL_BOTTLES,
    LIFT_POT,
    HANDOVER_MIC,
    MOVE_PILLBOTTLE_PAD,
    PLACE_BREAD_SKILLET,
    CLICK_BELL,
    HANDOVER_BLOCK,
    *PLACEMENTS,
    *PRESSES,
    *PAIRS,
    BEAT_BLOCK_HAMMER,
    DUMP_BIN_BIGBIN,
    ADJUST_BOTTLE,
    OPEN_LAPTOP,
    SHAKE_BOTTLE,
    HANGING_MUG,
    MOVE_PLAYINGCARD_AWAY,
    CLOSE_MICROWAVE,
    PLACE_BOTTLE_PLASTICBOX,
)
_BY_KEY = {task.key: task for task in _WRITTEN}
# In the order of the pool's levels, then the tasks of the paper's real robot.
TASKS: dict[str, Task] = {
    key: _BY_KEY[key] for level in (*LEVELS, REAL_ROBOT) for key in level if key in _BY_KEY
}
FIRST_COLLECTION_SEED = 100_000


def task_named(key: str) -> Task:
    """The task with that key; raises an InputError that lists the known ones."""
    return TASKS[one_of("task", key, TASKS)]


def tasks_named(text: str) -> tuple[str, ...]:
    """Keys from `move_can_pot,lift_pot`, or from a group: seen, unseen, real-robot, all, level1 … level6.

    A level's group contains the implemented tasks that the level adds to the pool.
    """
    groups = {"seen": SEEN, "unseen": UNSEEN, "real-robot": REAL_ROBOT, "all": tuple(TASKS)}
    for n, level in enumerate(LEVELS, start=1):
        groups[f"level{n}"] = tuple(key for key in level if key in TASKS)
    keys = [key for name in text.split(",") for key in groups.get(name.strip(), (name.strip(),))]
    return tuple(dict.fromkeys(task_named(key).key for key in keys))


def check_collection_seeds(first: int, count: int) -> None:
    """Refuse seeds reserved for evaluation (42…91) and development (500…999)."""
    if first < FIRST_COLLECTION_SEED:
        raise InputError(
            f"seeds {first}…{first + count - 1} are not for collection: 42…91 are kept for evaluation and "
            f"500…999 for development; start at {FIRST_COLLECTION_SEED} or above"
        )
