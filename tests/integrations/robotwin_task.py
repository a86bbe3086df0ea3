"""A task with RoboTwin's interface: the tools move to their targets at limited speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from arms import picture

from recap.types import F64

N_SUBSTEPS = 15  # most physics steps in an action
SPEED, TURN, GRIP = 0.01, 0.1, 0.2  # metres, radians and share of the opening in a physics step


@dataclass
class Pose:
    """The interface of SAPIEN's Pose."""

    p: F64
    q: F64  # w first


class Actor:
    def __init__(self, pose: F64) -> None:
        self.pose = Pose(pose[:3], pose[3:])

    def get_pose(self) -> Pose:
        return self.pose


class Task:
    """Success: both tools at their goals with the asked opening. The closed left tool carries the pot."""

    def __init__(self, goals: Mapping[str, F64], step_lim: int = 400, *, endpose: bool = True) -> None:
        self.goals = goals  # instruction -> (16,) goal of both tools
        self.step_lim = step_lim
        self.endpose = endpose
        self.instruction = ""
        self.actions: list[F64] = []
        self.visited: list[F64] = []

    def setup_demo(self, start: F64, seed: int = 0) -> None:
        """Starts an episode with the tools within 2 cm of `start` (16,)."""
        self.take_action_cnt, self.eval_success = 0, False
        self.now = np.array(start, np.float64)
        rng = np.random.default_rng(seed)
        for place in (slice(0, 3), slice(8, 11)):
            self.now[place] += rng.uniform(-0.01, 0.01, 3)
        self.pot = Actor(np.array([*self.now[:3], 1.0, 0, 0, 0]))
        self.actions, self.visited = [], [self.now.copy()]

    def set_instruction(self, instruction: str) -> None:
        self.instruction = instruction

    def get_instruction(self) -> str:
        return self.instruction

    def get_obs(self) -> dict[str, Any]:
        """An observation with lists and floats, as RoboTwin's."""
        endpose = {
            "left_endpose": self.now[:7].tolist(),
            "left_gripper": float(self.now[7]),
            "right_endpose": self.now[8:15].tolist(),
            "right_gripper": float(self.now[15]),
        }
        rgb = picture(self.take_action_cnt / self.step_lim)
        cameras = {name: {"rgb": rgb, "intrinsic_cv": np.eye(3)} for name in ("head_camera", "left_camera")}
        return {
            "observation": cameras,
            "pointcloud": [],
            "joint_action": {"vector": np.zeros(14)},
            "endpose": endpose if self.endpose else {},
        }

    def take_action(self, action: F64, action_type: str = "qpos") -> None:
        """Moves towards the target as far as one action reaches; does nothing after the end."""
        if self.take_action_cnt == self.step_lim or self.eval_success:
            return
        assert action_type == "ee"
        assert action.shape == (16,)
        np.testing.assert_allclose([np.linalg.norm(action[i : i + 4]) for i in (3, 11)], 1, atol=1e-6)
        self.take_action_cnt += 1
        self.actions.append(np.array(action))
        for _ in range(N_SUBSTEPS):
            for arm in (0, 8):
                self._approach(arm, action)
            if self.check_success():
                self.eval_success = True
                break
        self.visited.append(self.now.copy())

    def _approach(self, arm: int, action: F64) -> None:
        place, turn, grip = slice(arm, arm + 3), slice(arm + 3, arm + 7), arm + 7
        away = action[place] - self.now[place]
        self.now[place] += away * min(1.0, SPEED / max(np.linalg.norm(away), 1e-9))
        target = action[turn] * np.sign(action[turn] @ self.now[turn])
        angle = 2 * np.arccos(min(1.0, float(target @ self.now[turn])))
        mixed = self.now[turn] + (target - self.now[turn]) * min(1.0, TURN / max(angle, 1e-9))
        self.now[turn] = mixed / np.linalg.norm(mixed)
        self.now[grip] += np.clip(action[grip] - self.now[grip], -GRIP, GRIP)
        if arm == 0 and self.now[grip] < 0.3:
            self.pot.pose = Pose(self.now[place].copy(), self.now[turn].copy())

    def check_success(self) -> bool:
        """True if both tools are within a centimetre of their goals, with the asked opening."""
        goal = self.goals[self.instruction]
        near = [np.linalg.norm(self.now[i : i + 3] - goal[i : i + 3]) < 0.01 for i in (0, 8)]
        return all(near) and bool(np.abs(self.now[[7, 15]] - goal[[7, 15]]).max() < 0.1)


def evaluate(
    task: Task, module: Any, model: Any, instruction: str, start: F64, seed: int = 0
) -> tuple[bool, int]:
    """Runs one episode as RoboTwin's evaluation does; returns success and the number of `eval` calls."""
    run: Callable[..., None] = module.eval
    task.setup_demo(start, seed)
    task.set_instruction(instruction)
    module.reset_model(model)
    n_calls = 0
    while task.take_action_cnt < task.step_lim:
        observation = task.get_obs()
        run(task, model, observation)
        n_calls += 1
        if task.eval_success:
            return True, n_calls
    return False, n_calls
