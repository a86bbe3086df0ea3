"""Estimates poses of objects from images, in the same way for demonstrations and observations.

An object's `source` in the robot's description names an estimator and its options, such as
`apriltag camera=front id=7 size=0.04 intrinsics=610,610,320,240`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from recap.config import with_changes
from recap.errors import InputError, one_of
from recap.features.sam3 import Sam3Objects
from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.kinematics import tool_space
from recap.robot import ObjectSpec, RobotSpec
from recap.suites import plugins
from recap.types import F64, U8, Episode, Observation

GROUP = "recap.estimators"  # entry points: functions of object name, ObjectSpec and the words of the source
RECORDED = "recorded"


class Finder(Protocol):
    """Finds one object in images."""

    def find(self, images: Mapping[str, U8]) -> F64 | None:
        """The pose, with the size of its kind, or None if the object is not seen."""


@dataclass(frozen=True)
class TagOptions:
    """Options of an AprilTag."""

    camera: str = ""
    id: int = -1
    size: float = 0.0  # m, side of the black square
    intrinsics: tuple[float, ...] = ()  # fx, fy, cx, cy of the images as sent
    at: tuple[float, ...] = ()  # camera pose x, y, z, qw, qx, qy, qz; it looks along z


class AprilTag:
    """Finds an AprilTag of the family 36h11 on the object, by OpenCV.

    With `at`, the pose is in the world frame, otherwise in the camera's; a pose in the plane needs `at`.
    The tilt of a tag that faces the camera squarely is accurate to about 10 degrees only.
    """

    def __init__(self, name: str, spec: ObjectSpec, words: Sequence[str]) -> None:
        import cv2

        self.kind, self.options = spec.kind, with_changes(TagOptions(), words)
        given = self.options
        wanted = {"camera": given.camera, "id": given.id >= 0}
        if spec.kind != "box":
            wanted |= {"size": given.size > 0, "intrinsics": len(given.intrinsics) == 4}
            wanted |= {"at": len(given.at) == 7 or (not given.at and spec.kind == "pose3")}
        for key, there in wanted.items():
            if not there:
                raise InputError(
                    f"the source of object '{name}' has no valid {key}: give apriltag camera=NAME id=N "
                    "size=M intrinsics=FX,FY,CX,CY, and at=X,Y,Z,QW,QX,QY,QZ for a pose in the world",
                    code="robot.source",
                )
        fx, fy, cx, cy = given.intrinsics or (1.0, 1.0, 0.0, 0.0)
        self._matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
        stands = np.array(given.at or (0, 0, 0, 1, 0, 0, 0), np.float64)
        self._at, self._turn = stands[:3], quaternion_to_matrix(stands[3:])
        self._corners = (
            given.size / 2 * np.array([(-1, 1, 0), (1, 1, 0), (1, -1, 0), (-1, -1, 0)], np.float64)
        )
        aruco, parameters = cv2.aruco, cv2.aruco.DetectorParameters()
        parameters.cornerRefinementMethod = aruco.CORNER_REFINE_APRILTAG
        family = aruco.getPredefinedDictionary(aruco.DICT_APRILTAG_36h11)
        self._detector = aruco.ArucoDetector(family, parameters)

    def find(self, images: Mapping[str, U8]) -> F64 | None:
        """The pose of the tag, z pointing out of it, or None if it is not seen."""
        import cv2

        if self.options.camera not in images:
            return None
        grey = cv2.cvtColor(np.ascontiguousarray(images[self.options.camera]), cv2.COLOR_RGB2GRAY)
        corners, numbers, _ = self._detector.detectMarkers(grey)
        tags = zip(corners, () if numbers is None else numbers.ravel(), strict=True)
        seen = [found[0] for found, number in tags if number == self.options.id]
        if not seen:
            return None
        pixels = seen[0].astype(np.float64)  # (4, 2)
        if self.kind == "box":
            low, high = pixels.min(axis=0), pixels.max(axis=0)
            return np.concatenate([(low + high) / 2, high - low])
        solved, turn, place = cv2.solvePnP(
            self._corners, pixels, self._matrix, None, flags=cv2.SOLVEPNP_IPPE_SQUARE
        )
        if not solved or not np.isfinite(turn).all():
            return None
        rotation = self._turn @ cv2.Rodrigues(turn)[0]
        position = self._turn @ place.ravel() + self._at
        if self.kind == "pose2":
            return np.array([*position[:2], np.arctan2(rotation[1, 0], rotation[0, 0])])
        return np.concatenate([position, matrix_to_quaternion(rotation)])


@dataclass(frozen=True)
class Sam3Options:
    """Options of a SAM3 object."""

    camera: str = ""
    model: str = ""  # a directory or hub name
    phrase: str = ""


class Sam3Box:
    """Finds the box of an object that a phrase names, by SAM3."""

    def __init__(self, name: str, spec: ObjectSpec, words: Sequence[str]) -> None:
        if spec.kind != "box":
            raise InputError(f"object '{name}' is a {spec.kind}: sam3 finds boxes", code="robot.source")
        given = with_changes(Sam3Options(), words)
        self.name, self.camera = name, given.camera
        self._model = _sam3(given.model, name, given.phrase)

    def find(self, images: Mapping[str, U8]) -> F64 | None:
        """Centre, width and height in pixels."""
        return self._model.find(images[self.camera]).get(self.name) if self.camera in images else None


@lru_cache(maxsize=16)
def _sam3(model: str, name: str, phrase: str) -> Sam3Objects:
    return Sam3Objects(model, {name: phrase})


FINDERS: Mapping[str, Callable[[str, ObjectSpec, Sequence[str]], Finder]] = {
    "apriltag": AprilTag,
    "sam3": Sam3Box,
}


class Estimator:
    """Adds estimated poses to observations; a hidden object keeps its last pose."""

    def __init__(self, finders: Mapping[str, Finder]) -> None:
        self._finders, self._last = finders, dict[str, F64]()

    def estimate(self, observation: Observation) -> Observation:
        """The observation with all known poses."""
        for name, finder in self._finders.items():
            found = None if name in observation.objects else finder.find(observation.images)
            if found is not None:
                self._last[name] = found
        return replace(observation, objects={**self._last, **observation.objects})


def estimator_of(robot: RobotSpec) -> Estimator | None:
    """The estimator of a robot's objects, or None if all their poses are recorded."""
    finders: dict[str, Finder] = {}
    installed = plugins(GROUP)
    for name, spec in robot.objects.items():
        word, *words = shlex.split(spec.source) or [RECORDED]
        if word != RECORDED:
            one_of(f"source of object '{name}'", word, (RECORDED, *FINDERS, *installed))
            make = installed[word].load() if word in installed else FINDERS[word]
            finders[name] = make(name, spec, words)
    return Estimator(finders) if finders else None


def prepared(robot: RobotSpec | None, known: bool = False) -> Callable[[Episode], Episode] | None:
    """A function that prepares demonstrations: joints to tool space, poses of objects from images.

    Args:
        known: see `recap.kinematics.tool_space`.
    """
    convert = tool_space(robot, known)
    finders = {*FINDERS, *plugins(GROUP)}  # other sources are estimated by a suite
    if robot is None or not any(spec.source.split(" ")[0] in finders for spec in robot.objects.values()):
        return convert

    def transform(episode: Episode) -> Episode:
        return with_poses(episode if convert is None else convert(episode), robot)

    return transform


def with_poses(episode: Episode, robot: RobotSpec) -> Episode:
    """Add poses of objects that were not recorded, estimated from the demonstration's images."""
    missing = [n for n, spec in robot.objects.items() if spec.source != RECORDED and n not in episode.objects]
    estimator = estimator_of(robot) if missing and episode.images else None
    if estimator is None:
        return episode
    rows: dict[str, list[Any]] = {}
    for t in range(len(episode)):
        images = {camera: frames[t] for camera, frames in episode.images.items()}
        seen = estimator.estimate(Observation(episode.proprio[t], episode.task, 0.0, images))
        for name, pose in seen.objects.items():
            # Before an object is first seen, it gets its first pose.
            rows.setdefault(name, [pose] * t).append(pose)
    found = {name: np.array(poses, np.float32) for name, poses in rows.items()}
    return replace(episode, objects={**found, **episode.objects})
