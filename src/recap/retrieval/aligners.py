"""In which frame a moment is described, and how a retrieved chunk is carried over to it."""

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
    """A frozen dataclass: its fields are its fingerprint. By itself a chunk stays as it was recorded."""

    name: ClassVar[str]
    in_world: ClassVar[bool] = True  # whether what is carried over is in the coordinates of the world
    from_start: ClassVar[bool] = False  # whether it reads how the episode began
    servo_lag: int  # frames by which actions run ahead of the tool, where chunks are cut short; 0: none

    @property
    def requires(self) -> Requires:
        """What a scene must have; without objects a chunk stays as it was recorded."""
        return Requires()

    @property
    def retargeting(self) -> Retargeting | None:
        """How tools of other shapes are described, where shapes matter."""
        return None

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Raise an InputError where it cannot serve such a robot."""

    def n_symmetries(self, symmetry: int) -> int:
        """By how many equal poses a query is asked."""
        return 1

    def frame(self, frames: Frames, t: int) -> F64:
        """(3,) or (7,): the canonical frame at frame t, in the world."""
        return np.zeros(3)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """Actions (H, a) and proprioception (H, p) of some rows, carried over to moment t of `frames`.

        Args:
            rows: consecutive, the last one held.
            lead: frames by which an action is ahead of where the tool is.
        """
        return np.asarray(episode.actions[rows], np.float64), np.asarray(episode.proprio[rows], np.float64)

    def objects(self, frames: Frames, begin: int, end: int, frame: F64) -> tuple[F64, F64]:
        """Poses (t, d) of the objects and the goal (g,), in the canonical frame; of width 0 if not known."""
        return objects_of(frames, slice(begin, end)), np.zeros(0)

    def carried_objects(self, episode: Episode, rows: Rows, frames: Frames, t: int) -> F64 | None:
        """(H, d) the objects as they would move with the chunk; None: as the demonstration shows them."""
        return None

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """How the chunk to come is described for training: by itself, from where the robot is now."""
        return Actions.from_now(robot, horizon)


@dataclass(frozen=True)
class World(Aligner):
    """As the paper has it: the coordinates of the world, a chunk as it was recorded."""

    name: ClassVar[str] = "world"
    object_name: str = ""  # the object whose pose a policy is given, in a plane; empty: all, in space
    servo_lag: int = 0

    def objects(self, frames: Frames, begin: int, end: int, frame: F64) -> tuple[F64, F64]:
        """Of a task with a goal the one that it is about."""
        if frames.goal is None:
            return super().objects(frames, begin, end, frame)
        return _planar_objects(frames, begin, end, self.object_name)

    def action_term(self, robot: RobotSpec, horizon: int) -> Term:
        """The actions as they are."""
        return Actions(robot.act.size, horizon)


@dataclass(frozen=True)
class ObjectFrame(Aligner):
    """Everything relative to an object: where it lies elsewhere, so does the chunk."""

    name: ClassVar[str] = "object"
    in_world: ClassVar[bool] = False
    object_name: str
    servo_lag: int = 0

    @property
    def requires(self) -> Requires:
        """The object."""
        return Requires((self.object_name,))

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """What is moved are positions, absolute ones, of as many numbers as the object's frame has."""
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
        """Each equal pose is a frame of its own."""
        return symmetry

    def frame(self, frames: Frames, t: int) -> F64:
        """The object's pose."""
        return np.asarray(object_poses(frames, self.object_name)[t], np.float64)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """In the frame of the episode's own object at the first row."""
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
        """There is none."""
        raise InputError("the goal aligner has no action term for training: use the object aligner")


@dataclass(frozen=True)
class Parts(Aligner):
    """Arms in space: a demonstration is cut into parts, and each follows the object that it refers to."""

    name: ClassVar[str] = "parts"
    from_start: ClassVar[bool] = True
    round_objects: tuple[str, ...] = ()  # whose turn about z means nothing
    servo_lag: int = 2

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Arms in tool space alone have parts."""
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
        """Each part moved with its object."""
        return transport(episode, rows, frames, t, self.round_objects, lead)

    def carried_objects(self, episode: Episode, rows: Rows, frames: Frames, t: int) -> F64 | None:
        """Moved from where they are now."""
        return carried_objects(episode, rows, frames, t)


@dataclass(frozen=True)
class ImageShift(Aligner):
    """No poses: where things around the tool's path have moved in calibrated images, the chunk moves along.

    See `recap.retrieval.registration`. Shifts are in the horizontal plane; turns are not found.
    """

    name: ClassVar[str] = "image"
    from_start: ClassVar[bool] = True
    cameras: tuple[str, ...]
    radius: float = 0.05  # m around a place that belongs to it
    reach: float = 0.2  # m: the largest shift that is looked for
    servo_lag: int = 0

    @property
    def requires(self) -> Requires:
        """The images of the first frame."""
        return Requires(cameras=self.cameras)

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Tools in space, absolute actions and calibrated cameras."""
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
        """Each tool by its own shifts."""
        actions, proprio = super().carry(episode, rows, frames, t, robot, lead)
        for tool, shifts in _shifts(self, episode, frames, robot).items():
            actions[:, tool.action : tool.action + 2] += shifts[rows]
            proprio[:, tool.proprio : tool.proprio + 2] += shifts[rows]
        return actions, proprio


_FOUND: OrderedDict[tuple[ImageShift, str, int, bytes], dict[Tool, F64]] = OrderedDict()
_MAX_FOUND = 4096


def _shifts(aligner: ImageShift, episode: Episode, frames: Frames, robot: RobotSpec) -> dict[Tool, F64]:
    """Tool -> (t, 2); found once for a demonstration and a scene, though every look asks for it."""
    seen = [np.asarray(frames.images[c][0]) for c in aligner.cameras if c in frames.images]
    scene = hashlib.blake2b(b"".join(image.tobytes() for image in seen)).digest()
    key = (aligner, episode.id, len(episode), scene)
    if key not in _FOUND:
        views = views_of(episode, frames, robot, aligner.cameras)
        actions = np.asarray(episode.actions, np.float64)
        proprio = np.asarray(episode.proprio, np.float64)
        _FOUND[key] = {
            tool: shifts_of(actions, proprio, tool, views, aligner.radius, aligner.reach)
            for tool in tools_of(robot)
        }
        while len(_FOUND) > _MAX_FOUND:
            _FOUND.popitem(last=False)
    return _FOUND[key]


def _refuse_changes(aligner: str, robot: RobotSpec) -> None:
    """A change of position lies nowhere, so that it cannot be moved to another place."""
    if robot.action_mode == "delta":
        raise InputError(
            f"aligner '{aligner}' moves absolute actions, and those of robot '{robot.name}' are changes "
            "(delta): use the world aligner"
        )


def pose_into(frame: F64, poses: F64) -> F64:
    """Poses (..., 3) of the plane expressed in the frame."""
    out = np.array(poses, np.float64)
    out[..., :2] = into_frame(frame, out[..., :2])
    out[..., 2] = out[..., 2] - frame[..., 2]
    return out


def _planar_objects(frames: Frames, begin: int, end: int, name: str) -> tuple[F64, F64]:
    """The object's poses (t, 3) and the goal (3,) in the world; of width 0 where one is not known."""
    if name not in frames.objects or frames.goal is None or len(frames.goal) != 3:
        return np.zeros((end - begin, 0)), np.zeros(0)
    return object_poses(frames, name)[begin:end], goal_of(frames)
