"""Where an agent acts; importing this registers our Gymnasium ids.

Each environment stands beside its scripted expert and its task table.
"""

import gymnasium as gym

from recap.envs.dualarm.tasks import TASKS

if "recap/PushT-v0" not in gym.registry:
    gym.register(
        id="recap/PushT-v0",
        entry_point="recap.envs.pusht.env:PushTEnv",
        vector_entry_point="recap.envs.pusht.vector:PushTVectorEnv",
        max_episode_steps=300,
    )

for task in TASKS.values():
    if task.id not in gym.registry:
        gym.register(id=task.id, entry_point="recap.envs.dualarm.env:DualArmEnv", kwargs={"task": task.key})
