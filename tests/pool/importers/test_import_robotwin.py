"""RoboTwin 2.0: both layouts, colours, poses, and the files beside the data."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from source_files import RED, gripper, image, jpegs, path_of, poses, write_robotwin, write_robotwin_v1

from recap.errors import DatasetError, RecapError
from recap.geometry3 import decode_arms, encode_arms
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset


def test_the_release_layout_is_read(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "grab_roller/demo_clean")
    source = open_source(folder)
    assert (source.format, len(source)) == ("robotwin", 2)
    episode = source[1]
    expected = encode_arms(poses(10, 10), gripper(10), poses(10, 11), gripper(10)).astype(np.float32)
    np.testing.assert_array_equal(episode.proprio, expected)
    np.testing.assert_array_equal(episode.actions, np.concatenate([expected[1:], expected[-1:]]))
    assert episode.fps == pytest.approx(16.7, abs=0.05)
    assert episode.task == "grab roller 1"
    assert episode.id == "grab_roller/demo_clean/episode1"
    assert episode.scene_id == "grab_roller/demo_clean/seed-10"
    assert dict(episode.attributes) == {
        "seed": 10,
        "task_key": "grab_roller",
        "scene.A": "102_roller/base0",
        "scene.a": "left",
    }
    assert list(episode.images) == ["head", "left_wrist"]
    left = decode_arms(episode.proprio)[0]
    np.testing.assert_allclose(left[:, :3], poses(10, 10)[:, :3], atol=1e-6)
    assert not check_dataset(source)
    assert source.describe().lengths == (10, 10)


@pytest.mark.parametrize("what", ["data", "data/episode0.hdf5"])
def test_the_data_folder_or_a_single_file_can_be_opened(tmp_path: Path, what: str) -> None:
    source = open_source(write_robotwin(tmp_path / "task/config") / what)
    assert source.format == "robotwin"
    assert source[0].task == "grab roller 0"
    assert source[0].attributes["seed"] == 7


def test_images_are_rgb_although_the_jpegs_have_red_and_blue_swapped(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    frame = open_source(folder)[0].images["head"][2]
    assert frame.shape == (32, 48, 3)
    assert np.abs(frame[20, 20].astype(int) - RED).max() < 12
    assert np.abs(frame.astype(int) - image(2)).mean() < 4
    # In the file red and blue are swapped, because OpenCV encoded the RGB array as BGR. OpenCV's decoder
    # swaps them back; a standard decoder returns blue for red.
    data = np.frombuffer(jpegs(1)[0], np.uint8)
    other = cv2.imdecode(data, cv2.IMREAD_COLOR_RGB)
    assert other is not None
    assert other[20, 20, 2] > 150


def test_frames_are_decoded_on_access(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    with h5py.File(folder / "data/episode0.hdf5", "r+") as file:
        file["observation/head_camera/rgb"][4] = b"\xff\xd8no jpeg"
    frames = open_source(folder)[0].images["head"]
    assert frames[3].shape == (32, 48, 3)
    with pytest.raises(DatasetError, match="frame 4 is neither JPEG"):
        frames[4]


def test_a_jpeg_that_declares_a_huge_size_is_not_decoded(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    data = bytearray(jpegs(1)[0])
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with h5py.File(folder / "data/episode0.hdf5", "r+") as file:
        file["observation/head_camera/rgb"][0] = bytes(data)
    with pytest.raises(DatasetError, match="65535x65535"):
        open_source(folder)[0].images["head"][0]
    assert [f.code for f in check_dataset(open_source(folder))] == ["image-damaged"]


@pytest.mark.parametrize("action_poses", [True, False])
def test_the_main_branch_layout_is_read(tmp_path: Path, action_poses: bool) -> None:
    path = tmp_path / "mic/clean/data/episode_0000003.hdf5"
    write_robotwin_v1(path, action_poses=action_poses, text=str if action_poses else np.bytes_)
    episode = open_source(path)[0]
    state = encode_arms(poses(10, 0), gripper(10), poses(10, 1), gripper(10)).astype(np.float32)
    kept = encode_arms(poses(10, 5), gripper(10), poses(10, 6), gripper(10)).astype(np.float32)
    following = np.concatenate([state[1:], state[-1:]])
    np.testing.assert_array_equal(episode.proprio, state)
    np.testing.assert_array_equal(episode.actions, kept if action_poses else following)
    assert episode.task == "hand the mic over"
    assert list(episode.images) == ["head"]
    assert np.abs(episode.images["head"][0][20, 20].astype(int) - RED).max() < 12


def test_the_frame_rate_is_read_from_the_file_if_it_has_one(tmp_path: Path) -> None:
    path = write_robotwin_v1(tmp_path / "data/episode0.hdf5")
    with h5py.File(path, "r+") as file:
        file["additional_info/frequency"] = 25
    assert open_source(path)[0].fps == 25
    assert open_source(path, fps=12.5)[0].fps == 12.5
    with h5py.File(path, "r+") as file:
        del file["additional_info/frequency"]
        file["additional_info/frequency"] = "often"
    with pytest.raises(DatasetError, match="no number"):
        open_source(path)[0]


def test_joints_are_used_if_there_are_no_poses(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "episode0.hdf5", "w") as file:
        file["joint_action/vector"] = path_of(6, 0, 14)
    episode = open_source(tmp_path / "episode0.hdf5")[0]
    assert episode.proprio.shape == (6, 14)
    assert "joint" in episode.action_space
    mapped = write_robotwin(tmp_path / "task/config", 1)
    mapping = {"proprio": "joint_action/vector", "action": "next:joint_action/vector"}
    assert open_source(mapped, mapping=mapping)[0].actions.shape == (10, 14)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ('["a", "b"]', "a"),
        ("just words", "just words"),
        ('"quoted"', "quoted"),
        ('{"unseen": ["u"]}', "u"),
        ("{}", ""),
    ],
)
def test_the_task_is_read_from_any_form_of_instructions(tmp_path: Path, text: str, task: str) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    (folder / "instructions/episode0.json").write_text(text)
    assert open_source(folder)[0].task == task


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("instructions/episode0.json", "[3]"),
        ("instructions/episode0.json", '["a\\u0007b"]'),
        ("seed.txt", "one two"),
        ("seed.txt", "9" * 6000),
        ("scene_info.json", "{"),
        ("scene_info.json", "[]"),
        ("scene_info.json", " " * 2**21),
    ],
)
def test_damaged_files_beside_the_data_are_a_one_line_error(tmp_path: Path, name: str, text: str) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    (folder / name).write_text(text)
    with pytest.raises(DatasetError) as caught:
        open_source(folder)[0]
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_camera_with_an_odd_name_is_refused(tmp_path: Path) -> None:
    path = write_robotwin_v1(tmp_path / "data/episode0.hdf5")
    with h5py.File(path, "r+") as file:
        file.move("vision/cam_head", "vision/.hidden")
    with pytest.raises(RecapError, match="is no plain name"):
        open_source(path)


def test_a_key_missing_from_a_later_file_is_named(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "task/config")
    with h5py.File(folder / "data/episode1.hdf5", "r+") as file:
        del file["endpose/left_endpose"]
    source = open_source(folder)
    assert len(source[0]) == 10
    with pytest.raises(DatasetError, match="left_endpose"):
        source[1]


def test_flipped_bytes_raise_only_recap_errors(tmp_path: Path) -> None:
    path = write_robotwin_v1(tmp_path / "data/episode0.hdf5", 4, text=np.bytes_)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), size=rng.integers(1, 30)):
            damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            episode = open_source(path)[0]
            for frames in episode.images.values():
                for _frame in frames:
                    pass
        except RecapError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_only_finite_short_scalars_of_scene_info_become_attributes(tmp_path: Path) -> None:
    folder = write_robotwin(tmp_path / "task/config", 1)
    scene = {"info": {"{A}": [1], "n": 3, "nan": float("nan"), "long": "x" * 999}, "cluttered": True}
    (folder / "scene_info.json").write_text(json.dumps({"episode_0": scene, "other": 1}))
    assert dict(open_source(folder)[0].attributes) == {
        "seed": 7,
        "task_key": "task",
        "scene.n": 3,
        "scene.cluttered": True,
    }


def test_jpegs_marked_as_rgb_are_not_swapped(tmp_path: Path) -> None:
    """Newer files hold standard JPEGs and mark each by a JPEG comment."""
    folder = write_robotwin(tmp_path / "task/config", 1)
    plain = cv2.imencode(".jpg", image(2)[:, :, ::-1])[1].tobytes()
    end = 4 + int.from_bytes(plain[4:6])  # of the first segment
    marked = plain[:end] + b"\xff\xfe\x00\x0aXPL-RGB1" + plain[end:]
    with h5py.File(folder / "data/episode0.hdf5", "r+") as file:
        n = len(file["observation/head_camera/rgb"])
        del file["observation/head_camera/rgb"]
        file["observation/head_camera/rgb"] = np.array([marked] * n)
    assert np.abs(open_source(folder)[0].images["head"][1].astype(float) - image(2)).mean() < 6
