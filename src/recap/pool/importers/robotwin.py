"""Reads RoboTwin 2.0's HDF5, one file per episode, in the layouts of its release and of its main branch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from recap.errors import DatasetError
from recap.pool.importers import hdf5
from recap.pool.importers.mapping import IMAGE, NEXT, OBJECT, SourceKey, check_name, one_line
from recap.pool.importers.source import RawEpisode, Reader, as_dataset_error, check_fps, read_text
from recap.pool.importers.strings import TextPlace, read_strings
from recap.pool.robotwin_write import FPS, our_camera
from recap.types import Scalar

T = TypeVar("T")

_FILE = re.compile(r"episode_?(?P<number>\d{1,9})\.(?:hdf5|h5)")
_MAX_ATTRIBUTES = 32
_POSE_SPACE = "absolute tool poses of the next step, each arm xyz in metres, 6-D rotation, gripper 0 to 1"
_JOINT_SPACE = "absolute joint angles of the next step in radians, gripper 0 to 1"


def recognises(file: Any) -> bool:
    """True if an open HDF5 file has one of the two layouts."""
    older = any(hdf5.has(file, key) for key in ("endpose/left_endpose", "joint_action/vector"))
    return older or any(hdf5.has(file, f"state/left_{key}") for key in ("ee_poses", "arm_joint_states"))


def episode_files(path: Path) -> list[Path]:
    """The episode files of a file, a folder or a folder with `data/`, ordered by number."""
    if path.is_file():
        return [path]
    for folder in (path / "data", path):
        if folder.is_dir():
            files = [file for file in folder.iterdir() if _FILE.fullmatch(file.name) and file.is_file()]
            if files:
                return sorted(files, key=_number)
    return []


class RobotwinReader(Reader):
    """One episode or a folder of episodes."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        self._files = episode_files(path)
        if not self._files:
            raise DatasetError(f"{path} has no data/episode0.hdf5; it is no RoboTwin folder")
        self._given_fps = None if fps is None else check_fps(fps)
        with hdf5.opened(hdf5.first_readable(self._files)) as file:
            if not recognises(file):
                raise DatasetError(f"{self._files[0]} has neither endpose nor state; it is no RoboTwin file")
            self.keys = hdf5.walk(file)
        root = self._files[0].absolute().parent
        self._folder = root.parent if root.name == "data" else root
        self._task_key = self._folder.parent.name if root.name == "data" else ""  # TASK/CONFIG/data
        self._scenes = self._read_beside("scene_info.json", _scenes, "{}")
        self._seeds = self._read_beside("seed.txt", lambda text: dict(enumerate(map(int, text.split()))))

    def __len__(self) -> int:
        return len(self._files)

    def lengths(self) -> Sequence[int]:
        """From the shape of the first key of the proprioception."""
        key = self.default_mapping().get("proprio", "").split("+")[0].split("@")[0]
        return [hdf5.length(path, key) for path in self._files]

    def default_mapping(self) -> Mapping[str, str]:
        """20-D tool poses if stored, else joints; the action is the next state unless actions are stored."""
        state, action = _arms(self.keys, "state"), _arms(self.keys, "action")
        older = [f"endpose/{arm}_{what}" for arm in ("left", "right") for what in ("endpose", "gripper")]
        if all(key in self.keys for key in older):
            poses = "+".join(key + "@wxyz" * key.endswith("_endpose") for key in older)
            mapping = {"proprio": poses, "action": NEXT + poses}
        elif state:
            # Some writers store poses but only joints as actions. State and action must be of the same kind.
            same = action.replace("action/", "state/") == state
            mapping = {"proprio": state, "action": action if same else NEXT + state}
        elif "joint_action/vector" in self.keys:
            mapping = {"proprio": "joint_action/vector", "action": NEXT + "joint_action/vector"}
        else:
            mapping = {}
        for key, info in self.keys.items():
            parts = key.split("/")
            if info.kind == "images" and len(parts) == 3:
                mapping[f"{IMAGE}{our_camera(check_name('camera', parts[1]))}"] = key
            elif len(parts) == 2 and parts[0] == "objects" and info.shape[1:] == (7,):  # from our export
                mapping[f"{OBJECT}{check_name('object', parts[1])}"] = key
        return mapping

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One episode, with texts and scene from the files next to it."""
        path = self._files[index]
        with hdf5.opened(path) as file:
            values = {key: hdf5.read_numbers(file, key) for key in numbers}
            frames = {key: hdf5.frames(path, file, key) for key in images}
            rate = hdf5.read_number(file, "additional_info/frequency")
        number = _number(path)
        scene = self._seeds.get(number)
        name = "/".join((*self._folder.parts[-2:], path.stem)).strip("/")
        fps = self._given_fps or check_fps(FPS if rate is None else rate)
        n = max((len(v) for v in values.values()), default=0)
        attributes = dict(self._scenes.get(number, {}))
        if scene is not None:
            attributes["seed"] = scene
        if "scene.main_object" in attributes:  # written by our export: a pool may not keep the object order
            attributes["main_object"] = attributes["scene.main_object"]
        if self._task_key:
            attributes["task_key"] = one_line("task key", self._task_key)
        text = self._texts.get(index)
        beside = f"instructions/{path.stem}.json"
        return RawEpisode(
            id=name,
            scene_id=name if scene is None else f"{'/'.join(self._folder.parts[-2:])}/seed-{scene}",
            fps=fps,
            timestamps=np.arange(n) / fps,
            numbers=values,
            images=frames,
            task=_instruction(text) if text else self._read_beside(beside, _instruction),
            embodiment=str(attributes.get("scene.embodiment", "unknown")),  # written by our export
            action_space=_POSE_SPACE if any("pose" in key for key in numbers) else _JOINT_SPACE,
            source=f"robotwin:{path.name}",
            attributes=attributes,
        )

    @cached_property
    def _texts(self) -> Mapping[int, str | None]:
        """The instructions of all files, read together because that takes a child process."""
        places: dict[int, TextPlace] = {}
        texts: dict[int, str | None] = {}
        for i, path in enumerate(self._files):
            try:
                found = hdf5.find_texts(path, [("instructions", None), ("instruction", None)])
            except DatasetError:
                continue  # raised when this episode is read
            text = next((text for text in found if text), None)
            if isinstance(text, TextPlace):
                places[i] = text
            else:
                texts[i] = text
        return texts | dict(zip(places, read_strings(list(places.values())), strict=True))

    def _read_beside(self, name: str, parse: Callable[[str], T], missing: str = "") -> T:
        """The parsed content of a text file of the dataset; `missing` is parsed if there is none."""
        file = self._folder / name
        with as_dataset_error(file):
            return parse(read_text(file) if file.is_file() else missing)


def _arms(keys: Mapping[str, SourceKey], group: str) -> str:
    """Tool pose (or joints) and gripper of both arms of the newer layout; "" if one is missing."""
    for what, order in (("ee_poses", "@wxyz"), ("arm_joint_states", "")):
        names = [f"{group}/{arm}_{part}" for arm in ("left", "right") for part in (what, "ee_joint_states")]
        if all(name in keys for name in names):
            return "+".join(name + order * name.endswith(what) for name in names)
    return ""


def _number(path: Path) -> int:
    """The number in an episode's file name; -1 if it has none."""
    match = _FILE.fullmatch(path.name)
    return int(match["number"]) if match else -1


def _scenes(text: str) -> dict[int, dict[str, Scalar]]:
    """The scene of each episode from scene_info.json, by episode number."""
    found = {}
    for name, scene in json.loads(text).items():
        match = re.fullmatch(r"episode_?(\d{1,9})", name)
        if match and isinstance(scene, dict):
            found[int(match[1])] = _scalars(scene)
    return found


def _instruction(text: str) -> str:
    """The first sentence of `{"seen": […], "unseen": […]}` or of a list, or else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        lists = [value.get(key) for key in ("seen", "instructions", "instruction", "unseen")]
        value = next((found for found in lists if found), "")
    if isinstance(value, list):
        value = value[0] if value else ""
    if not isinstance(value, str):
        raise ValueError("its instructions are no text")
    return value


def _scalars(scene: Mapping[str, Any]) -> dict[str, Scalar]:
    """The scalar values of a scene, with `info` flattened, up to a limit."""
    inner = scene.get("info")
    flat = {**scene, **(inner if isinstance(inner, dict) else {})}
    plain = {
        f"scene.{key.strip('{}')}"[:64]: value
        for key, value in flat.items()
        if isinstance(value, str | int | float | bool) and len(str(value)) <= 200 and value == value
    }
    return dict(list(plain.items())[:_MAX_ATTRIBUTES])
