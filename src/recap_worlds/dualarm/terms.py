"""Terms for arms and objects in space: positions of the tools relative to each object, in metres.

Tasks differ in their objects. So each term has a fixed number of slots, filled in alphabetical order of the
names; an empty slot is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from recap.body import ARM, body_of
from recap.errors import InputError
from recap.features.language import HashedWords
from recap.geometry3 import quaternion_to_matrix
from recap.retrieval.scenes import is_round
from recap.types import F32, F64, Frames

N_SLOTS = 4


def slots_of(episode: Frames, n_slots: int) -> list[str]:
    """The objects in space that have a slot."""
    return sorted(name for name, poses in episode.objects.items() if poses.shape[1] == 7)[:n_slots]


def _headings(poses: F64) -> F64:
    """Rotations about z of poses (t, 7), as matrices (t, 2, 2)."""
    turn = quaternion_to_matrix(poses[:, 3:])
    angle = np.arctan2(turn[:, 1, 0] - turn[:, 0, 1], turn[:, 0, 0] + turn[:, 1, 1])
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)


@dataclass(frozen=True)
class ToolsAboutObjects:
    """Each tool's position relative to each object, along its heading; large distances are compressed."""

    near: float = 0.05  # m: at this distance a centimetre counts as half a centimetre
    round_objects: tuple[str, ...] = ()  # they have no heading
    letters: str = ARM  # kinds of the proprioception's numbers
    n_slots: int = N_SLOTS

    @property
    def dim(self) -> int:
        """Three numbers for each tool and slot."""
        return 3 * len(body_of(self.letters).positions) * self.n_slots

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        n, starts = len(episode), body_of(self.letters).positions
        if episode.proprio.shape[1] != len(self.letters):
            raise InputError(
                f"episode {episode.id} has {episode.proprio.shape[1]}-D proprioception, not "
                f"{len(self.letters)}-D: it is of another robot"
            )
        body = np.asarray(episode.proprio, np.float64)
        tools = np.stack([body[:, start : start + 3] for start in starts], axis=1)
        rows = np.zeros((n, self.n_slots, len(starts), 3))
        for slot, name in enumerate(slots_of(episode, self.n_slots)):
            poses = np.asarray(episode.objects[name], np.float64)
            away = tools - poses[:, None, :3]
            if not is_round(name, self.round_objects):
                away[..., :2] = away[..., :2] @ _headings(poses)
            far = np.linalg.norm(away, axis=-1, keepdims=True)
            rows[:, slot] = away * (self.near * np.log1p(far / self.near) / np.maximum(far, 1e-9))
        return rows.reshape(n, -1)


@dataclass(frozen=True)
class Grippers:
    """Opening of each gripper."""

    letters: str = ARM  # kinds of the proprioception's numbers

    @property
    def dim(self) -> int:
        """One number per gripper."""
        return self.letters.count("g")

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        columns = [i for i, letter in enumerate(self.letters) if letter == "g"]
        return np.asarray(episode.proprio[:, columns], np.float64)


@dataclass(frozen=True)
class ObjectsApart:
    """Each object's height, and its position relative to each other object."""

    n_slots: int = N_SLOTS

    @property
    def dim(self) -> int:
        """One height per slot, and three numbers per pair."""
        return self.n_slots + 3 * self.n_slots * (self.n_slots - 1) // 2

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        n, names = len(episode), slots_of(episode, self.n_slots)
        places = np.zeros((n, self.n_slots, 3))
        for slot, name in enumerate(names):
            places[:, slot] = episode.objects[name][:, :3]
        first, second = np.triu_indices(self.n_slots, 1)
        apart = places[:, first] - places[:, second]
        apart[:, second >= len(names)] = 0
        return np.concatenate([places[:, :, 2], apart.reshape(n, -1)], axis=1)


@dataclass(frozen=True)
class ObjectsMoved:
    """Each object's displacement since the start of the episode: along the table, up, and rotation."""

    near: float = 0.05  # m: larger displacements are compressed
    arm: float = 0.1  # m per radian of rotation
    n_slots: int = N_SLOTS
    from_start: bool = True  # the first row must be the first moment of the episode

    @property
    def dim(self) -> int:
        """Three numbers per slot."""
        return 3 * self.n_slots

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        rows = np.zeros((len(episode), self.n_slots, 3))
        for slot, name in enumerate(slots_of(episode, self.n_slots)):
            poses = np.asarray(episode.objects[name], np.float64)
            moved = poses[:, :3] - poses[0, :3]
            cosine = np.abs(poses[:, 3:] @ poses[0, 3:]) / np.maximum(
                np.linalg.norm(poses[:, 3:], axis=1), 1e-9
            )
            rows[:, slot, 0] = self.near * np.log1p(np.linalg.norm(moved[:, :2], axis=1) / self.near)
            rows[:, slot, 1] = moved[:, 2]
            rows[:, slot, 2] = self.arm * 2 * np.arccos(np.minimum(cosine, 1))
        return rows.reshape(len(episode), -1)


@dataclass(frozen=True)
class ObjectPlaces:
    """Each object's position in the world, and its heading times `arm`."""

    arm: float = 0.1  # m per unit of direction
    round_objects: tuple[str, ...] = ()
    n_slots: int = N_SLOTS

    @property
    def dim(self) -> int:
        """Position and direction."""
        return 5 * self.n_slots

    def describe(self, episode: Frames) -> F64:
        """(t, dim)."""
        rows = np.zeros((len(episode), self.n_slots, 5))
        for slot, name in enumerate(slots_of(episode, self.n_slots)):
            poses = np.asarray(episode.objects[name], np.float64)
            rows[:, slot, :3] = poses[:, :3]
            if self.arm and not is_round(name, self.round_objects):
                rows[:, slot, 3:] = self.arm * _headings(poses)[:, :, 0]
        return rows.reshape(len(episode), -1)


@dataclass(frozen=True)
class ObjectNames:
    """The names of the objects, as a vector of unit length."""

    dim: int = 128

    def describe(self, episode: Frames) -> F32:
        """(t, dim), the same in every row."""
        return np.repeat(_names_row(tuple(sorted(episode.objects)), self.dim), len(episode), axis=0)


@lru_cache(maxsize=1024)
def _names_row(names: tuple[str, ...], dim: int) -> F32:
    return HashedWords(dim, letter_weight=0.0).encode([" ".join(names)])
