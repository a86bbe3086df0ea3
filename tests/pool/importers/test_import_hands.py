"""Recordings of hands: the conventions of each format."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hand_files import N, both_hands, umetrack_profile, write_egodex, write_h2o, write_hot3d
from made_hands import about

from recap.errors import DatasetError, RecapError
from recap.geometry3 import encode_arm, matrix_to_quaternion, rotation6_to_matrix
from recap.pool.importers import detect_format, open_source
from recap.pool.importers.checks import check_dataset
from recap.types import F64, Episode
from recap.video import write_video
from recap_hands.formats import TIPS_FIRST, UmeTrack
from recap_hands.tool import tool_path


def assert_shows(episode: Episode, points: dict[str, F64], begin: int = 0, end: int = N) -> None:
    """Asserts position and rotation of both hands, left first."""
    for number, side in enumerate(("left", "right")):
        truth = tool_path(points[side])
        got = episode.proprio[:, 10 * number : 10 * number + 10]
        np.testing.assert_allclose(got[:, :3], truth.position[begin:end], atol=1e-5)
        np.testing.assert_allclose(rotation6_to_matrix(got[:, 3:9]), truth.rotation[begin:end], atol=1e-4)
    np.testing.assert_array_equal(episode.actions[:-1], episode.proprio[1:])
    assert episode.embodiment == "hand"


def test_egodex_is_converted_to_z_up_with_its_video_and_task(tmp_path: Path) -> None:
    write_egodex(
        tmp_path / "fold/10.hdf5",
        llm_description="fold",
        llm_description2="unfold",
        which_llm_description="2",
    )
    write_egodex(tmp_path / "fold/2.hdf5", llm_description="fold")
    frames = (np.full((32, 48, 3), 5 * i, np.uint8) for i in range(N))
    write_video(tmp_path / "fold/2.mp4", frames, 30)
    source = open_source(tmp_path / "fold/2.hdf5")
    assert source.format == "egodex"
    assert_shows(source[0], both_hands())
    assert (source[0].fps, source[0].task, len(source[0].images["video"])) == (30, "fold", N)
    assert abs(float(source[0].images["video"][20].mean()) - 100) < 6
    (tmp_path / "fold/2.mp4").unlink()
    assert detect_format(tmp_path / "fold") == detect_format(tmp_path) == "egodex"
    both = open_source(tmp_path / "fold")
    assert [(episode.id, episode.task) for episode in both] == [("fold/2", "fold"), ("fold/10", "unfold")]
    assert not [f for f in check_dataset(both) if f.severity == "error" and f.code != "same"]


def test_egodex_frames_without_confidence_split_the_episode(tmp_path: Path) -> None:
    import h5py  # type: ignore[import-untyped]

    path = write_egodex(tmp_path / "0.hdf5")
    with h5py.File(path, "a") as file:
        sure = np.ones(N)
        sure[15:20] = 0
        file["confidences/leftHand"] = sure
        file["confidences/rightHand"] = np.ones(N)
    source = open_source(path)
    assert [len(episode) for episode in source] == [15, 20]
    assert [episode.id for episode in source] == [f"{tmp_path.name}/0/0", f"{tmp_path.name}/0/1"]


def test_h2o_hands_are_transformed_from_camera_to_world_left_hand_first(tmp_path: Path) -> None:
    write_h2o(tmp_path / "subject1/h1/0/cam4")
    for path in ("subject1/h1/0/cam4", "subject1/h1/0", "subject1/h1"):
        assert detect_format(tmp_path / path) == "h2o"
    episode = open_source(tmp_path / "subject1/h1")[0]
    assert_shows(episode, both_hands())
    assert (episode.id, episode.fps) == ("h1/0/cam4", 30)
    red, green, blue = episode.images["rgb"][3].reshape(-1, 3).mean(axis=0)
    assert red > 150 > 50 > max(green, blue)


def test_h2o_frames_without_annotation_split_the_episode(tmp_path: Path) -> None:
    write_h2o(tmp_path / "cam4", missing=(20, 21))
    source = open_source(tmp_path / "cam4")
    assert [len(episode) for episode in source] == [20, 18]
    points = both_hands()
    for side in points:
        points[side][20:22] = np.nan
    assert_shows(source[1], points, 22)
    (tmp_path / "cam4/hand_pose/000003.txt").write_text("1 2 3")
    with pytest.raises(DatasetError, match="3 numbers, not 128"):
        open_source(tmp_path / "cam4")


def test_umetrack_at_zero_angles_gives_the_rest_landmarks_in_metres(tmp_path: Path) -> None:
    model = umetrack_profile(tmp_path / "umetrack_hand_user_profile.json")
    hand = UmeTrack.load(tmp_path / "umetrack_hand_user_profile.json")
    wrist = np.eye(4)
    wrist[:3, :3], wrist[:3, 3] = about([1, 0, 2], 0.7), (1, 2, 3)
    rest = np.asarray(model["landmark_rest_positions"])[TIPS_FIRST] / 1000
    left = hand.landmarks(np.zeros(22), wrist, "left")
    np.testing.assert_allclose(left, rest @ wrist[:3, :3].T + wrist[:3, 3], atol=1e-12)
    right = hand.landmarks(np.zeros(22), wrist, "right")
    mirrored = rest * np.array([-1, 1, 1])
    np.testing.assert_allclose(right, mirrored @ wrist[:3, :3].T + wrist[:3, 3], atol=1e-12)


def test_umetrack_rotates_each_joint_about_its_rest_position(tmp_path: Path) -> None:
    """The index finger's second joint (5) moves its landmarks from 5 on, and no others."""
    model = umetrack_profile(tmp_path / "p.json")
    hand, angles = UmeTrack.load(tmp_path / "p.json"), np.zeros(22)
    angles[5] = 0.6
    moved, rest = (hand.landmarks(values, np.eye(4), "left") for values in (angles, np.zeros(22)))
    turn, about_place = about(model["joint_rotation_axes"][5], 0.6), model["joint_rest_positions"][5] / 1000
    index = [5, 6, 7, 8]  # in our order
    np.testing.assert_allclose(moved[index], (rest[index] - about_place) @ turn.T + about_place, atol=1e-12)
    others = [i for i in range(21) if i not in index]
    np.testing.assert_allclose(moved[others], rest[others], atol=1e-12)
    angles[:] = 0
    angles[4] = 0.6  # the first joint moves the whole finger
    turn, about_place = about(model["joint_rotation_axes"][4], 0.6), model["joint_rest_positions"][4] / 1000
    np.testing.assert_allclose(
        hand.landmarks(angles, np.eye(4), "left")[index],
        (rest[index] - about_place) @ turn.T + about_place,
        atol=1e-12,
    )


def test_hot3d_hand_0_is_left_and_quaternions_are_wxyz(tmp_path: Path) -> None:
    lines = write_hot3d(tmp_path / "P0001", umetrack=False, sides=("0",))
    source = open_source(tmp_path / "P0001")
    episode = source[0]
    assert (source.format, set(source.plan.numbers["proprio"].text.split("+"))) == (
        "hot3d",
        {"left_xyz", "left_quaternion@wxyz", "left_gripper"},
    )
    angle = 2 * 0.01 * np.arange(N)
    quaternion = matrix_to_quaternion(np.stack([about([0, 0, 1], a) for a in angle]))
    xyz = np.column_stack([0.01 * np.arange(N), np.full(N, 0.2), np.full(N, 1.0)])
    expected = encode_arm(np.column_stack([xyz, quaternion]), np.ones(N))
    np.testing.assert_allclose(episode.proprio, expected, atol=1e-6)
    assert episode.fps == 30
    del lines[20]["hand_poses"]["0"]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "P0001/mano_hand_pose_trajectory.jsonl").write_text(text)
    assert [len(part) for part in open_source(tmp_path / "P0001")] == [20, N - 21]


def test_hot3d_with_a_hand_profile_has_finger_landmarks(tmp_path: Path) -> None:
    write_hot3d(tmp_path / "P0001", umetrack=True)
    umetrack_profile(tmp_path / "P0001/umetrack_hand_user_profile.json")
    assert detect_format(tmp_path) == "hot3d"
    episode = open_source(tmp_path)[0]
    assert episode.proprio.shape == (N, 20)
    hand = UmeTrack.load(tmp_path / "P0001/umetrack_hand_user_profile.json")
    wrist = np.eye(4)
    wrist[:3, 3] = (0, 0.2, 1)
    points = hand.landmarks(np.zeros(22), wrist, "right")
    np.testing.assert_allclose(episode.proprio[0, 10:13], (points[4] + points[8]) / 2, atol=1e-6)


def test_landmarks_files_in_metres_are_read_and_pixels_refused(tmp_path: Path) -> None:
    arrays = {f"{side}_points": points for side, points in both_hands().items()}
    np.savez(tmp_path / "landmarks.npz", time_s=np.arange(N) / 30, size=[480, 640], **arrays)
    (tmp_path / "task.txt").write_text("wave\n")
    source = open_source(tmp_path / "landmarks.npz")
    assert_shows(source[0], both_hands())
    assert (source.format, source[0].task) == ("landmarks", "wave")
    np.savez(tmp_path / "pixels.npz", time_s=np.arange(N) / 30, size=[480, 640], pixels=np.zeros((N, 21, 2)))
    with pytest.raises(DatasetError, match="recap lift"):
        open_source(tmp_path / "pixels.npz")


def test_a_damaged_file_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    write_egodex(tmp_path / "0.hdf5")
    (tmp_path / "1.hdf5").write_bytes((tmp_path / "0.hdf5").read_bytes()[:3000])
    with pytest.raises(DatasetError, match=r"1\.hdf5"):
        list(open_source(tmp_path))
    assert len(list(open_source(tmp_path, skip_damaged=True))) == 1


@pytest.mark.parametrize("format_", ["egodex", "hot3d", "umetrack", "h2o"])
def test_damaged_bytes_raise_only_recap_errors(tmp_path: Path, format_: str) -> None:
    folder = tmp_path / "data"
    if format_ == "egodex":
        write_egodex(folder / "0.hdf5")
    elif format_ == "h2o":
        write_h2o(folder)
    else:
        write_hot3d(folder, umetrack=format_ == "umetrack")
        umetrack_profile(folder / "umetrack_hand_user_profile.json")
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix != ".jpg")
    rng = np.random.default_rng(0)
    for _ in range(25):
        file = files[rng.integers(len(files))]
        whole = file.read_bytes()
        data = bytearray(whole)
        for at in rng.integers(len(data), size=5):
            data[at] = rng.integers(256)
        file.write_bytes(data[: rng.integers(len(data))] if rng.random() < 0.3 else data)
        with suppress(RecapError):  # no other error
            for episode in open_source(folder, skip_damaged=True):
                check_dataset([episode])
        file.write_bytes(whole)
