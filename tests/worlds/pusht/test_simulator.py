"""The compiled copy of the physics, compared with pymunk."""

import numpy as np
import pytest

from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.simulator import follow_targets, initial_state, make_body


def push_errors(pusher: str, block: str, n: int) -> np.ndarray:
    """Differences between copy and original after one straight push each, px."""
    env, body = PushTEnv(pusher=pusher, block=block), make_body(BLOCKS[block], pusher)
    errors = []
    for seed in range(n):
        env.reset(seed=1000 + seed)
        env.step(env.agent.position)  # a pusher that starts inside the block is pushed out
        pose = np.array([*env.block.position, env.block.angle])
        state = initial_state(body, np.array(env.agent.position), pose)
        aim = state[4:6] + np.random.default_rng(seed).uniform(-30, 30, 2) - state[:2]
        distance = np.linalg.norm(aim)
        targets = state[:2] + np.outer(6.0 * np.arange(1, distance / 6 + 8), aim / distance)
        final = follow_targets(state, targets, body)[-1]
        for target in targets:
            env.step(target)
        center = env.block.local_to_world(env.block.center_of_gravity)
        errors.append(np.hypot(*(final[4:6] - center)) + 60 * abs(final[6] - env.block.angle))
    return np.array(errors)


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@pytest.mark.parametrize("block", ["tee", "zed"])
def test_the_simulator_follows_pymunk_through_a_push(pusher: str, block: str) -> None:
    errors = push_errors(pusher, block, 30)
    assert np.median(errors) < 1e-4
    assert (errors < 2).mean() >= 0.85  # two simultaneous contacts may settle differently


def test_a_wall_pushes_the_block_back_as_in_pymunk() -> None:
    body, env = make_body(BLOCKS["tee"], "disc"), PushTEnv()
    env.reset(options={"reset_to_state": [60, 60, 256, 390, 0.0]})  # the foot of the T is inside the wall
    state = initial_state(body, np.array([60.0, 60.0]), np.array([*env.block.position, env.block.angle]))
    states = follow_targets(state, np.full((30, 2), 60.0), body)
    for _ in range(30):
        env.step([60, 60])
    center = env.block.local_to_world(env.block.center_of_gravity)
    assert np.hypot(*(states[-1, 4:6] - center)) < 0.5
    assert states[-1, 5] + 75 < 504.5
