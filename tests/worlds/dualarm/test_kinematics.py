"""Inverse kinematics: reachable targets are reached, joint limits hold, steps are limited."""

import numpy as np
import pytest

from recap.geometry3 import quaternion_to_matrix
from recap.types import F64
from recap_worlds.dualarm.kinematics import MAX_STEP, Kinematics, kinematics_of
from recap_worlds.dualarm.robots import DOWN, HOME, ROBOTS
from recap_worlds.dualarm.waypoints import down


@pytest.fixture(params=sorted(ROBOTS))
def arms(request: pytest.FixtureRequest) -> Kinematics:
    return kinematics_of(ROBOTS[request.param])


def followed(arms: Kinematics, poses: F64, n: int = 60) -> F64:
    joints = arms.home
    for _ in range(n):
        joints = arms.solve(joints, poses[:, :3], quaternion_to_matrix(poses[:, 3:]))
    return joints


def test_both_robots_start_with_the_same_tool_poses() -> None:
    homes = [kinematics_of(robot).tools(kinematics_of(robot).home) for robot in ROBOTS.values()]
    for tools in homes:
        assert np.abs(tools[:, :3] - [HOME["left"], HOME["right"]]).max() < 1e-3
        assert np.abs(quaternion_to_matrix(tools[:, 3:]) - DOWN).max() < 1e-3


@pytest.mark.parametrize(
    ("x", "y", "z", "yaw"), [(0.3, 0.2, 0.03, 40), (0.05, -0.15, 0.1, -60), (0.2, 0, 0.25, 85)]
)
def test_tools_reach_their_targets(arms: Kinematics, x: float, y: float, z: float, yaw: float) -> None:
    poses = np.stack([down((-x, y, z), yaw), down((x, -y, z), -yaw)])
    tools = arms.tools(followed(arms, poses))
    assert np.abs(tools[:, :3] - poses[:, :3]).max() < 1e-3
    assert np.abs(quaternion_to_matrix(tools[:, 3:]) - quaternion_to_matrix(poses[:, 3:])).max() < 3e-3


def test_a_tilted_target_is_reached(arms: Kinematics) -> None:
    poses = np.stack([down((-0.2, 0.1, 0.15), 20, lean=35), down((0.2, 0.1, 0.15), -20, lean=-35)])
    tools = arms.tools(followed(arms, poses))
    assert np.abs(tools[:, :3] - poses[:, :3]).max() < 1e-3


def test_a_far_target_is_approached_in_limited_steps(arms: Kinematics) -> None:
    poses = np.stack([down((-0.3, -0.2, 0.1), 80), down((0.05, 0.15, 0.2), -80)])
    joints, before = arms.home, np.inf
    for _ in range(40):
        after = arms.solve(joints, poses[:, :3], quaternion_to_matrix(poses[:, 3:]))
        assert np.abs(after - joints).max() <= MAX_STEP + 1e-12
        joints = after
        distance = np.abs(arms.tools(joints)[:, :3] - poses[:, :3]).max()
        assert distance < before + 0.02
        before = distance
    assert before < 1e-3


def test_unreachable_targets_keep_the_joint_limits(arms: Kinematics) -> None:
    rng = np.random.default_rng(0)
    joints = arms.home
    for _ in range(100):
        rotations = quaternion_to_matrix(rng.normal(size=(2, 4)))
        joints = arms.solve(joints, rng.uniform(-1.2, 1.2, (2, 3)), rotations)
        assert np.isfinite(joints).all()
        assert (joints >= arms.limits[..., 0]).all()
        assert (joints <= arms.limits[..., 1]).all()
