"""A task of our MuJoCo suite with the interface of RoboTwin's tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from recap.geometry3 import decode_arms, encode_arms
from recap.types import F64
from recap_worlds.dualarm.env import DualArmEnv

N_STEPS = 4  # control steps in which a target can be reached
REACHED_M = 0.004


class SuiteTask:
    """Moves until a tool pose is reached, as RoboTwin's planner does; objects are actors with a pose."""

    def __init__(self, task: str, embodiment: str, step_lim: int) -> None:
        self.env = DualArmEnv(task, embodiment, image_size=0)
        self.step_lim = step_lim

    def setup_demo(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self.take_action_cnt, self.eval_success = 0, False
        self.visited: list[F64] = []

    def get_instruction(self) -> str:
        return self.env.observe(0).task

    def get_obs(self) -> dict[str, Any]:
        left, left_gripper, right, right_gripper = (part[0] for part in decode_arms(self._arms()[None]))
        endpose = {
            "left_endpose": left.tolist(),
            "left_gripper": float(left_gripper),
            "right_endpose": right.tolist(),
            "right_gripper": float(right_gripper),
        }
        return {"observation": {}, "joint_action": {}, "endpose": endpose}

    def take_action(self, action: F64, action_type: str = "qpos") -> None:
        if self.take_action_cnt == self.step_lim or self.eval_success:
            return
        assert action_type == "ee"
        self.take_action_cnt += 1
        target = encode_arms(action[None, :7], action[7:8], action[None, 8:15], action[15:])[0]
        for _ in range(N_STEPS):
            self.eval_success = bool(self.env.step(target)[2])
            away = np.abs(self._arms() - target)[[0, 1, 2, 10, 11, 12]].max()
            if self.eval_success or away < REACHED_M:
                break
        self.visited.append(self._arms())

    def _arms(self) -> F64:
        return self.env.observe(0).proprio.astype(np.float64)

    def __getattr__(self, name: str) -> Any:
        """An actor of the task."""
        objects = self.__dict__["env"].observe(0).objects
        if name not in objects:
            raise AttributeError(name)
        pose = np.array(objects[name])
        return SimpleNamespace(get_pose=lambda: SimpleNamespace(p=pose[:3], q=pose[3:]))
