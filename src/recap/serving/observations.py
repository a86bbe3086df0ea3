"""Parses and validates observations that robots send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recap.errors import WireError
from recap.robot import POSE_SIZES, RobotSpec
from recap.types import F64, U8, Observation, Requires, Scalar
from recap_client import messages as keys

MAX_PROMPT = 1000  # characters
MAX_OBJECTS = 32
MAX_OPTIONS = 32
MAX_MISSED = 10**6  # periods
MIN_SIDE, MAX_SIDE = 16, 4096  # px of an image
MAX_NAMED = 8  # images that an error message lists
FAR = 1e6  # largest number accepted, in any unit


@dataclass(frozen=True, slots=True)
class Reset:
    """A request to begin a new episode."""

    seed: int | None = None
    options: Mapping[str, Scalar] | None = None  # of the suite
    success: bool | None = None  # outcome of the last episode, if the robot reports it


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """What an observation must contain."""

    robot: RobotSpec
    requires: Requires
    estimates: bool  # True if missing poses are estimated from images
    default_prompt: str

    def camera_of(self, key: str) -> str | None:
        """The camera of a message key; openpi has two fixed keys."""
        cameras = tuple(self.robot.cameras)
        if key.startswith(keys.IMAGES):
            return key.removeprefix(keys.IMAGES)
        if key == keys.IMAGE:
            return cameras[0] if cameras else None
        wrists = [name for name in cameras if "wrist" in name] or list(cameras[1:2])
        return wrists[0] if key == keys.WRIST and wrists else None

    def key_of(self, camera: str) -> str:
        """The message key of a camera's image."""
        return keys.IMAGE if camera == next(iter(self.robot.cameras), None) else f"{keys.IMAGES}{camera}"


def read_reset(message: Mapping[str, Any]) -> Reset | None:
    """The reset in a message, if there is one."""
    if keys.RESET not in message:
        return None
    if message[keys.RESET] is not True:
        raise WireError("'reset' is not true: send it as true, or leave it out")
    seed, options = message.get("seed"), message.get("options")
    if seed is not None:
        seed = _integer("seed", seed, 2**63 - 1)
    if options is not None:
        plain = isinstance(options, dict) and len(options) <= MAX_OPTIONS
        if not plain or not all(isinstance(value, str | int | float) for value in options.values()):
            raise WireError("'options' is not a map of text and numbers: send for example {'name': 'value'}")
    success = message.get("success")
    if success is not None and not isinstance(success, bool):
        raise WireError("'success' is neither true nor false: send one, or leave it out")
    return Reset(seed, options, success)


def read_executed(message: Mapping[str, Any], most: int) -> int | None:
    """How many actions of the last chunk were executed, if the robot reports it."""
    if keys.EXECUTED not in message:
        return None
    return min(_integer(keys.EXECUTED, message[keys.EXECUTED], 2**31), most)


def read_missed(message: Mapping[str, Any]) -> int:
    """The number of control periods without an action since the last observation, if reported; else 0."""
    return _integer(keys.MISSED, message[keys.MISSED], MAX_MISSED) if keys.MISSED in message else 0


def read_observation(message: Mapping[str, Any], spec: ObservationSpec, time_s: float) -> Observation:
    """Convert a message to an observation; a WireError names what is wrong."""
    if keys.STATE not in message:
        raise WireError(f"the observation has no '{keys.STATE}': send the robot's proprioception")
    robot = spec.robot
    names = [key.removeprefix(keys.OBJECTS) for key in message if key.startswith(keys.OBJECTS)]
    if len(names) > MAX_OBJECTS:
        raise WireError(f"the observation has {len(names)} objects: send at most {MAX_OBJECTS}")
    sent = {name: message[keys.OBJECTS + name] for name in names}
    poses = {name: _pose(keys.OBJECTS + name, pose, robot.object_size(name)) for name, pose in sent.items()}
    goal = None
    if keys.GOAL in message:
        goal = _pose(keys.GOAL, message[keys.GOAL], None if robot.goal is None else POSE_SIZES[robot.goal])
    if keys.TIME in message:
        value = message[keys.TIME]
        value = np.atleast_1d(value) if isinstance(value, np.ndarray | np.generic | int | float) else value
        time_s = float(_numbers(keys.TIME, value, 1)[0])
    images = _images(message, spec)
    missing = [camera for camera in spec.requires.cameras if camera not in images]
    if missing:
        found = [key for key, value in message.items() if isinstance(value, np.ndarray) and value.ndim == 3]
        raise WireError(
            f"the observation has no '{spec.key_of(missing[0])}': send uint8 (height, width, 3) of camera "
            f"'{missing[0]}'; its images are {', '.join(map(repr, found[:MAX_NAMED])) or 'none'}"
        )
    missing_pose = spec.requires.missing(poses, goal)
    if missing_pose is not None and not (images and spec.estimates):
        wanted = [f"'{keys.OBJECTS}{name}'" for name in spec.requires.objects]
        wanted += [f"'{keys.GOAL}'"] if spec.requires.goal else []
        image = f", or '{keys.IMAGE}' to find it in" if spec.estimates else ""
        raise WireError(f"the observation has no {missing_pose}: send {' and '.join(wanted)}{image}")
    return Observation(
        proprio=_numbers(
            keys.STATE,
            message[keys.STATE],
            robot.body.size,
            keys.in_order((feature.name, feature.size) for feature in robot.proprio),
        ).astype(np.float32),
        task=_prompt(message.get(keys.PROMPT), spec.default_prompt),
        time_s=time_s,
        images=images,
        objects=poses,
        goal=goal,
    )


def _images(message: Mapping[str, Any], spec: ObservationSpec) -> dict[str, U8]:
    """Camera -> image; refuses a camera that the robot does not have.

    openpi's clients always send its two fixed keys, so one without a matching camera is ignored.
    """
    images: dict[str, U8] = {}
    for key in message:
        camera = spec.camera_of(key)
        if camera is None:
            continue
        if camera not in spec.robot.cameras:
            known = ", ".join(spec.robot.cameras) or "none"
            raise WireError(
                f"'{key}' is not a camera of robot '{spec.robot.name}', which has {known}: use such a "
                "name, or leave it out"
            )
        images[camera] = _image(key, message[key])
    return images


def _pose(key: str, value: object, size: int | None) -> F64:
    if size is None:
        raise WireError(f"'{key}' is not known to this robot: leave it out, or describe it in robot.yaml")
    return _numbers(key, value, size)


def _prompt(value: object, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str) or len(value) > MAX_PROMPT:
        raise WireError(f"'{keys.PROMPT}' is not text of up to {MAX_PROMPT} characters: send the instruction")
    return value or default


def _integer(key: str, value: object, most: int) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if type(value) is not int or not 0 <= value <= most:
        raise WireError(f"'{key}' is not a whole number from 0 up: send one, or leave it out")
    return value


def _numbers(key: str, value: object, n: int, which: str = "") -> F64:
    if isinstance(value, list) and all(type(x) in (int, float) for x in value) and len(value) == n:
        value = np.array([float(x) if abs(x) <= FAR else np.inf for x in value])
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or value.shape != (n,):
        shape = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise WireError(f"'{key}' is {shape}: send an array of {n} numbers{which}")
    values = value.astype(np.float64)
    if not np.isfinite(values).all() or (np.abs(values) > FAR).any():
        raise WireError(f"'{key}' contains NaN, infinity or a number beyond {FAR:g}: it was ignored")
    return values


def _image(key: str, value: object) -> U8:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3:
        shape = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise WireError(f"'{key}' is {shape}: send uint8 (height, width, 3)")
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in value.shape[:2]):
        raise WireError(f"'{key}' is {value.shape[:2]} px: send {MIN_SIDE} to {MAX_SIDE} per side")
    return value
