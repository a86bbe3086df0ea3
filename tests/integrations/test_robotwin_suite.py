"""RoboTwin's interface with physics: the tasks of our MuJoCo suite as if they were RoboTwin's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from robotwin_mujoco import SuiteTask

from recap.assembly import AgentConfig
from recap.pool.importers import open_source
from recap.pool.memory import MemoryPool
from recap.pool.robotwin_write import LAYOUTS, Layout, write_robotwin
from recap.types import Episode
from recap_robotwin import deploy_policy
from recap_robotwin.pilot import Pilot, PilotSpec
from recap_worlds.dualarm.collection import demonstrate


def pool_of(episodes: list[Episode], out: Path, layout: Layout) -> MemoryPool:
    """A pool read from files in RoboTwin's layout."""
    return MemoryPool(list(open_source(write_robotwin(episodes, out, "lift_pot", layout, layout=layout))))


def run(task: SuiteTask, pool: MemoryPool, retrieval: str, objects: str, seed: int) -> bool:
    pilot = Pilot(PilotSpec("memory", AgentConfig(retrieval=retrieval, n_action_steps=8)), pool)
    model = deploy_policy.Model(pilot, deploy_policy.read_objects(objects))
    task.setup_demo(seed)
    deploy_policy.reset_model(model)
    while task.take_action_cnt < task.step_lim and not task.eval_success:
        deploy_policy.eval(task, model, task.get_obs())
    return task.eval_success


@pytest.mark.parametrize("layout", LAYOUTS)
def test_demonstrations_of_another_robot_lift_the_pot_at_its_current_pose(
    tmp_path: Path, layout: Layout
) -> None:
    shown = [demonstrate("lift_pot", "ur5e", seed, 0) for seed in (100_000, 100_001)]
    pool = pool_of(shown, tmp_path, layout)
    task = SuiteTask("lift_pot", "viperx", step_lim=120)
    assert run(task, pool, "dualarm-parts", "pot", seed=500)
    assert not run(task, pool, "robotwin-blind", "", seed=500), (
        "in the world's frame it grasps where the pot was"
    )


def test_the_robots_own_demonstration_of_the_scene_needs_no_object_pose(tmp_path: Path) -> None:
    own = demonstrate("lift_pot", "viperx", 501, 0)
    task = SuiteTask("lift_pot", "viperx", step_lim=120)
    assert run(task, pool_of([own], tmp_path, "release"), "robotwin-blind", "", seed=501)
    places = [0, 1, 2, 10, 11, 12]
    visited, path = np.array(task.visited)[:, places], own.proprio[:, places]
    away = np.abs(visited[:, None] - path[None]).max(axis=2).min(axis=1)
    assert away.max() < 0.02, "the tools followed the demonstration"
