"""The few things that flow through the house; shapes are written here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
U8: TypeAlias = NDArray[np.uint8]

Scalar: TypeAlias = str | int | float | bool
Outcome: TypeAlias = Literal["success", "failure", "error"]


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees at one control step."""

    proprio: F32  # (p,)
    task: str  # the instruction, in words
    time_s: float  # since the start of the episode
    images: Mapping[str, U8] = field(default_factory=dict)  # camera -> (h, w, 3)
    objects: Mapping[str, F64] = field(default_factory=dict)  # name -> pose; absent when not seen
    goal: F64 | None = None  # pose the task asks for, where it has one


@dataclass(frozen=True, slots=True)
class Episode:
    """One demonstration; images are any sequence of frames, so that they may be decoded lazily."""

    id: str
    scene_id: str  # equal for demonstrations that start from the same scene
    task: str
    embodiment: str
    fps: float
    timestamps: F64  # (t,) seconds, strictly increasing
    proprio: F32  # (t, p)
    actions: F32  # (t, a)
    objects: Mapping[str, F32] = field(default_factory=dict)  # name -> (t, d)
    goal: F32 | None = None  # (g,)
    images: Mapping[str, Sequence[U8]] = field(default_factory=dict)  # camera -> t frames (h, w, 3)
    action_space: str = ""  # what an action means, with its unit
    success: bool = True
    source: str = ""  # what made it
    attributes: Mapping[str, Scalar] = field(default_factory=dict)  # whatever else should travel along

    def __len__(self) -> int:
        return len(self.timestamps)


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """How one evaluation episode ended; an error is not a failure."""

    task: str  # the task's key, such as "+45" for a goal angle in degrees
    seed: int
    outcome: Outcome
    steps: int
    max_coverage: float
    first_step: Mapping[str, int | None]  # threshold -> first step past it
    error: str | None = None  # the traceback, when outcome is "error"
