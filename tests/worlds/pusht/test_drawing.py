"""The camera image: that of gym-pusht, anti-aliased, at any size."""

import numpy as np
import pytest
from gym_pusht.envs.pusht import PushTEnv as StockPushTEnv

from recap_worlds.pusht.env import PushTEnv

START = {"reset_to_state": [150, 200, 200, 300, 1.0]}


def test_the_image_equals_gym_pushts_except_at_edges() -> None:
    stock = StockPushTEnv(obs_type="pixels", observation_width=512, observation_height=512)
    ours = PushTEnv(obs_type="pixels", observation_size=512)
    a, b = (env.reset(options=START)[0].astype(int) for env in (stock, ours))
    different = np.abs(a - b).max(axis=2) > 40
    assert different.mean() < 0.004  # lines are a pixel here or there
    assert np.abs(a - b).mean() < 0.6


@pytest.mark.parametrize("size", [64, 96, 128])
def test_a_small_image_is_the_large_one_averaged(size: int) -> None:
    env = PushTEnv(pusher="triangle", block="zed")
    env.reset(seed=700)
    large = env.draw(8 * size).astype(float)
    averaged = large.reshape(size, 8, size, 8, 3).mean(axis=(1, 3))
    assert np.abs(averaged - env.draw(size)).mean() < 0.6


def test_pushers_have_different_colours() -> None:
    pictures = {}
    for pusher in ("disc", "triangle"):
        env = PushTEnv(pusher=pusher)
        env.reset(options=START)
        pictures[pusher] = env.draw(96)[37, 28]
    r, _, b = pictures["disc"].tolist()
    assert b > 200 > r
    r, _, b = pictures["triangle"].tolist()
    assert r > 200 > b


def test_render_marks_the_target_inside_the_image() -> None:
    env = PushTEnv(visualization_size=100)
    env.reset(seed=700)
    for corner in ([0, 0], [512, 512], [0, 512]):
        env.step(corner)
        picture = env.render()
        assert picture.shape == (100, 100, 3)
        assert (picture == (220, 20, 60)).all(axis=2).any()
