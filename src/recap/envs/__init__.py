"""Where an agent acts; importing this registers our Gymnasium ids.

Each environment stands beside its scripted expert and its task table.
"""

import gymnasium as gym

if "recap/PushT-v0" not in gym.registry:
    gym.register(
        id="recap/PushT-v0",
        entry_point="recap.envs.pusht.env:PushTEnv",
        vector_entry_point="recap.envs.pusht.vector:PushTVectorEnv",
        max_episode_steps=300,
    )
