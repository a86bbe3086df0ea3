"""ACT's and ALOHA's episodes: joints, actions and images, as arrays or as padded JPEGs."""

from __future__ import annotations

from pathlib import Path

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from source_files import image, path_of

from recap.errors import DatasetError, InputError
from recap.pool.importers import detect_format, open_source
from recap.pool.importers.checks import check_dataset


def write_act(folder: Path, n_episodes: int = 2, n: int = 9, *, compressed: bool = False) -> Path:
    folder.mkdir(parents=True)
    for number in range(n_episodes):
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["observations/qpos"] = path_of(n, number, 14)
            file["observations/qvel"] = np.zeros((n, 14))
            file["action"] = path_of(n, number + 9, 14)
            for camera in ("cam_high", "cam_left_wrist"):
                frames = [image(i) for i in range(n)]
                if compressed:  # ALOHA encodes RGB as if it were BGR, pads, and stores the lengths
                    encoded = [np.frombuffer(cv2.imencode(".jpg", frame)[1], np.uint8) for frame in frames]
                    padded = np.zeros((n, max(map(len, encoded)) + 5), np.uint8)
                    for row, data in zip(padded, encoded, strict=True):
                        row[: len(data)] = data
                    file[f"observations/images/{camera}"] = padded
                else:
                    file[f"observations/images/{camera}"] = np.stack(frames)
            if compressed:
                file["compress_len"] = np.full((2, n), 7)
    return folder


@pytest.mark.parametrize("compressed", [False, True])
def test_joints_actions_and_images_are_read(tmp_path: Path, compressed: bool) -> None:
    folder = write_act(tmp_path / "fold", compressed=compressed)
    assert detect_format(folder) == detect_format(folder / "episode_1.hdf5") == "act"
    source = open_source(folder, fps=50, mapping={"task": "fold the shirt"})
    assert [episode.id for episode in source] == ["fold/episode_0", "fold/episode_1"]
    episode = source[1]
    np.testing.assert_array_equal(episode.proprio, path_of(9, 1, 14).astype(np.float32))
    np.testing.assert_array_equal(episode.actions, path_of(9, 10, 14).astype(np.float32))
    assert (episode.fps, episode.task) == (50, "fold the shirt")
    assert list(episode.images) == ["cam_high", "cam_left_wrist"]
    for wanted, read in zip(range(9), episode.images["cam_high"], strict=True):
        assert np.abs(image(wanted).astype(float) - read).mean() < (6 if compressed else 1e-9)
    assert not check_dataset(source)


def test_a_missing_frame_rate_asks_for_fps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--fps 50"):
        open_source(write_act(tmp_path / "a"))


def test_a_truncated_file_is_an_error_or_skipped_on_request(tmp_path: Path) -> None:
    folder = write_act(tmp_path / "a", 3)
    path = folder / "episode_0.hdf5"
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DatasetError, match=r"episode_0\.hdf5"):
        list(open_source(folder, fps=50))
    source = open_source(folder, fps=50, skip_damaged=True)
    assert [episode.id for episode in source] == ["a/episode_1", "a/episode_2"]
    assert [damage.episode for damage in source.damage] == [0]
    assert source.describe().lengths == (0, 9, 9)
