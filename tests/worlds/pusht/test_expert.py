"""The expert solves its scenes smoothly and reproducibly."""

import numpy as np
import pytest

from recap.errors import InputError
from recap.types import Observation
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.expert import Expert


def solve(expert: Expert, env: PushTEnv, angle: float, seed: int, noise: float = 0.0) -> np.ndarray:
    """The actions (t, 2) of one episode; fails the test when it does not succeed."""
    env.reset(seed=seed, options={"goal_angle": angle})
    expert.reset(seed)
    rng = np.random.default_rng(seed)
    actions = []
    for _ in range(300):
        actions.append(expert.act(env.observe()))
        if env.step(actions[-1] + noise * rng.normal(size=2))[2]:
            return np.array(actions)
    raise AssertionError(f"angle {angle}, seed {seed}: not solved in 300 steps")


@pytest.mark.parametrize("pusher", ["disc", "triangle"])
@pytest.mark.parametrize("block", ["tee", "ell", "zed", "plus", "cup"])
def test_the_expert_solves_every_block_with_either_pusher(pusher: str, block: str) -> None:
    expert, env = Expert(pusher, block), PushTEnv(pusher=pusher, block=block)
    for angle, seed in ((-60.0, 800), (17.0, 801), (45.0, 802)):
        solve(expert, env, angle, seed)


def test_the_experts_actions_are_smooth_and_within_the_board() -> None:
    expert, env = Expert("triangle"), PushTEnv(pusher="triangle")
    for seed in range(810, 816):
        actions = solve(expert, env, -30.0, seed)
        assert actions.min() >= 0
        assert actions.max() <= 512
        steps = np.linalg.norm(np.diff(actions, axis=0), axis=1)
        bends = np.linalg.norm(np.diff(actions, n=2, axis=0), axis=1)
        assert steps.mean() < 9
        assert bends.mean() < 2


def test_the_same_seed_gives_the_same_actions() -> None:
    expert, env = Expert("disc"), PushTEnv()
    first = solve(expert, env, 15.0, 820)
    solve(expert, env, -15.0, 821)  # another episode has no effect
    assert np.array_equal(first, solve(expert, env, 15.0, 820))
    assert np.array_equal(first, solve(Expert("disc"), PushTEnv(), 15.0, 820))


def test_the_expert_recovers_from_noise() -> None:
    expert, env = Expert("disc"), PushTEnv()
    for seed in range(830, 834):
        solve(expert, env, 30.0, seed, noise=8.0)


def test_speed_scales_the_time_taken() -> None:
    env = PushTEnv()
    steps = {
        s: np.mean([len(solve(Expert("disc", speed=s), env, 0.0, k)) for k in (840, 841, 842)])
        for s in (0.5, 1, 2)
    }
    assert steps[0.5] > 1.4 * steps[1]
    assert steps[2] < 0.8 * steps[1]


def test_styles_give_different_paths() -> None:
    env = PushTEnv()
    ways = [solve(Expert("disc", style=k), env, 0.0, 850)[:20] for k in range(4)]
    assert len({way.tobytes() for way in ways}) == 4
    spread = np.ptp([way[-1] for way in ways], axis=0)
    assert spread.max() > 20


def test_an_observation_without_poses_is_an_error() -> None:
    blind = Observation(proprio=np.zeros(2, np.float32), task="", time_s=0.0)
    with pytest.raises(InputError, match="block's pose"):
        Expert("disc").act(blind)


@pytest.mark.parametrize(("keywords", "words"), [({"speed": 0.0}, "speed"), ({"block": "tea"}, "'tee'")])
def test_invalid_settings_are_errors(keywords: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Expert("disc", **keywords)  # type: ignore[arg-type]
