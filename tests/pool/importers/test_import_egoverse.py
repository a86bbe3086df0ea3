"""EgoVerse's Zarr stores, in the layout of its own writer; `make hands` installs Zarr."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hand_files import N, both_hands
from numpy.typing import NDArray
from test_import_hands import assert_shows

from recap.geometry3 import encode_arms
from recap.pool.importers import open_source
from recap_hands.formats import TIPS_FIRST

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:The data type")]  # for the image arrays
if "mediapipe" not in os.environ.get("RECAP_NEEDS", ""):
    pytest.importorskip("zarr", reason="no zarr: make hands installs it")

PADDED = 60


def write(path: Path, arrays: dict[str, NDArray[Any]], **attributes: object) -> None:
    """Writes a store: numbers padded with zeros, images as JPEG with the last one repeated."""
    import zarr
    from zarr.core.dtype import VariableLengthBytes

    store = zarr.open(str(path), mode="w", zarr_format=3)
    for key, values in arrays.items():
        padded = np.concatenate([values, np.zeros((PADDED - len(values), *values.shape[1:]), values.dtype)])
        store.create_array(key, data=padded, chunks=(20, *values.shape[1:]), shards=padded.shape)
    picture = cv2.imencode(".jpg", np.full((24, 32, 3), (0, 0, 200), np.uint8))[1].tobytes()
    store.create_array(
        "images.front_1", shape=(PADDED,), chunks=(1,), shards=(PADDED,), dtype=VariableLengthBytes()
    )
    encoded = np.empty((PADDED,), dtype=object)
    encoded[:] = [picture] * PADDED
    store["images.front_1"][:] = encoded
    store.attrs.update({"total_frames": N, "fps": 30, "task_name": "fold", "features": {}, **attributes})


def test_human_keypoints_are_read_in_our_order_without_padding(tmp_path: Path) -> None:
    points = {f"{side}.obs_keypoints": p.reshape(N, 63) for side, p in both_hands().items()}
    write(tmp_path / "a.zarr", points, embodiment="mecka_bimanual", task_description="fold a shirt")
    source = open_source(tmp_path / "a.zarr")
    assert (source.format, len(source), len(source[0])) == ("egoverse", 1, N)
    assert_shows(source[0], both_hands())
    assert (source[0].task, source[0].fps) == ("fold a shirt", 30)
    red, green, blue = source[0].images["front_1"][N - 1].reshape(-1, 3).mean(axis=0)
    assert red > 150 > 50 > max(green, blue)


def test_aria_keypoints_are_reordered_and_untracked_frames_split_the_episode(tmp_path: Path) -> None:
    points = {}
    for side, p in both_hands().items():
        raw = np.empty_like(p)
        raw[:, TIPS_FIRST] = p
        raw[12:14] = 1e9  # not tracked
        points[f"{side}.obs_keypoints"] = raw.reshape(N, 63)
    write(tmp_path / "b.zarr", points, embodiment="aria_bimanual")
    source = open_source(tmp_path)
    assert [len(episode) for episode in source] == [12, N - 14]
    truth = both_hands()
    for side in truth:
        truth[side][12:14] = np.nan
    assert_shows(source[1], truth, 14)


def test_poses_without_keypoints_are_wxyz_and_zero_poses_are_missing(tmp_path: Path) -> None:
    angle = 0.02 * np.arange(N)
    pose = np.column_stack([np.zeros((N, 2)), angle, np.cos(angle), np.sin(angle), np.zeros((N, 2))])
    arrays = {"left.obs_ee_pose": pose.copy(), "right.obs_ee_pose": pose[::-1].copy()}
    arrays["left.obs_ee_pose"][-3:] = 0
    stamps = (np.arange(N) * 50_000_000).astype(np.int64)
    write(tmp_path / "c.zarr", {**arrays, "obs_rgb_timestamps_ns": stamps}, robot_type="scale_bimanual")
    episode = open_source(tmp_path / "c.zarr")[0]
    assert (len(episode), episode.fps, episode.task) == (N - 3, 20, "fold")
    expected = encode_arms(pose[:-3], np.ones(N - 3), pose[::-1][:-3], np.ones(N - 3))
    np.testing.assert_allclose(episode.proprio, expected, atol=1e-6)
