"""Progress gate: a chunk advances when the robot has reached its action, instead of by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recap_client.errors import InputError
from recap_client.limits import F64
from recap_client.messages import held_columns


@dataclass(frozen=True)
class Gate:
    """How near a robot must be to an action before the next one is sent.

    Args:
        parts: parts of an action to wait for: kind, first column, column after the last, tolerance.
        columns: for each number of an action, the index of the state that it commands.
        patience: maximum number of extra periods for which an action is repeated.
    """

    parts: tuple[tuple[str, int, int, float], ...]
    columns: tuple[int, ...]
    patience: int

    @classmethod
    def read(cls, said: Mapping[str, Any], wanted: bool | None = None) -> Gate | None:
        """Read the gate from a server's metadata; None if it is off.

        Args:
            wanted: on or off; replaces the server's setting.
        """
        given = said.get("gate") or {}
        if not (given.get("on", False) if wanted is None else wanted):
            return None
        if not given:
            what = "the server's robot has nothing that a gate can wait for"
            raise InputError(f"{what}: leave --gate out", code="gate.nothing")
        parts = tuple((str(kind), int(a), int(b), float(most)) for kind, a, b, most in given["parts"])
        return cls(parts, tuple(held_columns(said)), int(given["patience"]))

    def plain(self, on: bool) -> dict[str, Any]:
        """The gate as plain values, for a server's metadata."""
        return {"on": on, "patience": self.patience, "parts": [list(part) for part in self.parts]}

    def is_reached(self, target: F64, state: Any) -> bool:
        """True if a state (p,) is within the tolerances of an action (a,); never if it contains nan."""
        here = np.asarray(state, np.float64)[list(self.columns)]
        return all(_apart(kind, target[a:b], here[a:b]) <= most for kind, a, b, most in self.parts)


def _apart(kind: str, a: F64, b: F64) -> float:
    """The distance of two values of a kind: a length, an angle in rad, or the largest difference."""
    if kind == "position":
        return float(np.linalg.norm(a - b))
    if kind == "rotation6d":
        axes = [np.linalg.qr(six.reshape(2, 3).T) for six in (a, b)]
        # QR determines the axes up to signs; the diagonal of R has these signs.
        x, y = (np.where(np.diag(r) < 0, -q, q) for q, r in axes)
        m = np.column_stack([x, np.cross(*x.T)]).T @ np.column_stack([y, np.cross(*y.T)])
        sines = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]
        return float(np.arctan2(np.linalg.norm(sines), np.trace(m) - 1))
    difference, turn = a - b, {"angle": 2 * np.pi, "angle/deg": 360.0}.get(kind)
    if turn is not None:
        difference = (difference + turn / 2) % turn - turn / 2
    return float(np.abs(difference).max())


class Progress:
    """Tracks whether a robot has reached its last action; without a gate, every action counts as reached."""

    def __init__(self, gate: Gate | None) -> None:
        self.gate = gate
        self.n_held = 0  # periods in which an action was sent again
        self._target: F64 | None = None
        self._waited = 0

    def send(self, target: F64 | None) -> None:
        """Note the action that is sent for the first time; None: nothing to wait for."""
        self._target, self._waited = target, 0

    def again(self, state: Any) -> F64 | None:
        """The action to repeat, or None if the chunk may advance."""
        if self.gate is None or self._target is None or self._waited >= self.gate.patience:
            return None
        if self.gate.is_reached(self._target, state):
            return None
        self._waited += 1
        self.n_held += 1
        return self._target
