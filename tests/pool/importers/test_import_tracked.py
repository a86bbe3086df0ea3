"""Tracked hand poses in CSV or NPZ, with a video beside them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from source_files import gripper, image, path_of, poses, quaternions, write_tracked

from recap.errors import DatasetError, InputError
from recap.geometry3 import encode_arm, encode_arms
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.video import write_video


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_take_with_one_hand_is_read(tmp_path: Path, kind: str) -> None:
    source = open_source(write_tracked(tmp_path / "take1", kind=kind))
    assert (source.format, len(source)) == ("tracked", 1)
    episode = source[0]
    expected = encode_arm(poses(12), gripper(12)).astype(np.float32)
    np.testing.assert_allclose(episode.proprio, expected, atol=1e-6)
    np.testing.assert_array_equal(episode.actions[:-1], episode.proprio[1:])
    assert (episode.id, episode.fps, episode.task, episode.embodiment) == (
        "take1",
        10,
        "fold the cloth",
        "hand",
    )
    np.testing.assert_allclose(episode.timestamps, np.arange(12) / 10, atol=1e-12)
    assert len(episode.images["video"]) == 12
    assert np.abs(episode.images["video"][7].astype(int) - image(7)).mean() < 8
    assert not check_dataset(source)


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_folder_of_takes_with_two_hands_is_read(tmp_path: Path, kind: str) -> None:
    for i in range(3):
        write_tracked(tmp_path / f"takes/take{i}", hands=("left_", "right_"), n=10 + i, kind=kind)
    source = open_source(tmp_path / "takes")
    assert source.describe().lengths == (10, 11, 12)
    expected = encode_arms(poses(12, 0), gripper(12), poses(12, 1), gripper(12)).astype(np.float32)
    np.testing.assert_allclose(source[2].proprio, expected, atol=1e-6)
    assert source[2].id == "takes/take2"


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_take_of_more_than_a_megabyte_is_read(tmp_path: Path, kind: str) -> None:
    folder = write_tracked(tmp_path / "take", n=2)
    (folder / "video.mp4").unlink()
    n = 45_000
    numbers = {"time_s": np.arange(n) / 30, "xyz": path_of(n), "quaternion": quaternions(n)}
    if kind == "npz":
        (folder / "poses.csv").unlink()
        np.savez(folder / "poses.npz", **numbers, gripper=gripper(n))
    else:
        table = np.column_stack([*numbers.values(), gripper(n)])
        header = "time_s,x,y,z,qw,qx,qy,qz,gripper"
        np.savetxt(folder / "poses.csv", table, "%.6f", delimiter=",", header=header, comments="")
    assert max(file.stat().st_size for file in folder.iterdir()) > 1_000_000
    assert len(open_source(folder)[0]) == n


def test_video_frames_are_matched_to_poses_by_time(tmp_path: Path) -> None:
    folder = write_tracked(tmp_path / "take", n=10)
    write_video(folder / "video.mp4", (image(i) for i in range(19)), 20)
    frames = open_source(folder)[0].images["video"]
    assert len(frames) == 10
    assert np.abs(frames[6].astype(int) - image(12)).mean() < 8
    assert [round(float(frame[28, 44].mean()) / 16) for frame in frames] == list(range(10))
    write_video(folder / "video.mp4", (image(i) for i in range(4)), 20)
    with pytest.raises(DatasetError, match="before the poses"):
        open_source(folder)[0]
    (folder / "video.mp4").write_bytes(b"no video")
    with pytest.raises(DatasetError, match="cannot be read"):
        open_source(folder)[0]
    (folder / "video.mp4").unlink()
    assert not open_source(folder)[0].images


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing"),
        ("time_s,x,y,z,qw,qx,qy,qz\n0,0,0,0,1,0,0,0\n", "gripper"),
        ("time_s,a\n0,1\n", "name one hand"),
        ("time_s,x,y,z,qw,qx,qy,qz,gripper\n0,0,0,0,1,0,0\n", "line 2 has 7 values"),
        ("time_s,x,y,z,qw,qx,qy,qz,gripper\n0,0,0,zero,1,0,0,0,0\n", "zero"),
        ("time_s,x,y,z,qw,qx,qy,qz,gripper\n0,0,0,0,1,0,0,0,0\n", "needs two"),
        ("time_s,x,y,z,qw,qx,qy,qz,gripper\n1,0,0,0,1,0,0,0,0\n0,0,0,0,1,0,0,0,0\n", "do not increase"),
        ("time_s,x,y,z,qw,qx,qy,qz,gripper\n0,0,0,0,0,0,0,0,0\n1,0,0,0,1,0,0,0,0\n", "quaternion of zeros"),
        ("x,x,time_s\n0,0,0\n", "twice"),
        ("time_s,x\n" + "9" * 200_000, "limit|header"),
    ],
)
def test_a_faulty_csv_is_a_one_line_error(tmp_path: Path, text: str, words: str) -> None:
    folder = write_tracked(tmp_path / "take")
    (folder / "poses.csv").write_text(text)
    with pytest.raises(DatasetError, match=words) as caught:
        open_source(folder)[0]
    assert "\n" not in str(caught.value)


def npy(shape: str, data: bytes = b"", descr: str = "'<f8'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (npy("(1099511627776, 3)"), "claims to be"),
        (npy("(4, 3)"), "cannot be read"),
        (npy("(4,)", descr="'|O'"), "no numbers"),
        (npy("(-4, 3)"), "cannot be read"),
        (b"nonsense", "cannot be read"),
    ],
)
def test_a_faulty_npz_array_is_an_error(tmp_path: Path, member: bytes, words: str) -> None:
    folder = write_tracked(tmp_path / "take", kind="npz")
    good = io.BytesIO()
    np.savez(good, time_s=np.arange(4.0), quaternion=quaternions(4), gripper=gripper(4))
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(folder / "poses.npz", "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
        target.writestr("xyz.npy", member)
    with pytest.raises(DatasetError, match=words):
        open_source(folder)[0]


def test_truncated_and_flipped_archives_raise_only_dataset_errors(tmp_path: Path) -> None:
    folder = write_tracked(tmp_path / "take", kind="npz")
    whole = (folder / "poses.npz").read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(60):
        damaged = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.3 else whole)
        for at in rng.integers(0, len(damaged), size=5):
            damaged[at] ^= int(rng.integers(1, 256))
        (folder / "poses.npz").write_bytes(damaged)
        try:
            check_dataset(open_source(folder))
        except DatasetError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_a_frame_rate_for_a_source_with_timestamps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its own times"):
        open_source(write_tracked(tmp_path / "take"), fps=30)


def test_a_mapping_selects_columns_of_a_take(tmp_path: Path) -> None:
    mapping = {"proprio": "xyz", "action": "next:xyz", "task": "wave"}
    episode = open_source(write_tracked(tmp_path / "take"), mapping=mapping)[0]
    np.testing.assert_allclose(episode.proprio, path_of(12), atol=1e-6)
    assert episode.task == "wave"
