"""Between which values actions are kept, and how fast they may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap_client.errors import InputError, one_of

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

    def tightened(
        self,
        spans: Mapping[str, tuple[int, int]],
        limits: Mapping[str, tuple[float, float]],
        max_step: Mapping[str, float],
    ) -> ActionLimits:
        """The same, with limits of one's own within them.

        Args:
            spans: feature -> its first column, and the one after its last.
            limits: feature -> least and greatest value.
            max_step: feature -> largest change a control period.
        """
        low, high, steps = self.low.copy(), self.high.copy(), list(self.steps)
        for name, (least, most) in limits.items():
            one_of("feature of an action", name, spans)
            at = slice(*spans[name])
            low[at], high[at] = np.maximum(low[at], least), np.minimum(high[at], most)
            if not (low[at] < high[at]).all():
                raise InputError(f"limits {least:g} to {most:g} leave nothing of '{name}': widen them")
        for name, step in max_step.items():
            one_of("feature of an action", name, spans)
            if not step > 0:
                raise InputError(f"a largest step of {step:g} for '{name}' allows nothing: give more than 0")
            steps.append((*spans[name], step))
        return replace(self, low=low, high=high, steps=tuple(steps))

    def scaled(self, factor: float) -> ActionLimits:
        """The same with steps of another length."""
        return replace(self, steps=tuple((a, b, step * factor) for a, b, step in self.steps))


def action_spans(said: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Of a server's metadata: each feature of an action with its columns."""
    found, at = {}, 0
    for feature in said.get("robot", {}).get("action", ()):
        found[str(feature["name"])] = (at, at + int(feature["size"]))
        at += int(feature["size"])
    return found


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
