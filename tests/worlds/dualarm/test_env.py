"""The dual-arm environment: the same interface for both robots."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import recap_worlds.envs  # noqa: F401  registers the ids
from recap.errors import InputError
from recap.geometry3 import encode_arms
from recap.types import F64
from recap_worlds.dualarm.env import HOLD_STEPS, DualArmEnv
from recap_worlds.dualarm.expert import Expert
from recap_worlds.dualarm.robots import ROBOTS, SIDES
from recap_worlds.dualarm.waypoints import down


def action(left: F64, right: F64, grips: tuple[float, float] = (1.0, 1.0)) -> F64:
    return encode_arms(left[None], np.array(grips[:1]), right[None], np.array(grips[1:]))[0]


@pytest.mark.parametrize("robot", sorted(ROBOTS))
def test_the_env_passes_gymnasiums_check(robot: str) -> None:
    env = gym.make("recap/DualArm-MoveCanPot-v0", embodiment=robot, image_size=16)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*we recommend using a symmetric and normalized space.*")
        check_env(env.unwrapped)
    env.close()


def test_the_same_seed_gives_the_same_episode() -> None:
    runs = []
    for _ in range(2):
        env = DualArmEnv("move_can_pot", "viperx", image_size=0)
        expert = Expert("move_can_pot")
        env.reset(seed=510)
        for _ in range(40):
            observation = env.observe(0)
            env.step(expert.act(observation))
        env.reset(seed=511)
        env.reset(seed=510)  # earlier episodes have no effect
        for _ in range(40):
            env.step(action(down((-0.2, 0, 0.1)), down((0.2, 0.1, 0.1))))
        runs.append((observation.proprio, env.proprio(), env.data.qpos.copy()))
    for one, two in zip(*runs, strict=True):
        assert np.array_equal(one, two)


def test_a_seed_gives_the_same_scene_on_both_robots() -> None:
    seen = []
    for robot in ROBOTS:
        env = DualArmEnv("pick_dual_bottles", robot, image_size=0)
        env.reset(seed=520)
        seen.append(env.observe(0))
    assert list(seen[0].objects) == ["left_bottle", "right_bottle"]
    assert seen[0].task == seen[1].task
    for name in seen[0].objects:
        assert np.abs(seen[0].objects[name] - seen[1].objects[name]).max() < 1e-6
    assert np.abs(seen[0].proprio - seen[1].proprio).max() < 5e-3


def test_different_seeds_give_different_scenes() -> None:
    env = DualArmEnv("lift_pot", image_size=0)
    places = []
    for seed in range(500, 510):
        env.reset(seed=seed)
        places.append(env.observe(0).objects["pot"][:2])
    gaps = np.linalg.norm(np.array(places)[:, None] - np.array(places)[None], axis=-1)
    assert gaps[~np.eye(10, dtype=bool)].min() > 1e-3
    assert gaps.max() > 0.15


@pytest.mark.parametrize("robot", sorted(ROBOTS))
def test_the_tools_reach_their_targets(robot: str) -> None:
    env = DualArmEnv("move_can_pot", robot, image_size=0)
    env.reset(seed=500)
    wanted = action(down((-0.3, 0.15, 0.2), 30), down((0.1, -0.2, 0.15), -40), (0.2, 0.7))
    for _ in range(50):
        env.step(wanted)
    assert np.abs(env.proprio() - wanted)[[0, 1, 2, 10, 11, 12]].max() < 2e-3
    assert np.abs(env.proprio() - wanted).max() < 0.03


@pytest.mark.parametrize("robot", sorted(ROBOTS))
def test_the_arms_collide_with_the_table_and_with_each_other(robot: str) -> None:
    env = DualArmEnv("lift_pot", robot, image_size=0)
    env.reset(seed=500)
    for _ in range(40):
        env.step(action(down((-0.3, -0.2, -0.2)), down((0.3, -0.2, -0.2))))
    assert env.proprio()[[2, 12]].min() > 0, "the fingers stay above the table"
    env.reset(seed=500)
    for _ in range(60):
        env.step(action(down((0.02, 0.0, 0.25)), down((-0.02, 0.0, 0.25))))
    assert env.proprio()[10] - env.proprio()[0] > 0.02, "the hands meet and stop"


@pytest.mark.parametrize(
    "bad",
    [np.zeros(20), np.full(20, np.nan), np.zeros(7), "up", None, np.zeros((2, 10))],
    ids=["no rotation", "nan", "short", "text", "none", "shape"],
)
def test_an_invalid_action_is_an_error_of_one_line(bad: object) -> None:
    env = DualArmEnv("lift_pot", image_size=0)
    env.reset(seed=500)
    with pytest.raises(InputError) as error:
        env.step(bad)
    assert "action" in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_names_are_errors_with_a_suggestion() -> None:
    for make in (
        lambda: DualArmEnv("lift_pott", image_size=0),
        lambda: DualArmEnv("lift_pot", "ur5", image_size=0),
        lambda: DualArmEnv("lift_pot", split="cleaned", image_size=0),
        lambda: DualArmEnv("lift_pot", image_size=0).reset(options={"wording": "unsen"}),
        lambda: DualArmEnv("lift_pot", image_size=0).reset(options={"word": "seen"}),
    ):
        with pytest.raises(InputError, match="did you mean"):
            make()


def test_the_wording_depends_on_the_seed_and_the_wording_option() -> None:
    env = DualArmEnv("lift_pot", image_size=0)
    seen, unseen, places = set(), set(), []
    for seed in range(500, 516):
        seen.add(env.reset(seed=seed)[1]["task"])
        places.append(env.observe(0).objects["pot"])
        unseen.add(env.reset(seed=seed, options={"wording": "unseen"})[1]["task"])
        assert np.array_equal(env.observe(0).objects["pot"], places[-1]), (
            "the wording does not change the scene"
        )
    assert len(seen) >= 3
    assert seen <= set(env.task.seen)
    assert unseen == set(env.task.unseen)


def test_success_must_last_for_hold_steps() -> None:
    env = DualArmEnv("open_microwave", image_size=0)
    env.reset(seed=500)
    still = env.proprio()
    env.data.joint("door").qpos[0] = np.radians(90)
    done = [env.step(still)[2] for _ in range(HOLD_STEPS)]
    assert done == [False] * (HOLD_STEPS - 1) + [True]


def test_an_episode_ends_after_the_tasks_number_of_steps() -> None:
    env = DualArmEnv("grab_roller", image_size=0)
    env.reset(seed=500)
    env._steps = env.task.max_steps - 1
    terminated, truncated = env.step(env.proprio())[2:4]
    assert truncated
    assert not terminated


def test_diverging_physics_truncates_the_episode_at_the_last_valid_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = DualArmEnv("grab_roller", image_size=0)
    env.reset(seed=500)
    before = env.observe(0)
    env.data.joint("roller").qvel[:] = 1e12
    _, _, terminated, truncated, info = env.step(env.proprio())
    assert truncated
    assert info["broken"]
    assert not terminated
    assert np.abs(env.observe(0).objects["roller"] - before.objects["roller"]).max() < 1e-3
    assert not list(tmp_path.iterdir()), "the engine's log is not written to the user's directory"
    env.reset(seed=500)
    assert not env.step(env.proprio())[4]["broken"]


def test_the_state_lists_which_side_touches_an_object() -> None:
    env = DualArmEnv("pick_dual_bottles", image_size=0)
    env.reset(seed=500)
    expert = Expert("pick_dual_bottles")
    assert not any(env.state().touching.values())
    for _ in range(40):
        env.step(expert.act(env.observe(0)))
    assert {side: env.state().touching[f"{side}_bottle"] for side in SIDES} == {
        side: frozenset({side}) for side in SIDES
    }


def test_opengl_is_not_imported_without_cameras() -> None:
    program = (
        "import sys, recap, recap_worlds\n"
        "assert 'mujoco' not in sys.modules\n"
        "from recap_worlds.dualarm.env import DualArmEnv\n"
        "env = DualArmEnv('lift_pot', image_size=0)\n"
        "env.reset(seed=500); env.step(env.proprio())\n"
        "assert 'OpenGL' not in sys.modules\n"
    )
    plain = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}  # robosuite sets it
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=plain)
