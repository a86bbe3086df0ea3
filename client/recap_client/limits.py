"""Between which values actions are kept, and how fast they may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap_client.errors import InputError

F64: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ActionLimits:
    """Between which values an action is kept, and how far it may be from the one before."""

    low: F64  # (a,)
    high: F64  # (a,)
    steps: tuple[tuple[int, int, float], ...] = ()  # columns begin to end, and the length of their change
    relative: bool = False  # actions are changes themselves

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> ActionLimits:
        """Of a server's metadata."""
        low, high = (np.array(said[key], np.float64).ravel() for key in ("action_low", "action_high"))
        steps = tuple((int(a), int(b), float(step)) for a, b, step in said["max_steps"])
        return cls(low, high, steps, said.get("action_mode") == "delta")

    def within(self, low: float, high: float) -> ActionLimits:
        """The same, within a box."""
        inner = replace(self, low=np.maximum(self.low, low), high=np.minimum(self.high, high))
        if not (inner.low < inner.high).all():
            raise InputError(f"a box from {low:g} to {high:g} leaves nothing of the server's: widen it")
        return inner

    def scaled(self, factor: float) -> ActionLimits:
        """The same with steps of another length."""
        return replace(self, steps=tuple((a, b, step * factor) for a, b, step in self.steps))


def limit_actions(actions: F64, position: F64, limits: ActionLimits) -> tuple[F64, int]:
    """The actions within box and speed, from where the robot is now, and how many had to be changed.

    Speed goes before the box: a robot that stands outside is led back at its speed, not thrown back.
    """
    if not np.isfinite(actions).all():
        raise InputError("an action is not a finite number: nothing is sent")
    out = np.clip(actions, limits.low, limits.high)
    before = np.zeros(out.shape[1]) if limits.relative else np.asarray(position, np.float64)
    for i in range(len(out)):
        for begin, end, most in limits.steps:
            step = out[i, begin:end] - before[begin:end]
            length = float(np.linalg.norm(step))
            if length > most:
                out[i, begin:end] = before[begin:end] + step * (most / length)
        before = before if limits.relative else out[i]
    return out, int((out != actions).any(axis=1).sum())
