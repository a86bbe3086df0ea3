"""The features of a robot: named groups of numbers.

A feature has a kind. The kind decides how the numbers change with a frame, whether a chunk of them is
relative to the present, and which values are valid. The table `KINDS` holds the constants of each kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from recap.errors import InputError, one_of
from recap.geometry import into_frame, out_of_frame
from recap.geometry3 import orthonormal6, quaternion_to_matrix
from recap.types import F32, F64

Limit: TypeAlias = float | tuple[float, ...]  # one for all numbers of a feature, or one per number
PLANE, SPACE = 3, 7  # sizes of a frame: x, y, angle; xyz and a quaternion, w first


@dataclass(frozen=True)
class Kind:
    """The constants of one kind of feature.

    Args:
        letters: one letter per number; terms of a descriptor name numbers by letters.
        sizes: allowed sizes; empty: any.
        unit: default unit.
        limits: default limits.
        tolerances: unit -> tolerance of a progress gate; empty: the gate does not wait for it.
        least: lower bounds, in metres and radians, of the deviation that a policy divides absolute and
            relative numbers by. A number that hardly varies in training may vary in an unseen task.
        scale: divisor of differences, in metres and radians, that makes kinds comparable.
    """

    letters: str = ""
    sizes: tuple[int, ...] = ()
    unit: str = ""
    limits: tuple[float, float] | None = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    least: tuple[float, float] = (0.0, 0.0)
    scale: float = 1.0


LENGTHS = {"m": 0.005, "cm": 0.5, "mm": 5.0}
PLACE, TURN = (0.05, 0.02), (0.2, 0.2)
KINDS: Mapping[str, Kind] = {
    "position": Kind("XYZ", (2, 3), "m", None, {**LENGTHS, "px": 5.0}, PLACE, 0.05),
    "rotation6d": Kind("r", (6,), "", None, {"": 0.06}, TURN, 0.5),  # rad
    "angle": Kind("a", (), "rad", None, {"rad": 0.06, "deg": 3.4}, TURN),
    "gripper": Kind("g", (), "", (0.0, 1.0), {}, TURN),  # it closes on objects and never reaches its target
    "joint": Kind("J", (), "rad", None, {"rad": 0.03, "deg": 1.7, **LENGTHS}, PLACE, 0.05),
    "scalar": Kind("u"),
}
RELATIVE_KINDS = ("position", "joint")  # kinds whose chunks may be relative to the present


@dataclass(frozen=True)
class Feature:
    """A named group of numbers of one kind."""

    name: str
    kind: str
    size: int = 0  # 0: the kind's size, or 1
    unit: str = ""  # empty: the kind's unit
    limits: tuple[Limit, Limit] | None = None  # lower and upper

    def __post_init__(self) -> None:
        one_of("kind", self.kind, tuple(KINDS))
        kind = KINDS[self.kind]
        if not self.size:
            if len(kind.sizes) > 1:
                raise InputError(f"feature '{self.name}' ({self.kind}) lacks its size: give 2 or 3")
            object.__setattr__(self, "size", kind.sizes[0] if kind.sizes else 1)
        if self.size < 1 or (kind.sizes and self.size not in kind.sizes):
            allowed = " or ".join(map(str, kind.sizes)) or "1 or more"
            raise InputError(f"feature '{self.name}' ({self.kind}) has {self.size} numbers, not {allowed}")
        object.__setattr__(self, "unit", self.unit or kind.unit)
        object.__setattr__(self, "limits", self.limits or kind.limits)
        if self.limits is None:
            return
        if any(np.size(limit) not in (1, self.size) for limit in self.limits):
            raise InputError(f"feature '{self.name}' has limits {self.limits}: give {self.size} or one")
        if not np.less(*self.limits).all():
            raise InputError(f"feature '{self.name}' has limits {self.limits}: give the lower one first")

    @property
    def letters(self) -> str:
        """One a number."""
        letters = KINDS[self.kind].letters
        return letters[: self.size] if len(letters) > 1 else letters * self.size


@dataclass(frozen=True)
class Body:
    """The features of proprioception or of an action, in the order of their columns."""

    features: tuple[Feature, ...]
    changes: bool = False  # True for delta actions

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"feature '{twice[0]}' is given twice: give each feature once")

    @cached_property
    def size(self) -> int:
        """The number of columns."""
        return sum(feature.size for feature in self.features)

    @cached_property
    def letters(self) -> str:
        """One a number."""
        return "".join(feature.letters for feature in self.features)

    @cached_property
    def spans(self) -> tuple[tuple[Feature, slice], ...]:
        """Each feature with its columns, in order."""
        found, at = [], 0
        for feature in self.features:
            found.append((feature, slice(at, at + feature.size)))
            at += feature.size
        return tuple(found)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """One name per number. `recap init` infers features from these names, one feature for each joint."""
        found: list[str] = []
        for feature in self.features:
            stem = feature.name.removesuffix(".position").removesuffix(".rotation")
            if feature.kind == "position":
                found += [f"{stem}.{axis}" for axis in "xyz"[: feature.size]]
            elif feature.kind == "rotation6d":
                found += [f"{stem}.r6d_{i}" for i in range(feature.size)]
            else:
                found += [feature.name] if feature.size == 1 else [f"{stem}.{i}" for i in range(feature.size)]
        return tuple(found)

    def columns(self, name: str) -> slice:
        """The columns of a feature by name."""
        found = {feature.name: at for feature, at in self.spans}
        return found[one_of("feature", name, tuple(found))]

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The first column of each 3-D position, that is, of each tool."""
        return tuple(at.start for f, at in self.spans if f.kind == "position" and f.size == 3)

    @cached_property
    def is_planar(self) -> bool:
        """True if it has 2-D positions and otherwise only grippers and scalars, which no rotation changes."""
        kinds = {(f.kind, f.size if f.kind == "position" else 0) for f in self.features}
        return ("position", 2) in kinds and kinds <= {("position", 2), ("gripper", 0), ("scalar", 0)}

    def into(self, frame: F64, values: F64) -> F64:
        """World rows (..., size) expressed in a frame (3,) or (7,); kinds without a pose do not change."""
        return self._moved(frame, values, inverse=True)

    def out_of(self, frame: F64, values: F64) -> F64:
        """The inverse of `into`."""
        return self._moved(frame, values, inverse=False)

    def _moved(self, frame: F64, values: F64, inverse: bool) -> F64:
        out = np.array(values, np.float64)
        if len(frame) == PLANE:
            move = into_frame if inverse else out_of_frame
            turning = np.array([0.0, 0.0, frame[2]])
            for feature, at in self.spans:
                if feature.kind == "position":
                    two = slice(at.start, at.start + 2)
                    out[..., two] = move(frame, out[..., two])
                elif feature.kind == "rotation6d":
                    for axis in (at.start, at.start + 3):
                        out[..., axis : axis + 2] = move(turning, out[..., axis : axis + 2])
                elif feature.kind == "angle":  # a heading in the plane turns with the frame
                    out[..., at] += -frame[2] if inverse else frame[2]
            return out
        turn = quaternion_to_matrix(frame[3:])
        turn = turn.T if inverse else turn
        for feature, at in self.spans:
            if feature.kind == "position" and feature.size == 3:
                xyz = out[..., at]
                out[..., at] = _turned(turn, xyz - frame[:3]) if inverse else _turned(turn, xyz) + frame[:3]
            elif feature.kind == "rotation6d":
                for axis in (at.start, at.start + 3):
                    out[..., axis : axis + 3] = _turned(turn, out[..., axis : axis + 3])
        return out

    def origin(self, now: F32) -> F32:
        """The values to subtract to make rows relative to `now` (..., size): positions and joints, else 0."""
        out = np.zeros_like(now, np.float32)
        for feature, at in () if self.changes else self.spans:
            if feature.kind in RELATIVE_KINDS:
                out[..., at] = now[..., at]
        return out

    def project(self, values: F32, base: F32) -> F32:
        """The nearest valid rows (H, size): orthonormal rotations, grippers within limits.

        Args:
            base: (H, size), its rotation replaces a degenerate one.
        """
        out = np.array(values, np.float32)
        for feature, at in self.spans:
            if feature.kind == "rotation6d":
                out[:, at] = orthonormal6(out[:, at], base[:, at])
            elif feature.kind == "gripper" and feature.limits is not None:
                out[:, at] = np.clip(out[:, at], *feature.limits)
        return out

    @cached_property
    def bounds(self) -> tuple[F64, F64]:
        """The lower and upper limit of each number."""
        low, high = np.full(self.size, -math.inf), np.full(self.size, math.inf)
        for feature, at in self.spans:
            if feature.limits is not None:
                low[at], high[at] = feature.limits
        return low, high


_PARTS = re.compile(r"XYZ|XY|r{6}|.")
_KIND_OF = {"XYZ": "position", "XY": "position", "r" * 6: "rotation6d"}
_KIND_OF |= {"g": "gripper", "J": "joint", "a": "angle"}


@lru_cache(maxsize=256)
def body_of(letters: str) -> Body:
    """The body that letters describe; terms of a descriptor know only letters."""
    parts = _PARTS.findall(letters)
    return Body(
        tuple(
            Feature(str(number), _KIND_OF.get(part, "scalar"), len(part)) for number, part in enumerate(parts)
        )
    )


def _turned(turn: F64, xyz: F64) -> F64:
    product: F64 = (turn @ xyz[..., None])[..., 0]
    return product


ARM = "XYZ" + "r" * 6 + "g"  # the letters of an arm in tool space


def arm_features(name: str) -> tuple[Feature, ...]:
    """The features of an arm in tool space: 10 numbers."""
    return (
        Feature(f"{name}.position", "position", 3, "m"),
        Feature(f"{name}.rotation", "rotation6d"),
        Feature(f"{name}.gripper", "gripper"),
    )
