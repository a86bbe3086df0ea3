"""Exports in RoboTwin's layouts: read back unchanged, and readable by RoboTwin's own training scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from arms import RED, arms_episode, picture
from robotwin_scripts import act, dp, instructions, newer

from recap.errors import InputError, RunDirectoryError
from recap.geometry3 import quaternion_to_rotation6
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.robotwin_write import LAYOUTS, Layout, write_robotwin
from recap.types import Episode

CAMERAS = ("head", "left_wrist", "right_wrist")


def two() -> list[Episode]:
    return [arms_episode("a", 1, cameras=CAMERAS), arms_episode("b", 2, 25, task="raise it", cameras=CAMERAS)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_export_reads_back_unchanged(tmp_path: Path, layout: Layout) -> None:
    folder = write_robotwin(two(), tmp_path / "data", "lift_pot", "ur5e_clean", layout=layout)
    assert folder == tmp_path / "data/lift_pot/ur5e_clean"
    source = open_source(folder)
    assert (source.format, len(source)) == ("robotwin", 2)
    assert not check_dataset(source)
    for i, (wanted, found) in enumerate(zip(two(), source, strict=True)):
        np.testing.assert_allclose(found.proprio, wanted.proprio, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.actions, wanted.actions, rtol=0, atol=1e-6)
        assert found.task == wanted.task
        assert found.fps == wanted.fps
        assert found.id == f"lift_pot/ur5e_clean/episode{i}"
        assert found.attributes["seed"] == wanted.attributes["seed"]
        assert found.attributes["task_key"] == "lift_pot"
        assert found.attributes["scene.split"] == "clean"
        assert found.attributes["scene.embodiment"] == "ur5e"
        assert set(found.images) == set(CAMERAS)
        assert list(found.objects) == ["pot", "lid"], "in the order in which the robot acts on them"
        for name, poses in wanted.objects.items():
            np.testing.assert_array_equal(found.objects[name], poses)


def test_only_the_newer_layout_keeps_actions_that_are_not_the_next_state(tmp_path: Path) -> None:
    episode = arms_episode("a", 1)
    ahead = replace(episode, actions=np.concatenate([episode.actions[5:], episode.actions[-5:]]))
    newer = open_source(write_robotwin([ahead], tmp_path, "t", "newer", layout="v1.0"))[0]
    np.testing.assert_allclose(newer.actions, ahead.actions, rtol=0, atol=1e-6)
    release = open_source(write_robotwin([ahead], tmp_path, "t", "release"))[0]
    np.testing.assert_allclose(release.actions, episode.actions, rtol=0, atol=1e-6)


def test_images_are_stored_with_red_and_blue_swapped_as_robotwin_does(tmp_path: Path) -> None:
    folder = write_robotwin([arms_episode("a", n=10)], tmp_path, "t", "c")
    frame = open_source(folder)[0].images["head"][3]
    assert np.abs(frame.astype(int) - picture(0.3)).mean() < 6
    assert np.abs(frame[12, 28].astype(int) - RED).max() < 12
    with h5py.File(folder / "data/episode0.hdf5") as file:
        stored = file["observation/head_camera/rgb"]
        assert stored.shape == (10,)
        assert stored.dtype.kind == "S"
        assert stored.dtype.itemsize == max(len(bytes(data)) for data in stored)
        data = np.frombuffer(bytes(stored[3]), np.uint8)
    other = cv2.imdecode(data, cv2.IMREAD_COLOR_RGB)  # as a standard decoder reads it
    assert other is not None
    assert other[12, 28, 2] > 150


def test_poses_have_wxyz_quaternions_without_sign_jumps(tmp_path: Path) -> None:
    turning = arms_episode("a", turn=2 * np.pi)  # beyond half a turn w changes its sign
    folder = write_robotwin([turning], tmp_path, "t", "c")
    with h5py.File(folder / "data/episode0.hdf5") as file:
        left = file["endpose/left_endpose"][()]
        gripper = file["endpose/left_gripper"][()]
    assert left.shape == (40, 7)
    np.testing.assert_allclose(left[0, 3:], [1, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(left[:, 3:], axis=1), 1)
    assert (left[:, 3] < -0.9).any(), "after a full turn the quaternion is (-1, 0, 0, 0)"
    assert (np.linalg.norm(np.diff(left[:, 3:], axis=0), axis=1) < 0.3).all()
    np.testing.assert_allclose(quaternion_to_rotation6(left[:, 3:]), turning.proprio[:, 3:9], atol=1e-6)
    np.testing.assert_allclose(left[:, :3], turning.proprio[:, :3], atol=1e-7)
    np.testing.assert_allclose(gripper, turning.proprio[:, 9])


def test_joints_are_written_for_episodes_that_have_them(tmp_path: Path) -> None:
    angles = np.arange(40 * 6).reshape(40, 6) / 100
    joints = {"a": (angles, angles + 1)}
    folder = write_robotwin([arms_episode("a"), arms_episode("b")], tmp_path, "t", "c", joints=joints)
    with h5py.File(folder / "data/episode0.hdf5") as file:
        vector = file["joint_action/vector"][()]
        gripper = file["endpose/right_gripper"][()]
    np.testing.assert_array_equal(vector[:, :6], angles)
    np.testing.assert_array_equal(vector[:, 7:13], angles + 1)
    np.testing.assert_array_equal(vector[:, 13], gripper)
    with h5py.File(folder / "data/episode1.hdf5") as file:
        assert "joint_action" not in file
    with pytest.raises(InputError, match="do not fit 40 frames"):
        write_robotwin([arms_episode("a")], tmp_path, "t", "d", joints={"a": (angles[1:], angles)})


def test_seeds_instructions_and_scene_info_are_written(tmp_path: Path) -> None:
    folder = write_robotwin(two(), tmp_path, "t", "c")
    assert (folder / "seed.txt").read_text() == "100001 100002"
    assert json.loads((folder / "instructions/episode1.json").read_text())["seen"] == ["raise it"]
    assert json.loads((folder / "scene_info.json").read_text())["episode_1"]["info"]["split"] == "clean"
    nameless = [replace(episode, attributes={}) for episode in two()]
    assert not (write_robotwin(nameless, tmp_path, "t", "d") / "seed.txt").exists()


def test_an_export_overwrites_nothing_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder = write_robotwin([arms_episode("a", n=5)], tmp_path, "t", "c")
    before = (folder / "data/episode0.hdf5").read_bytes()
    with pytest.raises(RunDirectoryError, match="exists already"):
        write_robotwin([arms_episode("b", n=5)], tmp_path, "t", "c")
    assert (folder / "data/episode0.hdf5").read_bytes() == before
    planar = replace(arms_episode("b", n=5), proprio=np.zeros((5, 2), np.float32))
    with pytest.raises(InputError, match=r"two arms, \(t, 20\)"):
        write_robotwin([arms_episode("a", n=5), planar], tmp_path / "other", "t", "d")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t"]
    assert [entry.name for entry in (tmp_path / "t").iterdir()] == ["c"]


def test_episodes_that_do_not_fit_the_layout_are_refused(tmp_path: Path) -> None:
    episode = arms_episode("a", n=5)
    flat = episode.proprio.copy()
    flat[2, 3:9] = 0.1
    grey = {"head": [np.zeros((8, 8), np.uint8)] * 5}
    for wrong, words in (
        (replace(episode, proprio=flat), "no poses .left arm"),
        (replace(episode, proprio=np.full_like(flat, np.nan)), "no pose"),
        (replace(episode, images=grey), "camera 'head'"),
        (replace(episode, images={"head": [picture(0)] * 4}), "4 frames, not 5"),
        (replace(episode, objects={"a/b": np.zeros((5, 7), np.float32)}), "no object name"),
    ):
        with pytest.raises(InputError, match=words):
            write_robotwin([wrong], tmp_path / "x", "t", "c")
    with pytest.raises(InputError, match="no task name"):
        write_robotwin([episode], tmp_path / "x", "../t", "c")
    with pytest.raises(InputError, match="no demonstration"):
        write_robotwin([], tmp_path / "x", "t", "c")
    assert not (tmp_path / "x").exists()


def in_joints(name: str, width: int = 14, n: int = 12) -> Episode:
    """Two arms in joint space, as ALOHA's: the action is the next state."""
    episode = arms_episode(name, 1, n, cameras=CAMERAS)
    values = np.random.default_rng(n).uniform(0, 1, (n + 1, width)).astype(np.float32)
    return replace(episode, proprio=values[:-1], actions=values[1:], objects={})


@pytest.mark.parametrize("width", [14, 16])
def test_an_episode_in_joint_space_is_written_as_joint_action(tmp_path: Path, width: int) -> None:
    episode = in_joints("a", width)
    folder = write_robotwin([episode], tmp_path, "t", "c")
    with h5py.File(folder / "data/episode0.hdf5") as file:
        assert "endpose" not in file
        np.testing.assert_array_equal(file["joint_action/vector"][()], episode.proprio)
        assert file["joint_action/left_arm"].shape == (12, width // 2 - 1)
        assert file["joint_action/left_gripper"].shape == (12,)
    np.testing.assert_array_equal(open_source(folder)[0].proprio, episode.proprio)
    kept = open_source(write_robotwin([episode], tmp_path, "t", "d", layout="v1.0"))[0]
    np.testing.assert_array_equal(kept.actions, episode.actions)


def test_an_export_is_readable_by_robotwins_training_scripts(tmp_path: Path) -> None:
    episodes = [in_joints("a"), in_joints("b", n=9)]
    folder = write_robotwin(episodes, tmp_path, "t", "c")
    wanted = np.concatenate([episode.proprio[:-1] for episode in episodes])
    for read in (act, dp):
        states, actions, pictures = read(folder, 2)
        np.testing.assert_array_equal(states, wanted)
        np.testing.assert_array_equal(actions[:11], episodes[0].proprio[1:])
        assert {len(frames) for frames in pictures.values()} == {19}
    assert act(folder, 2)[2]["left_camera"].shape == (19, 480, 640, 3)
    folder = write_robotwin(episodes, tmp_path, "t", "d", layout="v1.0")
    states, actions, pictures = newer(folder, 2)
    np.testing.assert_array_equal(states, np.concatenate([episode.proprio for episode in episodes]))
    np.testing.assert_array_equal(actions, np.concatenate([episode.actions for episode in episodes]))
    assert {frames.shape for frames in pictures.values()} == {(21, *picture(0).shape)}
    assert instructions(folder) == [episode.task for episode in episodes]


def test_given_joints_become_next_step_actions_in_the_newer_layout(tmp_path: Path) -> None:
    angles = np.arange(40 * 6).reshape(40, 6) / 100
    joints = {"a": (angles, angles + 1)}
    folder = write_robotwin([arms_episode("a")], tmp_path, "t", "c", joints=joints, layout="v1.0")
    states, actions, _ = newer(folder, 1)
    np.testing.assert_array_equal(states[:, 7:13], angles + 1)
    np.testing.assert_array_equal(actions[:-1, :6], angles[1:])
    assert open_source(folder)[0].proprio.shape == (40, 20), "the reader prefers poses to joints"


@pytest.mark.long
def test_collected_demonstrations_are_readable_by_robotwins_training_scripts(tmp_path: Path) -> None:
    """The recorded joints of the suite's MuJoCo expert are those of the simulator."""
    from recap_worlds.dualarm.collecting import DualArmSpec, collect_robotwin
    from recap_worlds.dualarm.env import DualArmEnv

    spec = DualArmSpec("lift_pot", "ur5e", episodes=2, image_size=64)
    collect_robotwin(spec, tmp_path / "lift_pot/release")
    for read in (act, dp):
        states, actions, _ = read(tmp_path / "lift_pot/release", 2)
        assert states.shape == actions.shape
        assert states.shape[1] == 14
        np.testing.assert_array_equal(states[1:20], actions[:19])
    episode = open_source(tmp_path / "lift_pot/release")[0]
    env = DualArmEnv("lift_pot", "ur5e", image_size=0)
    env.reset(seed=int(episode.attributes["seed"]))
    np.testing.assert_allclose(env.joints().ravel(), np.delete(states[0], (6, 13)), atol=1e-6)
    for t in (0, 10, 40):  # forward kinematics of a frame's joints gives that frame's tool poses
        arms = np.delete(dp(tmp_path / "lift_pot/release", 1)[0][t], (6, 13)).reshape(2, 6)
        tools = env._kinematics.tools(arms)
        np.testing.assert_allclose(tools[0, :3], episode.proprio[t, :3], atol=1e-3)
    collect_robotwin(spec, tmp_path / "lift_pot/newer", layout="v1.0")
    assert newer(tmp_path / "lift_pot/newer", 2)[0].shape[1] == 14
