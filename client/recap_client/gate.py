"""Progress gate: a chunk goes on when the robot is where it was sent, not by the clock."""

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
    """How near a robot must have come to an action before the next one is sent.

    Args:
        parts: of an action that are waited for: kind, first column, the one after the last, tolerance.
        columns: of each number of an action, which number of the state it commands.
        patience: for how many extra periods an action is sent at most.
    """

    parts: tuple[tuple[str, int, int, float], ...]
    columns: tuple[int, ...]
    patience: int

    @classmethod
    def read(cls, said: Mapping[str, Any], wanted: bool | None = None) -> Gate | None:
        """Of a server's metadata; None where it is off.

        Args:
            wanted: on or off, whatever the server says.
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
        """For a server's metadata."""
        return {"on": on, "patience": self.patience, "parts": [list(part) for part in self.parts]}

    def is_reached(self, target: F64, state: Any) -> bool:
        """Whether a state (p,) is as near to an action (a,) as it must be; one with nan never is."""
        here = np.asarray(state, np.float64)[list(self.columns)]
        return all(_apart(kind, target[a:b], here[a:b]) <= most for kind, a, b, most in self.parts)


def _apart(kind: str, a: F64, b: F64) -> float:
    """How far two values of a kind are apart: a length, an angle in rad, or the largest difference."""
    if kind == "position":
        return float(np.linalg.norm(a - b))
    if kind == "rotation6d":
        axes = [np.linalg.qr(six.reshape(2, 3).T) for six in (a, b)]
        # QR gives axes up to their signs, which are those of the diagonal.
        x, y = (np.where(np.diag(r) < 0, -q, q) for q, r in axes)
        m = np.column_stack([x, np.cross(*x.T)]).T @ np.column_stack([y, np.cross(*y.T)])
        sines = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]
        return float(np.arctan2(np.linalg.norm(sines), np.trace(m) - 1))
    difference, turn = a - b, {"angle": 2 * np.pi, "angle/deg": 360.0}.get(kind)
    if turn is not None:
        difference = (difference + turn / 2) % turn - turn / 2
    return float(np.abs(difference).max())


class Progress:
    """How far one robot has come with what it was sent; without a gate that is always far enough."""

    def __init__(self, gate: Gate | None) -> None:
        self.gate = gate
        self.n_held = 0  # periods in which an action was sent again
        self._target: F64 | None = None
        self._waited = 0

    def send(self, target: F64 | None) -> None:
        """An action is sent for the first time; None: nothing that is to be waited for."""
        self._target, self._waited = target, 0

    def again(self, state: Any) -> F64 | None:
        """The action that is to be sent again; None where the chunk goes on."""
        if self.gate is None or self._target is None or self._waited >= self.gate.patience:
            return None
        if self.gate.is_reached(self._target, state):
            return None
        self._waited += 1
        self.n_held += 1
        return self._target
