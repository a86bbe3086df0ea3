"""Camera images of the dual-arm world."""

import os
import subprocess
import sys

import numpy as np
import pytest

from recap.errors import InputError
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.robots import ROBOTS
from recap_worlds.dualarm.scenes import CAMERAS
from recap_worlds.dualarm.tasks import SEEN, UNSEEN


@pytest.mark.parametrize("robot", sorted(ROBOTS))
def test_every_camera_image_has_content_and_the_head_camera_shows_both_arms(robot: str) -> None:
    env = DualArmEnv("move_can_pot", robot, image_size=64)
    pictures = env.reset(seed=500)[0]
    for camera in CAMERAS:
        assert pictures[camera].shape == (64, 64, 3)
        assert len(np.unique(pictures[camera].reshape(-1, 3), axis=0)) > 20
    groups = env.model.geom_group.copy()
    for half, side in ((np.s_[:, :32], "left"), (np.s_[:, 32:], "right")):
        arm = [env.model.geom(i).id for i in range(env.model.ngeom) if _belongs(env, i, side)]
        env.model.geom_group[arm] = 3  # hidden
        without = env.draw(64, ("head",))["head"]
        env.model.geom_group[:] = groups
        differs = (without != pictures["head"]).any(axis=-1)
        assert differs[half].mean() > 0.02
    env.close()


def _belongs(env: DualArmEnv, geom: int, side: str) -> bool:
    return bool(env.model.body(env.model.geom_bodyid[geom]).name.startswith(f"{side}/"))


@pytest.mark.parametrize("key", sorted((*SEEN, *UNSEEN)))
def test_the_head_camera_shows_every_object(key: str) -> None:
    env = DualArmEnv(key, "ur5e", image_size=0)
    for seed in range(560, 564):
        env.reset(seed=seed)
        shown = env.draw(64, ("head",))["head"]
        colours = env.model.geom_rgba.copy()
        for name in env.task.objects:
            mine = env.model.geom_bodyid == env.model.body(name).id
            env.model.geom_rgba[mine, :3] = 1 - colours[mine, :3]
            changed = (env.draw(64, ("head",))["head"] != shown).any(axis=-1)
            env.model.geom_rgba[:] = colours
            assert changed.sum() >= 12, f"{name} at seed {seed}"
    env.close()


def test_images_have_any_size_and_are_reproducible() -> None:
    env = DualArmEnv("lift_pot", image_size=0)
    env.reset(seed=500)
    small = env.observe(32).images
    assert env.observe(100).images["head"].shape == (100, 100, 3)
    for camera, picture in env.observe(32).images.items():
        assert np.array_equal(picture, small[camera])
    assert env.render().shape == (480, 480, 3)
    env.close()
    with pytest.raises(InputError, match="image size"):
        DualArmEnv("lift_pot", image_size=4)


def test_the_randomised_split_changes_the_appearance_but_not_the_scene() -> None:
    clean, mixed = (DualArmEnv("lift_pot", split=s, image_size=0) for s in ("clean", "randomised"))
    pictures = []
    for seed in (500, 501):
        clean.reset(seed=seed)
        mixed.reset(seed=seed)
        pictures += [clean.draw(48, ("head",))["head"], mixed.draw(48, ("head",))["head"]]
        assert np.abs(clean.observe(0).objects["pot"] - mixed.observe(0).objects["pot"]).max() < 1e-6
    corner = [picture[-8:, -8:].astype(int).mean(axis=(0, 1)) for picture in pictures]
    assert np.abs(corner[0] - corner[2]).max() < 1, "the clean table looks the same"
    assert np.abs(corner[1] - corner[3]).max() > 5, "the other one does not"
    mixed.reset(seed=501)
    assert np.array_equal(mixed.draw(48, ("head",))["head"], pictures[3])
    clean.close()
    mixed.close()


def test_missing_graphics_libraries_are_an_error_that_names_the_command() -> None:
    program = (
        "from recap_worlds.dualarm.env import DualArmEnv\n"
        "from recap.errors import RecapError\n"
        "env = DualArmEnv('lift_pot', image_size=0)\n"
        "env.reset(seed=500)\n"
        "try:\n    env.observe(32)\n"
        "except RecapError as error:\n    print(error)\n"
    )
    # A platform that neither backend accepts simulates a machine without their libraries.
    environment = os.environ | {"MUJOCO_GL": "", "PYOPENGL_PLATFORM": "wgl"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "make system" in done.stdout
    assert done.stdout.count("\n") == 1
