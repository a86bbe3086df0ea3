"""Registers the Gymnasium ids on import: `recap/PushT-v0` and `recap/DualArm-…-v0`."""

from __future__ import annotations

import gymnasium as gym

from recap_worlds.dualarm.tasks import TASKS

if "recap/PushT-v0" not in gym.registry:
    gym.register(
        id="recap/PushT-v0",
        entry_point="recap_worlds.pusht.env:PushTEnv",
        vector_entry_point="recap_worlds.pusht.vector:PushTVectorEnv",
        max_episode_steps=300,
    )

for task in TASKS.values():
    if task.id not in gym.registry:
        gym.register(task.id, "recap_worlds.dualarm.env:DualArmEnv", kwargs={"task": task.key})
