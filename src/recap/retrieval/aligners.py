"""Aligners: the frame in which a moment is described, and how a retrieved chunk is transformed to it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recap.body import ARM, PLANE, SPACE
from recap.errors import InputError
from recap.features.describer import Retargeting
from recap.features.terms import Actions, Term, goal_of, object_poses
from recap.geometry import into_frame
from recap.retrieval.registration import Tool, refuse_uncalibrated, shifts_of, tools_of, views_of
from recap.retrieval.scenes import carried_objects, objects_of
from recap.retrieval.transport import transport
from recap.robot import RobotSpec
from recap.types import F64, Episode, Frames, Requires

Rows = NDArray[np.int64]


class Aligner:
    """Base class of frozen dataclasses; the fields are the fingerprint. Chunks stay as they were recorded."""

    name: ClassVar[str]
    in_world: ClassVar[bool] = True  # True: transformed chunks are in world coordinates
    from_start: ClassVar[bool] = False  # True: needs the first observation of the episode
    servo_lag: int  # frames that actions are ahead of the tool; used if only the start of a chunk is executed

    @property
    def requires(self) -> Requires:
        """The objects, goal and cameras that a scene must have. By default none."""
        return Requires()

    @property
    def retargeting(self) -> Retargeting | None:
        """How tools of other shapes are described, or None."""
        return None

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Raise an InputError if the aligner cannot be used with this robot."""

    def n_symmetries(self, symmetry: int) -> int:
        """The number of symmetric poses with which a query is repeated."""
        return 1

    def frame(self, frames: Frames, t: int) -> F64:
        """The canonical frame at frame t, in world coordinates: (3,) or (7,)."""
        return np.zeros(3)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """The given rows of `episode`, transformed to moment t of `frames`: actions (H, a), proprio (H, p).

        Args:
            rows: consecutive frames; the last one may be repeated.
            lead: frames that actions are ahead of the tool.
        """
        return np.asarray(episode.actions[rows], np.float64), np.asarray(episode.proprio[rows], np.float64)

    def objects(self, frames: Frames, begin: int, end: int, frame: F64) -> tuple[F64, F64]:
        """Poses (t, d) of the objects and the goal (g,) in the canonical frame; width 0 if unknown."""
        return objects_of(frames, slice(begin, end)), np.zeros(0)

    def carried_objects(self, episode: Episode, rows: Rows, frames: Frames, t: int) -> F64 | None:
        """Poses (H, d) of the objects if they moved with the chunk; None: use those of the demonstration."""
        return None

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """The training term of the upcoming chunk: relative to the robot's current state."""
        return Actions.from_now(robot, horizon)


@dataclass(frozen=True)
class World(Aligner):
    """World coordinates, as in the paper: a chunk stays as it was recorded."""

    name: ClassVar[str] = "world"
    object_name: str = ""  # planar object for the policy, if the task has a goal; else all objects
    servo_lag: int = 0

    def objects(self, frames: Frames, begin: int, end: int, frame: F64) -> tuple[F64, F64]:
        """For a task with a goal, the object `object_name` and the goal; otherwise all objects in space."""
        if frames.goal is None:
            return super().objects(frames, begin, end, frame)
        return _planar_objects(frames, begin, end, self.object_name)

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """The absolute actions."""
        return Actions(robot.act.size, horizon)


@dataclass(frozen=True)
class ObjectFrame(Aligner):
    """Everything is relative to an object, so a chunk moves with the object."""

    name: ClassVar[str] = "object"
    in_world: ClassVar[bool] = False
    object_name: str
    servo_lag: int = 0

    @property
    def requires(self) -> Requires:
        """The object."""
        return Requires((self.object_name,))

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Refuse delta actions, objects given as boxes, and robots without positions of enough numbers."""
        _refuse_changes(self.name, robot)
        size = robot.object_size(self.object_name)
        if size not in (None, PLANE, SPACE):
            raise InputError(
                f"aligner '{self.name}' moves with the pose of object '{self.object_name}', and robot "
                f"'{robot.name}' knows but a box of it: use the world aligner"
            )
        least = 3 if size == SPACE else 2
        if not any(feature.kind == "position" and feature.size >= least for feature in robot.action):
            raise InputError(
                f"aligner '{self.name}' moves {least}-D positions, and robot '{robot.name}' has none: "
                "use the world aligner, or describe its actions in tool space"
            )

    def n_symmetries(self, symmetry: int) -> int:
        """Each symmetric pose gives a frame of its own."""
        return symmetry

    def frame(self, frames: Frames, t: int) -> F64:
        """The object's pose."""
        return np.asarray(object_poses(frames, self.object_name)[t], np.float64)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """In the frame that the episode's own object has at the first row."""
        own = self.frame(episode, int(rows[0]))
        actions = robot.act.into(own, episode.actions[rows].astype(np.float64))
        return actions, robot.body.into(own, episode.proprio[rows].astype(np.float64))

    def objects(self, frames: Frames, begin: int, end: int, frame: F64) -> tuple[F64, F64]:
        """In the canonical frame."""
        poses, goal = _planar_objects(frames, begin, end, self.object_name)
        if not poses.shape[1]:
            return poses, goal
        return pose_into(frame, poses), pose_into(frame, goal)

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """The actions in the object's frame."""
        return Actions(robot.act.size, horizon, frame=self.object_name)


@dataclass(frozen=True)
class GoalFrame(ObjectFrame):
    """Everything relative to the goal."""

    name: ClassVar[str] = "goal"

    @property
    def requires(self) -> Requires:
        """The object and the goal."""
        return Requires((self.object_name,), goal=True)

    def frame(self, frames: Frames, t: int) -> F64:
        """The goal's pose."""
        return goal_of(frames)

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """Not supported."""
        raise InputError("the goal aligner has no action term for training: use the object aligner")


@dataclass(frozen=True)
class Parts(Aligner):
    """For arms in tool space: a demonstration is cut into parts, and each part moves with one object."""

    name: ClassVar[str] = "parts"
    from_start: ClassVar[bool] = True
    round_objects: tuple[str, ...] = ()  # objects with rotational symmetry about z
    servo_lag: int = 2

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Accept only arms in tool space."""
        _refuse_changes(self.name, robot)
        letters = robot.act.letters
        if letters != robot.body.letters or letters.replace(ARM, ""):
            raise InputError(
                f"aligner '{self.name}' is for arms in tool space (position, rotation6d, gripper), and robot "
                f"'{robot.name}' is none: use the world or object aligner"
            )

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """Move each part with its object."""
        return transport(episode, rows, frames, t, self.round_objects, lead)

    def carried_objects(self, episode: Episode, rows: Rows, frames: Frames, t: int) -> F64 | None:
        """The query's objects, moved as in the demonstration."""
        return carried_objects(episode, rows, frames, t)


@dataclass(frozen=True)
class ImageShift(Aligner):
    """Without object poses: shifts the chunk by how far things have moved in calibrated images.

    See `recap.retrieval.registration`. Shifts are in the horizontal plane; rotations are not estimated.
    """

    name: ClassVar[str] = "image"
    from_start: ClassVar[bool] = True
    cameras: tuple[str, ...]
    radius: float = 0.05  # m, of the neighbourhood of a key place that is compared
    reach: float = 0.2  # m, the largest shift that is tried
    servo_lag: int = 0

    @property
    def requires(self) -> Requires:
        """The images of the first frame."""
        return Requires(cameras=self.cameras)

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Needs 3-D tool positions, absolute actions and calibrated cameras."""
        _refuse_changes(self.name, robot)
        if not tools_of(robot):
            raise InputError(
                f"aligner '{self.name}' moves 3-D positions, and robot '{robot.name}' has none: use the "
                "world aligner, or describe its actions in tool space"
            )
        for camera in self.cameras:
            refuse_uncalibrated(camera, robot)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """Shift each tool by its own offsets."""
        actions, proprio = super().carry(episode, rows, frames, t, robot, lead)
        for tool, shifts in _shifts(self, episode, frames, robot).items():
            actions[:, tool.action : tool.action + 2] += shifts[rows]
            proprio[:, tool.proprio : tool.proprio + 2] += shifts[rows]
        return actions, proprio


_SHIFTS: OrderedDict[tuple[ImageShift, str, int, bytes], dict[Tool, F64]] = OrderedDict()
_MAX_SHIFTS = 4096


def _shifts(aligner: ImageShift, episode: Episode, frames: Frames, robot: RobotSpec) -> dict[Tool, F64]:
    """Tool -> shifts (t, 2). Cached per demonstration and scene, because every look needs them."""
    seen = [np.asarray(frames.images[c][0]) for c in aligner.cameras if c in frames.images]
    scene = hashlib.blake2b(b"".join(image.tobytes() for image in seen)).digest()
    key = (aligner, episode.id, len(episode), scene)
    if key not in _SHIFTS:
        views = views_of(episode, frames, robot, aligner.cameras)
        actions = np.asarray(episode.actions, np.float64)
        proprio = np.asarray(episode.proprio, np.float64)
        _SHIFTS[key] = {
            tool: shifts_of(actions, proprio, tool, views, aligner.radius, aligner.reach)
            for tool in tools_of(robot)
        }
        while len(_SHIFTS) > _MAX_SHIFTS:
            _SHIFTS.popitem(last=False)
    return _SHIFTS[key]


def _refuse_changes(aligner: str, robot: RobotSpec) -> None:
    """Refuse delta actions: only absolute positions can be moved to another place."""
    if robot.action_mode == "delta":
        raise InputError(
            f"aligner '{aligner}' moves absolute actions, and those of robot '{robot.name}' are changes "
            "(delta): use the world aligner"
        )


def pose_into(frame: F64, poses: F64) -> F64:
    """Planar poses (..., 3) in the given frame."""
    out = np.array(poses, np.float64)
    out[..., :2] = into_frame(frame, out[..., :2])
    out[..., 2] = out[..., 2] - frame[..., 2]
    return out


def _planar_objects(frames: Frames, begin: int, end: int, name: str) -> tuple[F64, F64]:
    """The object's poses (t, 3) and the goal (3,) in the world; both of width 0 if either is unknown."""
    if name not in frames.objects or frames.goal is None or len(frames.goal) != 3:
        return np.zeros((end - begin, 0)), np.zeros(0)
    return object_poses(frames, name)[begin:end], goal_of(frames)
