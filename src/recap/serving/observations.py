"""What a robot sends as an observation, checked before anything acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recap.envs.pusht.blocks import block_named
from recap.errors import WireError
from recap.types import F64, U8, Observation

IMAGE, STATE, PROMPT = "observation/image", "observation/state", "prompt"
GOAL, TIME, OBJECTS = "observation/goal", "observation/time_s", "observation/objects/"
EXECUTED, MISSED, RESET = "executed", "missed", "reset"
MAX_PROMPT = 1000  # characters
MAX_OBJECTS = 32
MAX_MISSED = 10**6  # periods
POSE_DIM = 3  # x, y, angle
FAR = 1e6  # px; no number of a robot on a board is larger


@dataclass(frozen=True, slots=True)
class Reset:
    """A new episode is to begin."""

    seed: int | None = None
    block: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What a policy takes from a connection."""

    camera: str
    camera_size: int | None  # None: images are only for finding poses
    state_dim: int
    object_name: str
    default_prompt: str


def read_reset(message: Mapping[str, Any]) -> Reset | None:
    """The reset in a message, if there is one."""
    if RESET not in message:
        return None
    if message[RESET] is not True:
        raise WireError("'reset' is not true: send it as true, or leave it out")
    seed, block = message.get("seed"), message.get("block")
    if seed is not None:
        seed = _integer("seed", seed, 2**63 - 1)
    if block is not None:
        if not isinstance(block, str):
            raise WireError("'block' is no text: send a block's name")
        block = block_named(block).name
    return Reset(seed, block)


def read_executed(message: Mapping[str, Any], most: int) -> int | None:
    """How many actions of the last chunk were carried out, where a robot says so."""
    if EXECUTED not in message:
        return None
    return min(_integer(EXECUTED, message[EXECUTED], 2**31), most)


def read_missed(message: Mapping[str, Any]) -> int:
    """In how many periods since its last observation a robot had no action left, where it says so."""
    return _integer(MISSED, message[MISSED], MAX_MISSED) if MISSED in message else 0


def read_observation(message: Mapping[str, Any], look: Look, time_s: float) -> Observation:
    """A message as an observation; what is wrong with it is named."""
    if STATE not in message:
        raise WireError(f"the observation has no '{STATE}': send the position of the robot")
    names = [key.removeprefix(OBJECTS) for key in message if key.startswith(OBJECTS)]
    if len(names) > MAX_OBJECTS:
        raise WireError(f"the observation has {len(names)} objects: send at most {MAX_OBJECTS}")
    poses = {name: _numbers(OBJECTS + name, message[OBJECTS + name], POSE_DIM) for name in names}
    goal = _numbers(GOAL, message[GOAL], POSE_DIM) if GOAL in message else None
    if TIME in message:
        time_s = float(_numbers(TIME, np.atleast_1d(np.asarray(message[TIME])), 1)[0])
    images = {look.camera: _image(message[IMAGE])} if IMAGE in message else {}
    if not images and look.camera_size is not None:
        size = look.camera_size
        raise WireError(f"the observation has no '{IMAGE}': the policy sees; send uint8 ({size}, {size}, 3)")
    if not images and (goal is None or look.object_name not in poses):
        raise WireError(
            f"the observation has neither '{IMAGE}' nor both '{OBJECTS}{look.object_name}' and '{GOAL}': "
            "send poses, or an image to find them in"
        )
    return Observation(
        proprio=_numbers(STATE, message[STATE], look.state_dim).astype(np.float32),
        task=_prompt(message.get(PROMPT), look.default_prompt),
        time_s=time_s,
        images=images,
        objects=poses,
        goal=goal,
    )


def fit_image(image: U8, size: int) -> U8:
    """The camera image at the size a policy was trained on; one that is too small is refused."""
    if image.shape[0] == image.shape[1] == size:
        return image
    if image.shape[0] != image.shape[1] or image.shape[0] < size:
        shown = f"{image.shape[1]}x{image.shape[0]}"
        raise WireError(
            f"'{IMAGE}' is {shown} px: send a square picture of the whole board, {size} px or more"
        )
    import cv2

    return np.asarray(cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA), np.uint8)


def _prompt(given: object, default: str) -> str:
    if given is None:
        return default
    if not isinstance(given, str) or len(given) > MAX_PROMPT:
        raise WireError(f"'{PROMPT}' is no text of up to {MAX_PROMPT} characters: send the instruction")
    return given or default


def _integer(key: str, given: object, most: int) -> int:
    if isinstance(given, np.integer):
        given = int(given)
    if type(given) is not int or not 0 <= given <= most:
        raise WireError(f"'{key}' is no whole number from 0 up: send one, or leave it out")
    return given


def _numbers(key: str, given: object, n: int) -> F64:
    if isinstance(given, list) and all(type(x) in (int, float) for x in given) and len(given) == n:
        given = np.array([float(x) if abs(x) <= FAR else np.inf for x in given])
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iuf" or given.shape != (n,):
        shape = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise WireError(f"'{key}' is {shape}: send an array of {n} numbers")
    values = given.astype(np.float64)
    if not np.isfinite(values).all() or (np.abs(values) > FAR).any():
        raise WireError(f"'{key}' holds NaN, infinity or a number beyond {FAR:g}: nothing is done with it")
    return values


def _image(given: object) -> U8:
    if not isinstance(given, np.ndarray) or given.dtype != np.uint8 or given.ndim != 3 or given.shape[2] != 3:
        shape = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise WireError(f"'{IMAGE}' is {shape}: send uint8 (height, width, 3)")
    if not 32 <= given.shape[0] <= 1024 or not 32 <= given.shape[1] <= 1024:
        raise WireError(f"'{IMAGE}' is {given.shape[1]}x{given.shape[0]} px: send 32 to 1024 a side")
    return given
