"""Published recordings of hands: EgoDex, HOT3D, H2O and EgoVerse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import DatasetError, InputError
from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.lazy import Made
from recap.pool.importers import hdf5
from recap.pool.importers.encoded import decode_image
from recap.pool.importers.source import MAX_ARRAY_BYTES, MAX_FRAMES, as_dataset_error, check_size, read_text
from recap.types import F64, U8
from recap.video import VideoFrames, video_length
from recap_hands.landmarks import SIDES
from recap_hands.recordings import Hand, HandsReader, Recording, hand_of
from recap_hands.tool import N_LANDMARKS

FINGERS = ("Thumb", "IndexFinger", "MiddleFinger", "RingFinger", "LittleFinger")
JOINTS = ("Knuckle", "IntermediateBase", "IntermediateTip", "Tip")
# UmeTrack and Aria have tips first, then the wrist, and the middle of the palm last. It replaces the base
# of the thumb, which they do not have; both are fixed in the palm.
TIPS_FIRST = [5, 20, 6, 7, 0, 8, 9, 10, 1, 11, 12, 13, 2, 14, 15, 16, 3, 17, 18, 19, 4]
Y_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # rotates y-up into z-up


class EgoDexReader(HandsReader):
    """`task/N.hdf5` with `transforms/*` (t, 4, 4) in ARKit's world, m, y up; `N.mp4` next to it; 30 Hz."""

    name = "egodex"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        files = [path] if path.is_file() else [*islice(_hdf5_files(path), 100)]
        if not files or files[0].suffix not in hdf5.SUFFIXES:
            return False
        with hdf5.opened(hdf5.first_readable(sorted(files))) as file:
            return any(hdf5.has(file, f"transforms/{side}Hand") for side in SIDES)

    def find(self, path: Path) -> list[Path]:
        if path.is_file():
            return [path]
        return sorted(_hdf5_files(path), key=lambda file: (str(file.parent), file.stem.zfill(12)))

    def load(self, file: Path) -> Recording:
        with hdf5.opened(file) as opened:
            hands = {side: _egodex_hand(opened, side) for side in SIDES}
        n = min(len(hand.xyz) for hand in hands.values())
        film = file.with_suffix(".mp4")
        images: dict[str, Sequence[U8]] = {}
        if film.is_file():
            there = video_length(film, 30.0)
            if there < n:
                raise DatasetError(f"{film} has {there} frames, the poses {n}; restore the film")
            images["video"] = VideoFrames(film, 0, there, 30.0)
        return Recording(np.arange(n) / 30, hands, "", images)

    def task(self, file: Path, recording: Recording) -> str:
        """Some tasks have two descriptions, and a field that says which is meant."""
        names = ("llm_description", "llm_description2", "which_llm_description")
        one, two, which = hdf5.read_texts(file, [("/", name) for name in names])
        return (two if which == "2" else one) or ""


def _hdf5_files(path: Path) -> Iterator[Path]:
    found = path.glob("*.hdf5")
    first = next(found, None)
    return path.glob("*/*.hdf5") if first is None else chain([first], found)


def _egodex_hand(file: Any, side: str) -> Hand:
    names = [f"{side}Hand", *(f"{side}{finger}{joint}" for finger in FINGERS for joint in JOINTS)]
    frames = [hdf5.read_numbers(file, f"transforms/{name}").reshape(-1, 4, 4) for name in names]
    points = np.stack([frame[:, :3, 3] for frame in frames], axis=1) @ Y_UP.T
    key = f"confidences/{side}Hand"
    if hdf5.has(file, key):  # 0: a guess of ARKit, not observed
        points[hdf5.read_numbers(file, key).reshape(-1) <= 0] = np.nan
    return hand_of(points)


class Hot3dReader(HandsReader):
    """`umetrack_hand_pose_trajectory.jsonl` with its hand's profile, or MANO's wrists; headset's world.

    Only MANO's wrist is read, because its model may not be redistributed. The gripper then stays open.
    """

    name = "hot3d"
    places = ("*hand_pose_trajectory.jsonl", "*/*hand_pose_trajectory.jsonl")

    def find(self, path: Path) -> list[Path]:
        folders = [path] if [*path.glob("*hand_pose_trajectory.jsonl")] else sorted(path.iterdir())
        return [
            folder for folder in folders if folder.is_dir() and [*folder.glob("*hand_pose_trajectory.jsonl")]
        ]

    def load(self, file: Path) -> Recording:
        profiles = sorted(file.glob("*hand_user_profile.json"))
        umetrack = file / "umetrack_hand_pose_trajectory.jsonl"
        model = UmeTrack.load(profiles[0]) if profiles and umetrack.is_file() else None
        poses = umetrack if model is not None else file / "mano_hand_pose_trajectory.jsonl"
        check_size(poses.name, (), poses.stat().st_size)
        with poses.open(encoding="utf-8") as opened:
            lines = [json.loads(line) for line in islice(opened, MAX_FRAMES) if line.strip()]
        times = np.array([int(line["timestamp_ns"]) for line in lines]) / 1e9
        hands = {}
        for number, side in enumerate(SIDES):
            found = [line["hand_poses"].get(str(number)) for line in lines]
            wrists = np.stack([np.full((4, 4), np.nan) if pose is None else _wrist(pose) for pose in found])
            if model is None:
                quaternion = np.full((len(times), 4), np.nan)
                known = np.isfinite(wrists[:, 0, 0])
                quaternion[known] = matrix_to_quaternion(wrists[known, :3, :3])
                hands[side] = Hand(wrists[:, :3, 3], quaternion, np.where(known, 1.0, np.nan))
            else:
                points = np.full((len(times), N_LANDMARKS, 3), np.nan)
                for row, pose in enumerate(found):
                    if pose is not None:
                        points[row] = model.landmarks(np.array(pose["joint_angles"]), wrists[row], side)
                hands[side] = hand_of(points)
        return Recording(times, hands)


def _wrist(pose: Mapping[str, Any]) -> F64:
    """(4, 4) pose from `{t_xyz, q_wxyz}`."""
    out = np.eye(4)
    out[:3, :3] = quaternion_to_matrix(np.array(pose["wrist_xform"]["q_wxyz"], np.float64))
    out[:3, 3] = pose["wrist_xform"]["t_xyz"]
    return out


@dataclass(frozen=True)
class UmeTrack:
    """A person's left hand: four joints per finger, 21 landmarks that are skinned to 17 frames."""

    axes: F64  # (20, 3)
    rests: F64  # (20, 3) m
    places: F64  # (21, 3) m
    weights: F64  # (21, 17)

    @classmethod
    def load(cls, path: Path) -> UmeTrack:
        """Read the `hand_model` of a profile, with lengths in mm."""
        check_size(path.name, (), path.stat().st_size, MAX_ARRAY_BYTES)  # it may contain a mesh
        model = json.loads(path.read_text("utf-8"))["hand_model"]
        bones = np.array(model["landmark_rest_bone_indices"], int).reshape(N_LANDMARKS, -1)
        shares = np.array(model["landmark_rest_bone_weights"], np.float64).reshape(N_LANDMARKS, -1)
        weights = np.zeros((N_LANDMARKS, 17))
        for row, (at, share) in enumerate(zip(bones, shares, strict=True)):
            weights[row, at[share != 0]] = share[share != 0]
        axes, rests = (
            np.array(model[f"joint_{key}"], np.float64)[:20] for key in ("rotation_axes", "rest_positions")
        )
        return cls(axes, rests / 1000, np.array(model["landmark_rest_positions"], np.float64) / 1000, weights)

    def landmarks(self, angles: F64, wrist: F64, side: str) -> F64:
        """(21, 3) in our order; a right hand is the left one with mirrored x."""
        wrist = wrist * np.array([-1.0, 1, 1, 1]) if side == "right" else wrist
        frames = [wrist, wrist]
        for finger in range(5):
            frame = wrist
            for joint in range(4 * finger, 4 * finger + 4):
                turn = _turn(self.axes[joint], float(angles[joint]))
                local = np.eye(4)
                local[:3, :3], local[:3, 3] = turn, self.rests[joint] - turn @ self.rests[joint]
                frame = frame @ local
                if joint > 4 * finger:  # the first joint of a finger has no frame of its own
                    frames.append(frame)
        flat = np.column_stack([self.places, np.ones(N_LANDMARKS)])
        moved = np.einsum("kf,fij,kj->ki", self.weights, np.stack(frames), flat)
        return np.asarray(moved[TIPS_FIRST, :3])


class H2oReader(HandsReader):
    """A camera's `hand_pose/*.txt`, 2 × (flag + 21 × 3) in its frame, and `cam_pose/*.txt`; 30 Hz."""

    name = "h2o"
    places = ("hand_pose/*.txt", "cam4/hand_pose", "*/cam4/hand_pose", "*/*/cam4/hand_pose")

    def find(self, path: Path) -> list[Path]:
        if (path / "hand_pose").is_dir():
            return [path]
        found = [folder.parent for folder in islice(path.glob("**/cam4/hand_pose"), 100_000)]
        return sorted(found)

    def load(self, file: Path) -> Recording:
        files = sorted((file / "hand_pose").glob("*.txt"))
        rows = np.stack([_numbers(text, 128) for text in files]).reshape(len(files), 2, 64)
        cameras = np.stack([_numbers(file / "cam_pose" / text.name, 16).reshape(4, 4) for text in files])
        hands = {}
        for side, row in zip(SIDES, np.moveaxis(rows, 1, 0), strict=True):
            points = row[:, 1:].reshape(-1, N_LANDMARKS, 3)
            points = np.einsum("tij,tkj->tki", cameras[:, :3, :3], points) + cameras[:, None, :3, 3]
            points[row[:, 0] < 0.5] = np.nan
            hands[side] = hand_of(points)
        folder = next((file / name for name in ("rgb", "rgb256") if (file / name).is_dir()), None)
        images: dict[str, Sequence[U8]] = {}
        if folder is not None:
            pictures = [
                next(iter(folder.glob(f"{text.stem}.*")), folder / f"{text.stem}.jpg") for text in files
            ]
            images["rgb"] = Made(len(pictures), partial(_picture, pictures))
        return Recording(np.arange(len(files)) / 30, hands, "", images)


class EgoVerseReader(HandsReader):
    """One Zarr v3 store per episode: `{side}.obs_keypoints` (t, 63) or `obs_ee_pose`, xyz wxyz; padded."""

    name = "egoverse"
    places = ("zarr.json", "*/zarr.json")

    def find(self, path: Path) -> list[Path]:
        return (
            [path] if (path / "zarr.json").is_file() else sorted(f.parent for f in path.glob("*/zarr.json"))
        )

    def load(self, file: Path) -> Recording:
        store = _zarr(file)
        said = dict(store.attrs)
        n, fps = int(said["total_frames"]), float(said.get("fps", 30))
        embodiment = str(said.get("embodiment") or said.get("robot_type") or "")
        hands = {}
        for side in SIDES:
            if f"{side}.obs_keypoints" in store:
                points = _array(store, f"{side}.obs_keypoints", n).reshape(n, N_LANDMARKS, 3)
                raw = embodiment.startswith("aria") and f"{side}.obs_aria_keypoints" not in store
                points = points[:, TIPS_FIRST] if raw else points
                bad = (np.abs(points) >= 1e8).any(axis=(1, 2)) | (points == 0).all(axis=(1, 2))
                points[bad] = np.nan  # 1e9 or zeros: not tracked
                hands[side] = hand_of(points)
            elif f"{side}.obs_ee_pose" in store:
                pose = _array(store, f"{side}.obs_ee_pose", n)
                known = (np.abs(pose) < 1e8).all(axis=1) & (np.linalg.norm(pose[:, 3:], axis=1) > 1e-3)
                pose[~known] = np.nan
                hands[side] = Hand(pose[:, :3], pose[:, 3:7], np.where(known, 1.0, np.nan))
        times = np.arange(n) / fps
        if "obs_rgb_timestamps_ns" in store:
            times = _array(store, "obs_rgb_timestamps_ns", n).reshape(-1) / 1e9
        keys = sorted(key for key in store if key.startswith("images."))
        images: dict[str, Sequence[U8]] = {key: Made(n, partial(_zarr_picture, file, key)) for key in keys}
        task = str(said.get("task_description") or said.get("task_name") or said.get("task") or "")
        return Recording(times, hands, task, images)


def _picture(files: Sequence[Path], number: int) -> U8:
    with as_dataset_error(files[number]):
        return decode_image(files[number].read_bytes(), files[number].name)


def _zarr_picture(store: Path, key: str, number: int) -> U8:
    """Decode an image of an array of JPEG bytes."""
    with as_dataset_error(store, key):
        return decode_image(bytes(_zarr(store)[key][number : number + 1][0]), key)


def _zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise InputError(
            "EgoVerse is in Zarr, which is not installed: pip install 'recap-robot[hands]'", code="hands.zarr"
        ) from None
    return zarr.open_group(str(path), mode="r", zarr_format=3)


def _array(store: Any, key: str, n: int) -> F64:
    """The first n rows; the rest is padding."""
    array = store[key]
    check_size(key, array.shape, 8)
    if array.shape[0] < n:
        raise ValueError(f"{key} has {array.shape[0]} rows, total_frames is {n}")
    return np.array(array[:n], np.float64)


def _numbers(file: Path, n: int) -> F64:
    values = np.array(read_text(file).split(), np.float64)
    if len(values) != n:
        raise ValueError(f"{file.name} has {len(values)} numbers, not {n}")
    return values


def _turn(axis: F64, angle: float) -> F64:
    x, y, z = axis
    length = float(np.linalg.norm(axis)) or 1.0
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) / length
    angle *= length
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k)
