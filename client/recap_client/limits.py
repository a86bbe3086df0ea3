"""Limits on the values of actions and on their changes."""

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
    """Lower and upper limits of actions, and limits on the change per control period."""

    low: F64  # (a,)
    high: F64  # (a,)
    steps: tuple[tuple[int, int, float], ...] = ()  # begin, end, largest norm of the change
    relative: bool = False  # delta actions

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> ActionLimits:
        """Read the limits from a server's metadata."""
        low, high = (np.array(said[key], np.float64).ravel() for key in ("action_low", "action_high"))
        steps = tuple((int(a), int(b), float(step)) for a, b, step in said["max_steps"])
        return cls(low, high, steps, said.get("action_mode") == "delta")

    def tightened(
        self,
        spans: Mapping[str, tuple[int, int]],
        limits: Mapping[str, tuple[float, float]],
        max_step: Mapping[str, float],
    ) -> ActionLimits:
        """These limits with further ones inside them.

        Args:
            spans: feature -> first column, column after the last.
            limits: feature -> lowest and highest value.
            max_step: feature -> largest change per control period.
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
        """These limits with all largest changes multiplied by a factor."""
        return replace(self, steps=tuple((a, b, step * factor) for a, b, step in self.steps))


def action_spans(said: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The columns of each feature of an action, from a server's metadata."""
    found, at = {}, 0
    for feature in said.get("robot", {}).get("action", ()):
        found[str(feature["name"])] = (at, at + int(feature["size"]))
        at += int(feature["size"])
    return found


def limit_actions(actions: F64, position: F64, limits: ActionLimits) -> tuple[F64, int]:
    """Limit actions in value and change, starting from the robot's position; also returns how many changed.

    The limit on the change has priority: a robot outside the value limits is led back at limited speed.
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
