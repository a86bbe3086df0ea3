"""The task lists are the paper's."""

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


def test_five_tasks_are_trained_on_and_five_are_unseen() -> None:
    assert len(SEEN) == len(UNSEEN) == 5
    assert not set(SEEN) & set(UNSEEN)
    assert set(STEP_LIMITS) == {*SEEN, *UNSEEN}
    assert sum(PAIRED_EPISODES.values()) == 246
    assert set(LEFT_OUT) < set(SEEN)
    assert sum(map(len, LEFT_OUT.values())) == 4


def test_each_level_brings_one_unseen_task() -> None:
    assert [len(pool_tasks(level)) for level in range(1, 7)] == [5, 11, 17, 23, 29, 36]
    assert len(set(pool_tasks(6))) == 36
    assert LEVELS[0] == SEEN
    for added in LEVELS[1:]:
        assert [task for task in added if task in UNSEEN] == [added[0]]
    with pytest.raises(InputError, match="no pool level 7"):
        pool_tasks(7)


def test_our_suite_has_the_same() -> None:
    from recap_worlds.dualarm import tasks

    assert (tasks.SEEN, tasks.UNSEEN, tasks.LEVELS) == (SEEN, UNSEEN, LEVELS)


def test_they_need_no_simulator() -> None:
    heavy = "bool({'mujoco', 'torch'} & {*sys.modules})"
    code = f"import sys, recap_worlds.dualarm.robotwin_tasks; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
