"""Scenes and scripts of the robosuite tasks; robosuite itself is not needed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.errors import InputError
from recap.geometry3 import quaternion_to_matrix
from recap.testing import _compare
from recap.types import Observation
from recap_worlds.robosuite.expert import SCRIPTS, Expert, down, nearest
from recap_worlds.robosuite.suite import RobosuiteSuite
from recap_worlds.robosuite.tasks import SEEN, TASKS, UNSEEN
from recap_worlds.robosuite.world import ARM, rotation_vector


@given(st.sampled_from(sorted(TASKS)), st.integers(0, 2**31))
def test_a_scene_is_within_its_tasks_ranges_and_determined_by_its_seed(key: str, seed: int) -> None:
    task = TASKS[key]
    poses = task.scene(seed)
    for placed, pose in zip(task.placed, poses, strict=True):
        assert placed.x[0] <= pose[0] <= placed.x[1]
        assert placed.y[0] <= pose[1] <= placed.y[1]
        assert np.linalg.norm(pose[3:]) == pytest.approx(1)
    if len(poses) == 2:
        assert np.linalg.norm(poses[0][:2] - poses[1][:2]) >= task.apart
    assert np.array_equal(poses, task.scene(seed))
    assert not np.array_equal(poses, task.scene(seed + 1))


def test_every_task_has_a_script_and_seen_and_unseen_tasks_are_disjoint() -> None:
    assert set(SCRIPTS) == set(TASKS)
    assert not {task.key for task in SEEN} & {task.key for task in UNSEEN}
    assert len({task.words for task in TASKS.values()}) == len(TASKS)


@given(st.floats(-3.1, 3.1), st.floats(-1, 1), st.floats(-1, 1))
def test_a_rotation_vector_is_axis_times_angle(angle: float, x: float, y: float) -> None:
    axis = np.array([x, y, 1.0]) / math.sqrt(x * x + y * y + 1)
    turn = quaternion_to_matrix(np.append(math.cos(angle / 2), math.sin(angle / 2) * axis))
    assert rotation_vector(turn) == pytest.approx(angle * axis, abs=1e-6)


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_down_points_the_tool_down_and_nearest_picks_the_smallest_rotation(angle: float, to: float) -> None:
    turn = down(angle)
    assert turn @ turn.T == pytest.approx(np.eye(3), abs=1e-12)
    assert np.linalg.det(turn) == pytest.approx(1)
    assert turn[:, 2] == pytest.approx([0, 0, -1])
    found = nearest(angle, math.pi, to)
    assert abs(found - to) <= math.pi / 2 + 1e-9
    assert math.isclose(math.sin(found - angle), 0, abs_tol=1e-9)


def test_the_robot_description_has_ten_numbers_in_tool_space() -> None:
    assert (ARM.act.letters, ARM.body.letters) == ("XYZrrrrrrg", "XYZrrrrrrg")
    seen = Observation(np.zeros(10, np.float32), "lift", 0.0, objects={"cube": np.zeros(7)})
    assert not _compare(seen, ARM, images=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"embodiment": "pnda"}, "unknown embodiment 'pnda': did you mean 'panda'"),
        ({"kp": 0}, "kp 0 is out of range: give 1 to 300, such as 30"),
        ({"poses": "some"}, "unknown poses 'some'"),
    ],
)
def test_an_invalid_option_is_an_error(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RobosuiteSuite().check(options)


def test_the_expert_without_object_poses_is_an_error() -> None:
    with pytest.raises(InputError, match="the expert needs the pose of 'cube'"):
        Expert("lift", "panda").act(Observation(np.zeros(10, np.float32), "lift", 0.0))
