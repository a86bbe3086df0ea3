"""Keys of messages, and conversion of observations to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from recap_client.errors import InputError
from recap_client.limits import F64

IMAGE, WRIST, STATE, PROMPT = "observation/image", "observation/wrist_image", "observation/state", "prompt"
IMAGES = "observation/images/"
GOAL, TIME, OBJECTS = "observation/goal", "observation/time_s", "observation/objects/"
EXECUTED, MISSED, RESET = "executed", "missed", "reset"
# Attributes of a correction: its time at which the person took over, and the run's time at its start.
CORRECTION_FROM, TIME_OFFSET = "correction_from_s", "time_offset_s"


def in_order(features: Iterable[tuple[str, int]]) -> str:
    """The names of the numbers of a state, for an error message: `: joint_1, …, tool.position (3)`."""
    names = [name if size == 1 else f"{name} ({size})" for name, size in features]
    return f": {', '.join(names)}" if names else ""


def as_message(seen: Any) -> dict[str, Any]:
    """Convert a `recap.Observation`, or any object with its fields, to a message."""
    message: dict[str, Any] = {STATE: seen.proprio, PROMPT: seen.task}
    if np.isfinite(seen.time_s):
        message[TIME] = float(seen.time_s)
    message |= {IMAGES + camera: image for camera, image in seen.images.items()}
    if seen.goal is not None:
        message[GOAL] = np.asarray(seen.goal)
    return message | {OBJECTS + name: np.asarray(pose) for name, pose in seen.objects.items()}


def held_columns(said: Mapping[str, Any]) -> list[int]:
    """The index of the state that each number of an action commands; default: the same index."""
    columns = [int(column) for column in said.get("hold", range(int(said["action_dim"])))]
    size = int(said.get("state_dim", said["action_dim"]))
    if len(columns) != int(said["action_dim"]) or not all(-1 <= column < size for column in columns):
        raise ValueError(f"hold {columns}")
    return columns


def position_in(message: Mapping[str, Any], said: Mapping[str, Any]) -> F64:
    """The action (a,) that keeps the robot where an observation shows it.

    Args:
        said: the server's metadata; `hold` is the index of the state for each number of an action, -1: none.
    """
    size = int(said.get("state_dim", said["action_dim"]))
    features = (said.get("robot") or {}).get("proprio", ())
    wanted = f"{size} finite numbers{in_order((f['name'], f['size']) for f in features)}"
    if STATE not in message:
        there = ", ".join(f"'{key}'" for key in message) or "nothing"
        raise InputError(f"the robot's observation has no '{STATE}', only {there}: give {wanted}")
    state = np.asarray(message[STATE])
    if state.dtype.kind not in "iuf" or state.shape != (size,) or not np.isfinite(state).all():
        raise InputError(f"the robot's '{STATE}' is {state.dtype} {state.shape}: give {wanted}")
    columns = np.array(held_columns(said), np.int64)
    return np.where(columns >= 0, state.astype(np.float64)[columns], 0.0)
