"""What aligners of arms among objects in space need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.types import F64, Frames

ARM = "XYZ" + "r" * 6 + "g"  # an arm in tool space


def is_round(name: str, round_objects: tuple[str, ...]) -> bool:
    """Whether a name is one of these, or one of several of a kind, as can_1 and left_can are."""
    return any(word in round_objects for word in (name, *name.split("_")))


@dataclass(frozen=True)
class ActionsAhead:
    """The actions to come from where the robot is now, in metres; only training knows them."""

    horizon: int
    letters: str = ARM  # what each number of an action is, and of proprioception
    turn_m: float = 0.05  # that a unit of a 6-D rotation counts for
    gripper_m: float = 0.1  # and a gripper from closed to open

    @property
    def dim(self) -> int:
        """All of them side by side."""
        return self.horizon * len(self.letters)

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        n = len(episode)
        ahead = np.minimum(np.arange(n)[:, None] + np.arange(self.horizon), n - 1)
        chunk = np.asarray(episode.actions, np.float64)[ahead]  # (t, H, a)
        now = np.asarray(episode.proprio, np.float64)[:, None]
        metres = np.array(
            [{"r": self.turn_m, "g": self.gripper_m}.get(letter, 1.0) for letter in self.letters]
        )
        rows: F64 = ((chunk - now) * metres).reshape(n, -1)
        return rows
