"""Reads robomimic's HDF5, `data/demo_i/{actions, obs/…}`, also with image arrays under obs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np

from recap.errors import DatasetError, InputError
from recap.pool.importers import hdf5
from recap.pool.importers.mapping import IMAGE, OBJECT
from recap.pool.importers.source import RawEpisode, Reader, as_dataset_error, check_fps
from recap.types import Scalar

_EEF = re.compile(r"obs/(?P<arm>(?:\w+_)?)eef_pos")
_STATES = ("obs/agent_pos", "obs/state", "obs/proprio", "obs/robot_state")
_GOALS = ("obs/goal", "obs/goal_pose")
_FILE_TEXTS = ("env_args", "problem_info")  # the second is LIBERO's
_DEMO_TEXTS = ("task", "language_instruction", "lang", "ep_meta")  # the last is RoboCasa's, JSON


def recognises(file: Any) -> bool:
    """True if an open HDF5 file has this layout."""
    data = file["data"] if hdf5.has(file, "data") else None
    return isinstance(data, h5py.Group) and any(_is_demo(data, name) for name in data)


class RobomimicReader(Reader):
    """One file; demonstrations are ordered by index."""

    def __init__(self, path: Path, fps: float | None = None) -> None:
        self.path = path
        with hdf5.opened(path) as file:
            if not recognises(file):
                raise DatasetError(f"{path} has no data/demo_0/actions; it is no robomimic file")
            data = hdf5.member(file, "data")
            demos = [name for name in data if _is_demo(data, name)]
            self._demos = sorted(demos, key=lambda name: int(name.removeprefix("demo_")))
            self.keys = hdf5.walk(hdf5.member(data, self._demos[0]))
        places = [("data", name) for name in _FILE_TEXTS]
        places += [(f"data/{demo}", name) for demo in self._demos for name in _DEMO_TEXTS]
        env, problem, *texts = hdf5.read_texts(path, places)
        self._env, self._problem = _json(env), _json(problem)
        width = len(_DEMO_TEXTS)
        self._texts = [texts[i : i + width] for i in range(0, len(texts), width)]
        kwargs = self._env.get("env_kwargs")
        self._kwargs: dict[str, Any] = kwargs if isinstance(kwargs, dict) else {}
        self.fps = self._rate(fps)

    def __len__(self) -> int:
        return len(self._demos)

    def lengths(self) -> Sequence[int]:
        with hdf5.opened(self.path) as file:
            return [hdf5.member(file, f"data/{demo}/actions").shape[0] for demo in self._demos]

    def default_mapping(self) -> Mapping[str, str]:
        """End-effector position, quaternion and gripper of every arm, or else the state vector."""
        numbers = [key for key, info in self.keys.items() if info.kind == "numbers"]
        mapping = {"action": "actions"} if "actions" in numbers else {}
        parts: list[str] = []
        for key in numbers:
            match = _EEF.fullmatch(key)
            if match:
                names = [f"obs/{match['arm']}{name}" for name in ("eef_pos", "eef_quat", "gripper_qpos")]
                parts += [name for name in names if name in numbers]
        states = [key for key in _STATES if key in numbers]
        if parts or states:
            mapping["proprio"] = "+".join(parts) or states[0]
        if "obs/object" in numbers:
            mapping[f"{OBJECT}environment"] = "obs/object"
        goals = [key for key in _GOALS if key in numbers]
        if goals:
            mapping["goal"] = goals[0]
        for key, info in self.keys.items():
            if info.kind == "images" and key.startswith("obs/"):
                mapping[IMAGE + key.removeprefix("obs/").removesuffix("_image").replace("/", "_")] = key
        return mapping

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        name = self._demos[index]
        with hdf5.opened(self.path, name) as file:
            demo = hdf5.member(file, f"data/{name}")
            values = {key: hdf5.read_numbers(demo, key) for key in numbers}
            frames = {key: hdf5.frames(self.path, demo, key) for key in images}
            n = hdf5.member(demo, "actions").shape[0]
            success = hdf5.read_flag(demo, "success")
        robots = self._kwargs.get("robots")
        robot = " ".join(map(str, robots)) if isinstance(robots, list) else robots
        attributes: dict[str, Scalar] = {"demo": name}
        if isinstance(self._env.get("env_name"), str):
            attributes["env_name"] = self._env["env_name"]
        return RawEpisode(
            id=f"{self.path.stem}/{name}",
            scene_id=f"{self.path.stem}/{name}",
            fps=self.fps,
            timestamps=np.arange(n) / self.fps,
            numbers=values,
            images=frames,
            task=self._task(index),
            embodiment=str(robot or "unknown"),
            action_space=self._action_space(),
            success=success is not False,
            source=f"robomimic:{self.path.name}",
            attributes=attributes,
        )

    def _rate(self, given: float | None) -> float:
        if given is not None:
            return check_fps(given)
        rate = self._kwargs.get("control_freq")
        if not isinstance(rate, int | float) or isinstance(rate, bool):
            raise InputError(f"{self.path} does not say its frame rate: give it, as in --fps 20")
        with as_dataset_error(self.path, "env_args"):
            return check_fps(rate)

    def _action_space(self) -> str:
        controller = self._kwargs.get("controller_configs")
        if isinstance(controller, dict) and isinstance(controller.get("type"), str):
            kind = " delta" if controller.get("control_delta") is True else ""
            return f"{controller['type']}{kind}"
        return ""

    def _task(self, index: int) -> str:
        """The instruction, from any of the places that writers of this layout use."""
        *plain, meta = self._texts[index]
        found = _json(meta).get("lang") or self._problem.get("language_instruction")
        if isinstance(found, list):
            found = "".join(map(str, found))
        words = [text for text in (*plain, found) if isinstance(text, str) and text.strip()]
        return words[0].strip('"') if words else ""


def _is_demo(data: Any, name: str) -> bool:
    return re.fullmatch(r"demo_\d{1,9}", name) is not None and hdf5.has(data, f"{name}/actions")


def _json(text: str | None) -> dict[str, Any]:
    """A JSON attribute; invalid JSON counts as empty, because nothing essential is stored there."""
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
