"""The terms of descriptors; each term describes an episode by one row per frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from recap.body import body_of
from recap.errors import InputError
from recap.features.language import TextEncoder
from recap.features.vision import ImageEncoder
from recap.geometry import canonical_poses, into_frame
from recap.geometry3 import canonical_poses3
from recap.robot import RobotSpec
from recap.types import F32, F64, U8, Frames, Requires
from recap_client.messages import TIME_OFFSET

SPACE_DIM = 7  # size of a pose in space: xyz and a quaternion, w first
# Metres that a change of 1 counts for: of a number of a 6-D rotation, and of a gripper (closed to open).
ACTION_METRES = {"rotation6d": 0.05, "gripper": 0.1}
UPRIGHT = np.array([0, 0, 0, 1, 0, 0, 0], np.float64)


class Term(Protocol):
    """One part of a descriptor: a frozen dataclass, whose fields are its fingerprint.

    A term that needs objects or a goal also has `requires`.
    """

    @property
    def dim(self) -> int: ...

    def describe(self, episode: Frames) -> F64 | F32: ...


def object_poses(episode: Frames, name: str) -> F64:
    """The object's poses (t, 3) or (t, 7), each as the symmetric pose nearest to the goal (or upright)."""
    if name not in episode.objects:
        raise InputError(f"episode {episode.id} has no object '{name}': it has {sorted(episode.objects)}")
    poses = np.asarray(episode.objects[name], np.float64)
    symmetry = episode.symmetry
    if symmetry == 1:  # there is only one pose, and no term depends on whole turns
        return poses
    if episode.goal is not None and len(episode.goal) != poses.shape[1]:
        raise InputError(
            f"object '{name}' of episode {episode.id} has {poses.shape[1]}-D poses and a "
            f"{len(episode.goal)}-D goal: give both alike"
        )
    if poses.shape[1] == SPACE_DIM:
        return canonical_poses3(poses, UPRIGHT if episode.goal is None else goal_of(episode), symmetry)
    return poses if episode.goal is None else canonical_poses(poses, goal_of(episode), symmetry)


def planar_poses(episode: Frames, name: str) -> F64:
    """The object's poses (t, 3), for terms of the plane."""
    poses = object_poses(episode, name)
    if poses.shape[1] != 3:
        raise InputError(f"object '{name}' of {episode.id} has {poses.shape[1]}-D poses, not x, y, angle")
    return poses


def goal_of(episode: Frames) -> F64:
    """The goal pose (3,) or (7,), as the symmetric pose with the smallest rotation."""
    if episode.goal is None:
        raise InputError(f"episode {episode.id} has no goal: choose a preset that needs none")
    goal = np.asarray(episode.goal, np.float64)
    if len(goal) not in (3, SPACE_DIM):
        raise InputError(f"the goal of episode {episode.id} has {len(goal)} numbers, not 3 or {SPACE_DIM}")
    if episode.symmetry == 1:
        return goal
    if len(goal) == SPACE_DIM:
        return canonical_poses3(goal, UPRIGHT, episode.symmetry)
    canonical = canonical_poses(goal, np.zeros(3), episode.symmetry)
    # A query is repeated for each symmetric pose of the goal; `object_poses` follows the goal.
    canonical[2] += episode.symmetry_index * 2 * np.pi / episode.symmetry
    return canonical


@dataclass(frozen=True)
class Actions:
    """The next actions, the last one repeated past the end; known only in training."""

    width: int
    horizon: int
    frame: str | None = None  # object whose frame the positions are in
    as_steps: bool = False  # differences between consecutive actions
    measured: tuple[int, ...] = ()  # index of the proprioception to subtract, -1: none; empty: none at all
    scales: tuple[float, ...] = ()  # factor of each number; empty: 1

    @classmethod
    def from_now(cls, robot: RobotSpec, horizon: int) -> Actions:
        """The next actions relative to the robot's state, scaled to metres."""
        scales = [ACTION_METRES.get(f.kind, 1.0) for f in robot.action for _ in range(f.size)]
        return cls(robot.act.size, horizon, measured=tuple(robot.measured.tolist()), scales=tuple(scales))

    @property
    def dim(self) -> int:
        """The width of all actions concatenated."""
        return self.width * self.horizon

    @property
    def requires(self) -> Requires:
        return Requires(() if self.frame is None else (self.frame,))

    def describe(self, episode: Frames) -> F64:
        """(t, width * horizon)."""
        n = len(episode)
        ahead = np.minimum(np.arange(n)[:, None] + np.arange(self.horizon), n - 1)
        chunk: F64 = np.asarray(episode.actions, np.float64)[ahead]  # (t, H, width)
        if self.frame is not None:
            chunk[..., :2] = into_frame(planar_poses(episode, self.frame)[:, None], chunk[..., :2])
        if self.as_steps:
            chunk = np.diff(chunk, axis=1, prepend=chunk[:, :1])
        if self.measured:
            now = np.asarray(episode.proprio, np.float64)[:, None, self.measured]
            chunk = chunk - np.where(np.array(self.measured) >= 0, now, 0.0)
        return (chunk * self.scales if self.scales else chunk).reshape(n, -1)


@dataclass(frozen=True)
class Proprio:
    """The last `n_steps` rows of proprioception; before the start the first row is repeated."""

    letters: str  # one letter per number, see `recap.body.Kind`
    position_weight: float = 1.0  # weight of squared differences of positions, relative to other numbers
    n_steps: int = 1
    frame: str | None = None  # object whose frame the positions are in

    @property
    def dim(self) -> int:
        """The width of all rows of the window concatenated."""
        return len(self.letters) * self.n_steps

    @property
    def n_back(self) -> int:
        return self.n_steps

    @property
    def requires(self) -> Requires:
        return Requires(() if self.frame is None else (self.frame,))

    def describe(self, episode: Frames) -> F64:
        """(t, width * n_steps), oldest first."""
        n, width = len(episode), len(self.letters)
        if episode.proprio.shape[1] != width:
            raise InputError(
                f"episode {episode.id} has {episode.proprio.shape[1]}-D proprioception, not {width}-D: "
                "it is of another robot"
            )
        back = np.maximum(np.arange(n)[:, None] - np.arange(self.n_steps)[::-1], 0)
        window: F64 = np.asarray(episode.proprio, np.float64)[back]
        if self.frame is not None:
            frames, body = object_poses(episode, self.frame), body_of(self.letters)
            window = np.stack([body.into(frames[t], window[t]) for t in range(n)])
        weights = np.array([self.position_weight if letter in "XYZ" else 1.0 for letter in self.letters])
        rows: F64 = (window * np.sqrt(weights)).reshape(n, -1)
        return rows


@dataclass(frozen=True)
class Time:
    """Seconds since the start of the episode."""

    dim: int = 1

    def describe(self, episode: Frames) -> F64:
        began = episode.attributes.get(TIME_OFFSET, 0.0)
        times = np.asarray(episode.timestamps, np.float64)[:, None]
        return times + began if isinstance(began, int | float) else times


@dataclass(frozen=True)
class ObjectPoses:
    """Poses of several objects concatenated, unchanged: the paper's object feature."""

    names: tuple[str, ...]
    columns: tuple[int, int]  # begin, end; of a box, (0, 2) is the centre, (2, 4) width and height

    @property
    def dim(self) -> int:
        """The number of columns of all objects."""
        return len(self.names) * (self.columns[1] - self.columns[0])

    @property
    def requires(self) -> Requires:
        return Requires(self.names)

    def describe(self, episode: Frames) -> F64:
        """(t, n * columns)."""
        missing = [name for name in self.names if name not in episode.objects]
        if missing:
            known = sorted(episode.objects)
            raise InputError(f"episode {episode.id} has no object '{missing[0]}': it has {known}")
        parts = [episode.objects[name][:, slice(*self.columns)] for name in self.names]
        return np.concatenate(parts, axis=1).astype(np.float64)


@dataclass(frozen=True)
class ImageFeature:
    """Encoded images of a camera: unit rows, so half their squared distance is the cosine distance."""

    encoder: ImageEncoder
    camera: str

    @property
    def requires(self) -> Requires:
        return Requires(cameras=(self.camera,))

    @property
    def dim(self) -> int:
        return self.encoder.dim

    def describe(self, episode: Frames) -> F32:
        if self.camera not in episode.images:
            known = sorted(episode.images) or "none"
            raise InputError(f"episode {episode.id} has no camera '{self.camera}': it has {known}")
        return self.encoder.encode(self._shown(episode.images[self.camera]))

    def _shown(self, images: Sequence[U8]) -> Sequence[U8]:
        return images


@dataclass(frozen=True)
class FirstImage(ImageFeature):
    """The encoded first image of the episode, repeated in every row; for stage 1, which uses no other."""

    from_start: ClassVar[bool] = True

    def describe(self, episode: Frames) -> F32:
        return np.repeat(super().describe(episode), len(episode), axis=0)

    def _shown(self, images: Sequence[U8]) -> Sequence[U8]:
        return [images[0]]


@dataclass(frozen=True)
class Instruction:
    """The encoded instruction."""

    encoder: TextEncoder

    @property
    def dim(self) -> int:
        return self.encoder.dim

    def describe(self, episode: Frames) -> F32:
        """(t, dim), the same in every row."""
        return np.repeat(self.encoder.encode([episode.task]), len(episode), axis=0)
