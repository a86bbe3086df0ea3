"""Terms for the plane: poses of pusher, block and goal, in the world or relative to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.errors import InputError
from recap.features.terms import goal_of, planar_poses
from recap.geometry import into_frame
from recap.types import F64, Frames, Requires


def planar_goal(episode: Frames) -> F64:
    """The goal pose (3,); for terms that are only defined in the plane."""
    goal = goal_of(episode)
    if len(goal) != 3:
        raise InputError(f"the goal of episode {episode.id} has {len(goal)} numbers, not x, y, angle")
    return goal


def _direction(angle: F64) -> F64:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _differences(values: F64) -> F64:
    return np.diff(values, axis=0, prepend=values[:1])


@dataclass(frozen=True)
class Position:
    """The end effector's position, in the world or in an object's frame."""

    frame: str | None = None
    dim: int = 2

    @property
    def requires(self) -> Requires:
        """What the term reads."""
        return Requires(() if self.frame is None else (self.frame,))

    def describe(self, episode: Frames) -> F64:
        """(t, 2)."""
        position = np.asarray(episode.proprio[:, :2], np.float64)
        return position if self.frame is None else into_frame(planar_poses(episode, self.frame), position)


@dataclass(frozen=True)
class ObjectPosition:
    """An object's position in the world, or in the goal's frame."""

    name: str
    in_goal_frame: bool = False
    dim: int = 2

    @property
    def requires(self) -> Requires:
        """What the term reads."""
        return Requires((self.name,), self.in_goal_frame)

    def describe(self, episode: Frames) -> F64:
        """(t, 2)."""
        position = planar_poses(episode, self.name)[:, :2]
        return into_frame(planar_goal(episode), position) if self.in_goal_frame else position


@dataclass(frozen=True)
class ObjectTurn:
    """An object's direction as (cos, sin), in the world or relative to the goal's direction."""

    name: str
    from_goal: bool = False
    dim: int = 2

    @property
    def requires(self) -> Requires:
        """What the term reads."""
        return Requires((self.name,), self.from_goal)

    def describe(self, episode: Frames) -> F64:
        """(t, 2)."""
        angle = planar_poses(episode, self.name)[:, 2]
        return _direction(angle - planar_goal(episode)[2] if self.from_goal else angle)


@dataclass(frozen=True)
class Velocities:
    """Displacement of end effector and object since the previous frame."""

    name: str
    dim: int = 4
    n_back: int = 2

    @property
    def requires(self) -> Requires:
        """What the term reads."""
        return Requires((self.name,))

    def describe(self, episode: Frames) -> F64:
        """(t, 4)."""
        moves = _differences(np.asarray(episode.proprio[:, :2], np.float64))
        return np.concatenate([moves, _differences(planar_poses(episode, self.name)[:, :2])], axis=1)


@dataclass(frozen=True)
class GoalPose:
    """The goal in the world: position, and direction (cos, sin) times `arm` so that one scale fits both."""

    arm: float
    dim: int = 4

    @property
    def requires(self) -> Requires:
        """What the term reads."""
        return Requires(goal=True)

    def describe(self, episode: Frames) -> F64:
        """(t, 4), the same in every row."""
        goal = planar_goal(episode)
        row = np.concatenate([goal[:2], self.arm * _direction(goal[2])])
        return np.tile(row, (len(episode), 1))
