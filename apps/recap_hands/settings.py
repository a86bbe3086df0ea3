"""Settings of `recap lift`; a small module, so that the command line loads fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from recap.errors import InputError, one_of

Which: TypeAlias = Literal["one", "left", "right", "both"]
Finger: TypeAlias = Literal["index", "middle"]


@dataclass(frozen=True)
class LiftSettings:
    """The settings of a lift; None means that the film determines the value."""

    hands: Which = "one"
    finger: Finger = "index"  # the finger that meets the thumb
    hand_size: float | None = None  # m from the wrist to the knuckle of the middle finger
    bridge: float = 0.0  # s: gaps up to this length are filled linearly
    gripper: Literal["events", "opening"] = "events"  # open or closed by grasps, or the fingers' opening
    opening: tuple[float, float] | None = None  # m between thumb and finger: closed, open
    tool: tuple[float, ...] = ()  # x, y, z, qw, qx, qy, qz of the robot's tool in the hand's frame
    min_coverage: float = 0.5  # least share of frames with the hand

    def __post_init__(self) -> None:
        one_of("hands", self.hands, ("one", "left", "right", "both"))
        one_of("finger", self.finger, ("index", "middle"))
        one_of("gripper", self.gripper, ("events", "opening"))
        for option, values, n in (("--opening", self.opening or (), 2), ("--tool", self.tool, 7)):
            if len(values) not in (0, n):
                raise InputError(f"{option} has {len(values)} numbers: give {n} numbers with commas between")
        if not self.bridge >= 0:
            raise InputError(f"--bridge {self.bridge} is no length of time: give 0 or more seconds")
        if not 0 <= self.min_coverage <= 1:
            raise InputError(f"--min-coverage {self.min_coverage} is no share: give 0 to 1")
