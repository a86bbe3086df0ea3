"""Writes demonstrations of two arms as RoboTwin 2.0 HDF5 files, one file per episode.

Besides RoboTwin's own keys a file holds `additional_info/frequency`, because the rate may differ from
RoboTwin's, and `objects/NAME` (t, 7) if object poses are known. RoboTwin's readers ignore both. Camera
matrices are not written. Joints, which RoboTwin's training scripts read, are written if they are given or
are the robot's features; tool poses if those are. The release layout stores no actions: the next state is
the action. The layout of the main branch stores them.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from recap.errors import InputError, RunDirectoryError, one_of
from recap.geometry3 import ARM_DIM, ROTATION, decode_arm, rotation6_error, without_jumps
from recap.types import F32, F64, U8, Episode

Layout: TypeAlias = Literal["release", "v1.0"]
LAYOUTS = ("release", "v1.0")
Joints: TypeAlias = tuple[NDArray[Any], NDArray[Any]]  # (t, n) angles of the left and the right arm
Note: TypeAlias = Mapping[str, Any]  # entries of scene_info.json and seed.txt for one episode

FPS = 250 / 15  # RoboTwin keeps every 15th of 250 physics steps per second
ARMS = ("left", "right")
CAMERAS = {  # our name -> the camera's group in the release layout and in the main branch's
    "head": ("head_camera", "cam_head"),
    "left_wrist": ("left_camera", "cam_left_wrist"),
    "right_wrist": ("right_camera", "cam_right_wrist"),
    "front": ("front_camera", "cam_front"),
}
_OURS = {theirs: ours for ours, names in CAMERAS.items() for theirs in names}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MAX_ROTATION_ERROR = 1e-2
_JOINT_WIDTHS = ((14,), (16,))  # two arms of six or seven joints, each with a gripper


def our_camera(theirs: str) -> str:
    """Our name of a camera of either layout; unknown cameras keep their name."""
    return _OURS.get(theirs, theirs)


def their_camera(ours: str, *, newer: bool = False) -> str:
    """The inverse of `our_camera`."""
    return CAMERAS[ours][newer] if ours in CAMERAS else ours


def write_robotwin(
    episodes: Iterable[Episode],
    out: Path,
    task: str,
    config: str,
    *,
    layout: Layout = "release",
    joints: Mapping[str, Joints] | None = None,
    progress: Callable[[int], None] = lambda n: None,
) -> Path:
    """Write `out/{task}/{config}`, completely or not at all, and return it; existing folders are kept.

    Args:
        episodes: with 20-D tool poses, see `recap.geometry3.encode_arms`, or joints and grippers of two arms.
        out: RoboTwin's `data` folder, or any other.
        task: RoboTwin's name of the task, such as lift_pot.
        config: RoboTwin's name of the task configuration, such as demo_clean.
        joints: episode id -> angles, if known.
        progress: called with the number of written episodes.
    """
    one_of("layout", layout, LAYOUTS)
    folder = _check_free(out, task, config)
    made = [parent for parent in (folder.parent, out) if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{config}.", dir=folder.parent))
    try:
        staging.chmod(0o755)
        notes: list[Note] = []
        for i, episode in enumerate(episodes):
            notes.append(write_episode(staging, i, episode, layout, (joints or {}).get(episode.id)))
            progress(i + 1)
        if not notes:
            raise InputError("there is no demonstration to write: give one or more")
        write_notes(staging, notes)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        for parent in made:  # unless another process uses it now
            if not any(parent.iterdir()):
                parent.rmdir()
        raise
    return folder


def write_tasks(
    episodes: Sequence[Episode],
    out: Path,
    config: str,
    *,
    task: str | None = None,
    layout: Layout = "release",
    progress: Callable[[int], None] = lambda n: None,
) -> list[Path]:
    """Write `out/{task}/{config}` for each task; the name is the attribute `task_key`, or else `task`."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        name = episode.attributes.get("task_key", task)
        if name is None:
            raise InputError(f"episode {episode.id} does not name its task: give --task, as in lift_pot")
        groups.setdefault(str(name), []).append(episode)
    for name in groups:
        _check_free(out, name, config)
    n_before = 0

    def report(n: int) -> None:
        progress(n_before + n)

    folders: list[Path] = []
    try:
        for name, group in groups.items():
            folders.append(write_robotwin(group, out, name, config, layout=layout, progress=report))
            n_before += len(group)
    except BaseException:
        for folder in folders:  # all tasks or none
            shutil.rmtree(folder)
        raise
    return folders


def folder_named(out: Path, task: str, config: str) -> Path:
    """RoboTwin's folder of a task; raises an InputError if a name cannot be used."""
    _check_names("task", [task])
    _check_names("config", [config])
    return out / task / config


def write_episode(
    folder: Path, index: int, episode: Episode, layout: Layout, joints: Joints | None = None
) -> Note:
    """Write the files of one episode, and return its note for `write_notes`."""
    for name in ("data", "instructions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    newer = layout != "release" and has_joints(episode, joints)  # names that training scripts expect
    name = f"episode_{index:07d}" if newer else f"episode{index}"
    with h5py.File(folder / f"data/{name}.hdf5", "w") as file:
        _write_arrays(file, episode, layout, joints)
    words = json.dumps({"seen": [episode.task], "unseen": []}, indent=1)
    (folder / f"instructions/{name}.json").write_text(words + "\n", "utf-8")
    info = {key.removeprefix("scene."): value for key, value in episode.attributes.items()}
    scene = {"info": info, "id": episode.id, "embodiment": episode.embodiment}
    return {"scene": scene, "seed": episode.attributes.get("seed"), "file": f"{name}.hdf5"}


def has_joints(episode: Episode, joints: Joints | None = None) -> bool:
    """True if RoboTwin's training scripts, which read joint angles, can use it."""
    return joints is not None or episode.proprio.shape[1:] in _JOINT_WIDTHS


def write_notes(folder: Path, notes: Sequence[Note]) -> None:
    """Write scene_info.json and seed.txt; notes are in the order of the episodes."""
    scenes = {f"episode_{i}": note["scene"] for i, note in enumerate(notes)}
    (folder / "scene_info.json").write_text(json.dumps(scenes, indent=1) + "\n", "utf-8")
    seeds = [note["seed"] for note in notes]
    if all(type(seed) is int for seed in seeds):  # a made-up seed would not reproduce the scene
        (folder / "seed.txt").write_text(" ".join(map(str, seeds)), "utf-8")


def _check_free(out: Path, task: str, config: str) -> Path:
    folder = folder_named(out, task, config)
    if folder.exists():
        raise RunDirectoryError(f"{folder} exists already: give another --config or DIR, or remove it first")
    return folder


@dataclass(frozen=True, slots=True)
class _Arm:
    """One arm over time."""

    gripper: F64  # (t,)
    poses: F64 | None  # (t, 7)
    joints: F64 | None  # (t, n)


def _write_arrays(file: Any, episode: Episode, layout: Layout, joints: Joints | None) -> None:
    state = _arms(episode, "proprioception", episode.proprio, joints)
    _check_names("camera", episode.images)
    _check_names("object", episode.objects)
    newer = layout != "release"
    if newer:
        ahead = None if joints is None else tuple(np.concatenate([each[1:], each[-1:]]) for each in joints)
        action = _arms(episode, "actions", episode.actions, ahead)
        _write_newer(file, episode, {"state": state, "action": action})
    else:
        _write_release(file, state)
    for camera, frames in episode.images.items():
        name = their_camera(camera, newer=newer)
        key = f"vision/{name}/colors" if newer else f"observation/{name}/rgb"
        file[key] = _jpegs(episode, camera, frames)
    file["additional_info/frequency"] = float(episode.fps)
    group = file.create_group("objects", track_order=True) if episode.objects else {}
    for name, poses in episode.objects.items():  # keep their order: the first is manipulated first
        group[name] = np.asarray(poses)


def _write_release(file: Any, state: Mapping[str, _Arm]) -> None:
    vector: list[F64] = []
    for name, arm in state.items():
        if arm.poses is not None:
            file[f"endpose/{name}_endpose"] = arm.poses
            file[f"endpose/{name}_gripper"] = arm.gripper
        if arm.joints is not None:
            file[f"joint_action/{name}_arm"] = arm.joints
            file[f"joint_action/{name}_gripper"] = arm.gripper
            vector += [arm.joints, arm.gripper[:, None]]
    if vector:
        file["joint_action/vector"] = np.concatenate(vector, axis=1)


def _write_newer(file: Any, episode: Episode, groups: Mapping[str, Mapping[str, _Arm]]) -> None:
    file["data_format_version"] = np.bytes_(b"v1.0")
    file["instructions"] = np.bytes_(json.dumps([episode.task]).encode())  # converters read a list
    for group, arms in groups.items():
        for name, arm in arms.items():
            if arm.poses is not None:
                file[f"{group}/{name}_ee_poses"] = arm.poses
            file[f"{group}/{name}_ee_joint_states"] = arm.gripper[:, None]
            if arm.joints is not None:
                file[f"{group}/{name}_arm_joint_states"] = arm.joints


def _arms(episode: Episode, what: str, values: F32, joints: Sequence[NDArray[Any]] | None) -> dict[str, _Arm]:
    """Each arm by name; raises an InputError if these are not two arms."""
    if values.ndim == 2 and values.shape[1:] in _JOINT_WIDTHS and np.isfinite(values).all():
        halves = np.split(values.astype(np.float64), 2, axis=1)
        return {name: _Arm(half[:, -1], None, half[:, :-1]) for name, half in zip(ARMS, halves, strict=True)}
    if values.ndim != 2 or values.shape[1] != 2 * ARM_DIM or not len(values):
        raise InputError(
            f"the {what} of {episode.id} is of shape {values.shape}: RoboTwin's files hold two arms, "
            "(t, 20) of tool poses, or (t, 14) or (t, 16) of joints and grippers"
        )
    found: dict[str, _Arm] = {}
    for i, (name, part) in enumerate(zip(ARMS, np.split(values, 2, axis=1), strict=True)):
        error = rotation6_error(part[:, ROTATION])
        if not np.isfinite(part).all() or error.max() > _MAX_ROTATION_ERROR:
            raise InputError(f"the {what} of {episode.id} holds no poses ({name} arm): correct the episode")
        poses, gripper = decode_arm(part)
        angles = None if joints is None else _angles(joints[i], len(gripper))
        poses[:, 3:] = without_jumps(poses[:, 3:])  # continuous, as from a simulator
        found[name] = _Arm(gripper, poses, angles)
    return found


def _angles(values: NDArray[Any], n: int) -> F64:
    angles = np.asarray(values, np.float64)
    if angles.ndim != 2 or len(angles) != n or not np.isfinite(angles).all():
        raise InputError(f"joint angles of shape {angles.shape} do not fit {n} frames: give (t, joints)")
    return angles


def _jpegs(episode: Episode, camera: str, frames: Sequence[U8]) -> NDArray[np.bytes_]:
    """JPEG strings padded to one length, red and blue swapped: RoboTwin passes RGB to OpenCV as BGR."""
    encoded = []
    for frame in frames:
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            shape = f"{frame.dtype} {frame.shape}"
            raise InputError(f"camera '{camera}' of {episode.id} has frames of {shape}: give u8 (h, w, 3)")
        data = io.BytesIO()
        swapped = Image.fromarray(np.ascontiguousarray(frame[:, :, ::-1]))
        swapped.save(data, "JPEG", quality=95, subsampling="4:2:0")  # same bytes as OpenCV
        encoded.append(data.getvalue())
    if len(encoded) != len(episode):
        raise InputError(f"camera '{camera}' of {episode.id} has {len(encoded)} frames, not {len(episode)}")
    longest = max(map(len, encoded))
    return np.array(encoded, dtype=f"S{longest}")


def _check_names(what: str, names: Iterable[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(f"'{name}' is no {what} name: use letters, digits, _ and -, as in lift_pot")
