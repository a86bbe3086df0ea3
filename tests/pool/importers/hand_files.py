"""Writes recordings of hands in the published layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
from made_hands import about, motion

from recap.types import F64

FINGERS = ("Thumb", "IndexFinger", "MiddleFinger", "RingFinger", "LittleFinger")
JOINTS = ("Knuckle", "IntermediateBase", "IntermediateTip", "Tip")
N = 40


def both_hands(n: int = N) -> dict[str, F64]:
    """Landmarks of a right hand and of its mirror image to the left, z up."""
    points = motion(n)[1]
    return {"left": points * np.array([-1, 1, 1]) - np.array([0.3, 0, 0]), "right": points}


def write_egodex(path: Path, **attributes: str) -> Path:
    """One `N.hdf5`. EgoDex has y up, so (x, y, z) of the ground truth becomes (x, z, -y)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for side, points in both_hands().items():
            names = [f"{side}Hand", *(f"{side}{finger}{joint}" for finger in FINGERS for joint in JOINTS)]
            for number, name in enumerate(names):
                transforms = np.tile(np.eye(4, dtype=np.float32), (N, 1, 1))
                x, y, z = points[:, number].T
                transforms[:, :3, 3] = np.stack([x, z, -y], axis=1)
                file[f"transforms/{name}"] = transforms
        file["transforms/camera"] = np.tile(np.eye(4), (N, 1, 1))
        file["camera/intrinsic"] = np.eye(3)
        for name, text in attributes.items():
            file.attrs[name] = text
    return path


def umetrack_profile(path: Path) -> dict[str, Any]:
    """A left hand in mm: landmarks in the rest pose, each attached to one bone."""
    rng = np.random.default_rng(0)
    bones = [4, 7, 10, 13, 16, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1]
    model = {
        "joint_rotation_axes": rng.normal(size=(22, 3)),
        "joint_rest_positions": 100 * rng.uniform(-1, 1, (22, 3)),
        "landmark_rest_positions": 100 * rng.uniform(-1, 1, (21, 3)),
        "landmark_rest_bone_indices": np.array(bones)[:, None],
        "landmark_rest_bone_weights": np.ones((21, 1)),
    }
    axes = model["joint_rotation_axes"]
    model["joint_rotation_axes"] = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    path.write_text(json.dumps({"hand_model": {key: np.asarray(v).tolist() for key, v in model.items()}}))
    return model


def write_hot3d(folder: Path, umetrack: bool, sides: tuple[str, ...] = ("0", "1"), n: int = N) -> list[Any]:
    """A sequence whose wrist moves along x and rotates about z."""
    folder.mkdir(parents=True)
    lines = []
    for i in range(n):
        half = 0.01 * i
        wrist = {
            "t_xyz": [0.01 * i, 0.2, 1.0],
            "q_wxyz": [float(np.cos(half)), 0.0, 0.0, float(np.sin(half))],
        }
        pose: dict[str, Any] = {"wrist_xform": wrist}
        pose |= {"joint_angles": [0.0] * 22} if umetrack else {"pose": [0.0] * 15}
        lines.append({"timestamp_ns": 10**9 + i * 33_333_333, "hand_poses": dict.fromkeys(sides, pose)})
    name = "umetrack" if umetrack else "mano"
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / f"{name}_hand_pose_trajectory.jsonl").write_text(text + "\n")
    return lines


def write_h2o(folder: Path, missing: tuple[int, ...] = ()) -> F64:
    """A camera's folder; returns camera poses (n, 4, 4) in the world."""
    for name in ("hand_pose", "cam_pose", "rgb"):
        (folder / name).mkdir(parents=True)
    hands = both_hands()
    cameras = np.tile(np.eye(4), (N, 1, 1))
    for i in range(N):
        cameras[i, :3, :3] = about([1, 2, 3], 0.02 * i)
        cameras[i, :3, 3] = (0.1, 0.01 * i, 1.5)
        row = []
        for side in ("left", "right"):
            seen = (hands[side][i] - cameras[i, :3, 3]) @ cameras[i, :3, :3]
            row += [float(i not in missing), *seen.ravel()]
        (folder / "hand_pose" / f"{i:06d}.txt").write_text(" ".join(map(str, row)) + "\n")
        (folder / "cam_pose" / f"{i:06d}.txt").write_text(" ".join(map(str, cameras[i].ravel())))
        cv2.imwrite(str(folder / "rgb" / f"{i:06d}.jpg"), np.full((24, 32, 3), (0, 0, 200), np.uint8))  # red
    (folder / "cam_intrinsics.txt").write_text("600 600 640 360 1280 720")
    return cameras
