"""Re-creates how RoboTwin's training scripts read a dataset: the same keys, shapes and order.

`act` and `dp` stand for policy/ACT/process_data.py and policy/DP/process_data.py of the release, `newer` for
XPolicyLab's scripts/transform_lerobot_v30_format.py, which converts the main branch's layout to LeRobot's.
Each returns states, actions (n, 14) and images, as the scripts do. `instructions` returns the tasks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import h5py  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

Read = tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]


def _decoded(data: Any) -> NDArray[Any]:
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return np.asarray(picture)


def act(folder: Path, n_episodes: int) -> Read:
    """Three cameras at 640x480; joints and grippers from separate keys; the action is the next state."""
    assert len(list((folder / "data").iterdir())) >= n_episodes
    states, actions = [], []
    pictures: dict[str, list[NDArray[Any]]] = {"head_camera": [], "right_camera": [], "left_camera": []}
    for number in range(n_episodes):
        with h5py.File(folder / f"data/episode{number}.hdf5") as root:
            parts = [root[f"/joint_action/{n}"][()] for n in ("left_arm", "right_arm")]
            grippers = [root[f"/joint_action/{n}"][()] for n in ("left_gripper", "right_gripper")]
            cameras = {name: root[f"/observation/{name}/rgb"][()] for name in root["/observation/"]}
        for t in range(len(grippers[0]) - 1):
            now, then = (
                np.concatenate((parts[0][i], [grippers[0][i]], parts[1][i], [grippers[1][i]])).astype(
                    np.float32
                )
                for i in (t, t + 1)
            )
            states.append(now)
            actions.append(then)
            for name, frames in pictures.items():
                frames.append(cv2.resize(_decoded(cameras[name][t]), (640, 480)))
    return (
        np.float32(states),
        np.float32(actions),
        {name: np.stack(frames) for name, frames in pictures.items()},
    )


def dp(folder: Path, n_episodes: int) -> Read:
    """The joint vector and the head camera, channels first."""
    states, actions, pictures = [], [], []
    for number in range(n_episodes):
        with h5py.File(folder / f"data/episode{number}.hdf5") as root:
            n = root["/joint_action/left_gripper"][()].shape[0]
            for name in ("left_arm", "right_gripper", "right_arm"):
                assert len(root[f"/joint_action/{name}"][()]) == n
            vector = root["/joint_action/vector"][()]
            images = {name: root[f"/observation/{name}/rgb"][()] for name in root["/observation/"]}
        states.append(vector[:-1])
        actions.append(vector[1:])
        pictures += [_decoded(data) for data in images["head_camera"][:-1]]
    stacked = np.moveaxis(np.array(pictures), -1, 1)
    return np.concatenate(states), np.concatenate(actions), {"head_camera": stacked}


def newer(folder: Path, n_episodes: int) -> Read:
    """State and action of each arm: joints, then gripper, each (t, n); three cameras, one image per state."""
    states: list[NDArray[Any]] = []
    actions: list[NDArray[Any]] = []
    pictures: dict[str, list[NDArray[Any]]] = {"cam_head": [], "cam_left_wrist": [], "cam_right_wrist": []}
    for path in sorted((folder / "data").rglob("*.hdf5"))[:n_episodes]:
        with h5py.File(path) as root:
            for group, found in (("state", states), ("action", actions)):
                fields = [f"{arm}_{what}_joint_states" for arm in ("left", "right") for what in ("arm", "ee")]
                found.append(np.concatenate([root[group][field][:] for field in fields], axis=1))
            assert states[-1].shape == actions[-1].shape
            for name in pictures.keys() & root["vision"].keys():  # one that is missing becomes black
                pictures[name] += [_decoded(data) for data in root[f"vision/{name}/colors"]]
    return (
        np.concatenate(states),
        np.concatenate(actions),
        {name: np.array(frames) for name, frames in pictures.items()},
    )


def instructions(folder: Path) -> list[str]:
    """The task of each episode: a sentence, or one of a JSON list; anything else becomes its own text."""
    found = []
    for path in sorted((folder / "data").rglob("*.hdf5")):
        with h5py.File(path) as root:
            value = json.loads(root["instructions"][()].decode())
        found.append(value[0] if isinstance(value, list) else str(value))
    return found
