"""What a robot must be able to do to be driven, and how one is found by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recap.errors import InputError, did_you_mean
from recap.plugins import import_factory
from recap.serving.observations import GOAL, IMAGE, OBJECTS, PROMPT, STATE, TIME
from recap.types import F64, Observation

SIMULATED = "pusht-sim"


@runtime_checkable
class Robot(Protocol):
    """What can be driven. It may also have `status()` (numbers to show), `done` and `close()`."""

    def observe(self) -> Mapping[str, Any] | Observation:
        """The moment: an `Observation`, or a message as the wire has it."""
        ...

    def act(self, action: F64) -> None:
        """Go towards a target; called once a period, and must return well within it."""
        ...


def make_robot(name: str, metadata: Mapping[str, Any], options: Mapping[str, Any]) -> Robot:
    """`pusht-sim`, or what a user's `package.module:factory` makes of the server's metadata."""
    if name == SIMULATED:
        from recap.serving.simulated import PushTRobot

        return PushTRobot.for_server(metadata, **options)
    if ":" not in name:
        hint = did_you_mean(name, (SIMULATED,))
        raise InputError(f"unknown robot '{name}': {hint} (your own is package.module:factory)")
    robot = import_factory(name, "robot")(metadata)
    if not isinstance(robot, Robot):
        raise InputError(
            f"robot '{name}' is a {type(robot).__name__} without observe and act: return a robot"
        )
    return robot


def as_message(seen: Observation) -> dict[str, Any]:
    """An observation as the wire has it; what it does not hold, the server looks for in its picture."""
    message: dict[str, Any] = {STATE: seen.proprio, PROMPT: seen.task}
    if np.isfinite(seen.time_s):
        message[TIME] = float(seen.time_s)
    if seen.images:
        message[IMAGE] = next(iter(seen.images.values()))
    if seen.goal is not None:
        message[GOAL] = np.asarray(seen.goal)
    return message | {OBJECTS + name: np.asarray(pose) for name, pose in seen.objects.items()}


def position_in(message: Mapping[str, Any], action_dim: int) -> F64:
    """Where the robot stands, from its first observation: where the limits begin, and what it holds."""
    state = np.asarray(message.get(STATE))
    if state.dtype.kind not in "iuf" or state.shape != (action_dim,) or not np.isfinite(state).all():
        raise InputError(
            f"the robot's '{STATE}' is {state.dtype} {state.shape}: give {action_dim} finite numbers, in the "
            "space of its actions"
        )
    return state.astype(np.float64)
