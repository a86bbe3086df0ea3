"""The task lists of the paper."""

import subprocess
import sys

import pytest

from recap.errors import InputError
from recap_worlds.dualarm.robotwin_tasks import (
    LEFT_OUT,
    LEVELS,
    PAIRED_EPISODES,
    SEEN,
    STEP_LIMITS,
    UNSEEN,
    pool_tasks,
)


def test_there_are_five_training_tasks_and_five_unseen_tasks() -> None:
    assert len(SEEN) == len(UNSEEN) == 5
    assert not set(SEEN) & set(UNSEEN)
    assert set(STEP_LIMITS) == {*SEEN, *UNSEEN}
    assert sum(PAIRED_EPISODES.values()) == 246
    assert set(LEFT_OUT) < set(SEEN)
    assert sum(map(len, LEFT_OUT.values())) == 4


def test_each_pool_level_adds_one_unseen_task() -> None:
    assert [len(pool_tasks(level)) for level in range(1, 7)] == [5, 11, 17, 23, 29, 36]
    assert len(set(pool_tasks(6))) == 36
    assert LEVELS[0] == SEEN
    for added in LEVELS[1:]:
        assert [task for task in added if task in UNSEEN] == [added[0]]
    with pytest.raises(InputError, match="no pool level 7"):
        pool_tasks(7)


def test_the_dualarm_suite_has_the_same_tasks() -> None:
    from recap_worlds.dualarm import tasks

    assert (tasks.SEEN, tasks.UNSEEN, tasks.LEVELS) == (SEEN, UNSEEN, LEVELS)


def test_the_task_lists_import_neither_mujoco_nor_torch() -> None:
    heavy = "bool({'mujoco', 'torch'} & {*sys.modules})"
    code = f"import sys, recap_worlds.dualarm.robotwin_tasks; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
