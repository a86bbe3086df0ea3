"""The agent of `import recap`: task and state of its observations."""

from dataclasses import replace

import numpy as np
import pytest

import recap
from episodes import random_episode
from recap.pool.memory import MemoryPool
from recap.pool.view import only_task


def test_the_task_defaults_to_the_pools_only_task() -> None:
    episodes = [replace(random_episode(f"demo/{i}", i), task="push") for i in range(2)]
    assert only_task(MemoryPool(episodes).view()) == "push"
    assert only_task(MemoryPool([episodes[0], replace(episodes[1], task="pull")]).view()) == ""
    assert only_task(MemoryPool().view()) == ""


def test_a_state_of_another_width_is_refused_with_the_robots_features() -> None:
    pool = MemoryPool([random_episode(f"demo/{i}", i) for i in range(2)])
    agent = recap.Agent(None, pool, recap.AgentConfig(retrieval="pusht-object"))
    with pytest.raises(recap.InputError, match=r"shape \(8,\).* 2 numbers \(position\)") as error:
        agent.act({"state": np.zeros(8)})
    assert error.value.code == "observation.state"
