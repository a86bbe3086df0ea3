"""Writes minimal files in the dataset layouts of other projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from recap.types import F64, U8
from recap.video import write_video

RED = (200, 30, 40)  # as RGB


def image(level: int = 0) -> U8:
    """A red image with a blue corner; `level` marks the frame."""
    picture = np.full((32, 48, 3), RED, np.uint8)
    picture[:16, :16] = (20, 40, 210)
    picture[24:, 40:] = 8 * level
    return picture


def path_of(n: int, seed: int = 0, width: int = 3) -> F64:
    """A smooth, curved path."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, n)[:, None]
    return rng.uniform(0.2, 0.5, width) + 0.1 * np.sin(
        t * rng.uniform(2, 6, width) + rng.uniform(0, 3, width)
    )


def quaternions(n: int, seed: int = 0) -> F64:
    """A smooth rotation as wxyz quaternions that change sign in the middle."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    angle = np.linspace(0.3, 1.5, n)[:, None]
    q = np.concatenate([np.cos(angle / 2), np.sin(angle / 2) * axis], axis=1)
    q[n // 2 :] *= -1
    return q


def poses(n: int, seed: int = 0) -> F64:
    return np.concatenate([path_of(n, seed), quaternions(n, seed)], axis=1)


def gripper(n: int) -> F64:
    return (np.arange(n) >= n // 2).astype(float)


def jpegs(n: int) -> NDArray[np.bytes_]:
    """NUL-padded JPEG strings of RGB arrays encoded as if they were BGR, as RoboTwin writes them."""
    encoded = [cv2.imencode(".jpg", image(i))[1].tobytes() for i in range(n)]
    longest = max(map(len, encoded)) + 7
    return np.array([data.ljust(longest, b"\0") for data in encoded], dtype=f"S{longest}")


def write_robomimic(
    path: Path, lengths: tuple[int, ...] = (12, 9), *, text: type = str, **env_kwargs: Any
) -> Path:
    """`text` is str for strings of variable length, as h5py writes them, or np.bytes_ for fixed length."""
    env = {
        "env_name": "Lift",
        "type": 1,
        "env_kwargs": {"robots": ["Panda"], "control_freq": 20, **env_kwargs},
    }
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = text(json.dumps(env).encode()) if text is not str else json.dumps(env)
        data.attrs["total"] = sum(lengths)
        for i, n in enumerate(lengths):
            demo = data.create_group(f"demo_{i}")
            demo.attrs["num_samples"] = n
            demo["actions"] = path_of(n, i + 20, 7)
            demo["states"] = path_of(n, i + 40, 5)
            demo["obs/robot0_eef_pos"] = path_of(n, i)
            demo["obs/robot0_eef_quat"] = quaternions(n, i)[:, [1, 2, 3, 0]]
            demo["obs/robot0_gripper_qpos"] = path_of(n, i + 60, 2)
            demo["obs/object"] = path_of(n, i + 80, 10)
            demo["obs/agentview_image"] = np.stack([image(k) for k in range(n)])
    return path


def write_robotwin(folder: Path, n_episodes: int = 2, n: int = 10) -> Path:
    """The release's layout with instructions, seeds and scene info; returns the configuration's folder."""
    (folder / "data").mkdir(parents=True)
    (folder / "instructions").mkdir()
    for i in range(n_episodes):
        with h5py.File(folder / f"data/episode{i}.hdf5", "w") as file:
            for camera in ("head_camera", "left_camera"):
                file[f"observation/{camera}/rgb"] = jpegs(n)
                file[f"observation/{camera}/intrinsic_cv"] = np.zeros((n, 3, 3))
            for k, arm in enumerate(("left", "right")):
                file[f"endpose/{arm}_endpose"] = poses(n, 10 * i + k)
                file[f"endpose/{arm}_gripper"] = gripper(n)
                file[f"joint_action/{arm}_arm"] = path_of(n, 10 * i + k, 6)
            file["joint_action/vector"] = path_of(n, i, 14)
        text = {"seen": [f"grab roller {i}", "other words"], "unseen": ["new words"]}
        (folder / f"instructions/episode{i}.json").write_text(json.dumps(text))
    (folder / "seed.txt").write_text(" ".join(str(7 + 3 * i) for i in range(n_episodes)))
    scenes = {f"episode_{i}": {"info": {"{A}": "102_roller/base0", "{a}": "left"}} for i in range(n_episodes)}
    (folder / "scene_info.json").write_text(json.dumps(scenes))
    return folder


def write_robotwin_v1(path: Path, n: int = 10, *, action_poses: bool = True, text: type = str) -> Path:
    """The layout of the main branch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["data_format_version"] = text("v1.0")
        file["instructions"] = text(json.dumps({"seen": ["hand the mic over"]}))
        for group in ("state", "action"):
            for k, arm in enumerate(("left", "right")):
                shift = k + 5 * (group == "action")
                file[f"{group}/{arm}_arm_joint_states"] = path_of(n, shift, 6)
                file[f"{group}/{arm}_ee_joint_states"] = gripper(n)[:, None]
                if group == "state" or action_poses:
                    file[f"{group}/{arm}_ee_poses"] = poses(n, shift)
        file["vision/cam_head/colors"] = jpegs(n)
    return path


def write_tracked(folder: Path, *, hands: tuple[str, ...] = ("",), n: int = 12, kind: str = "csv") -> Path:
    folder.mkdir(parents=True)
    arrays: dict[str, F64] = {"time_s": 5 + np.arange(n) / 10}
    for k, hand in enumerate(hands):
        arrays |= {
            f"{hand}xyz": path_of(n, k),
            f"{hand}quaternion": quaternions(n, k),
            f"{hand}gripper": gripper(n),
        }
    if kind == "npz":
        np.savez(folder / "poses.npz", **arrays)  # type: ignore[arg-type]
    else:
        names = ["x", "y", "z", "qw", "qx", "qy", "qz", "gripper"]
        header = ",".join(["time_s", *(hand + name for hand in hands for name in names)])
        table = np.column_stack(list(arrays.values()))
        np.savetxt(folder / "poses.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
    (folder / "task.txt").write_text("fold the cloth\n")
    write_video(folder / "video.mp4", (image(i) for i in range(n)), 10)
    return folder
