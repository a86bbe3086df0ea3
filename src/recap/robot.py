"""The robot description: the meaning of every number. Pools, checkpoints and the server include it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap import config as configs
from recap.body import Body, Feature, arm_features
from recap.errors import InputError, one_of
from recap.geometry3 import arm_starts
from recap.types import F32, F64, Episode

ActionMode: TypeAlias = Literal["absolute", "delta"]
Fit: TypeAlias = Literal["resize", "letterbox", "crop"]
ObjectKind: TypeAlias = Literal["pose2", "pose3", "box"]
POSE_SIZES: Mapping[str, int] = {"pose2": 3, "pose3": 7, "box": 4}


@dataclass(frozen=True)
class CameraSpec:
    """A camera; its calibration is needed only to compare positions in images."""

    size: tuple[int, int] | None = None  # height, width of its images; None: any
    fit: Fit = "resize"  # how an image becomes square: stretched, padded or cropped
    intrinsics: tuple[float, ...] = ()  # fx, fy, cx, cy in pixels, for images of `size`
    at: tuple[float, ...] = ()  # pose x, y, z, qw, qx, qy, qz; it looks along z, y points down
    tool: str = ""  # position feature that it is mounted on; `at` is then relative to that tool


@dataclass(frozen=True)
class ObjectSpec:
    """An object whose pose is known."""

    kind: ObjectKind = "pose3"
    symmetry: int = 1  # order of its rotational symmetry
    source: str = "recorded"  # origin of its pose: recorded, or the name of a pose estimator

    @property
    def size(self) -> int:
        return POSE_SIZES[self.kind]


@dataclass(frozen=True)
class Base:
    """The pose of a model's origin in the frame that all robots of a pool share."""

    position: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m
    rotation: tuple[float, float, float] = (0.0, 0.0, 0.0)  # roll, pitch, yaw in rad, as in a URDF


@dataclass(frozen=True)
class Kinematics:
    """A model that converts the robot's joints to tool poses, and targets to joints.

    Args:
        model: a URDF or MJCF file; after loading, the text of its links and joints.
        tip: the link, body or site that is the tool; for several tools {feature: tip}, such as {left: …}.
        joints: the order of the numbers that the robot sends: joints of the model, `motor=joint` if the robot
            uses another name, and features other than tool poses, such as a gripper. Features that are not
            listed follow; empty: the joints from base to tip.
        rest: a posture that redundant joints are pulled towards, in `units`; empty: none.
        units: unit of revolute joints; prismatic joints are in metres.
        gripper: what the robot sends for a closed and for an open gripper; tool space has 0 and 1.
        max_speed: maximum joint speed, rad/s or m/s.
        unreachable: what is sent if a target is missed by more than `tolerance`: the nearest pose, or from
            there on the joints before it (hold).
        tolerance: largest error of a reached target, in mm and degrees.
    """

    model: str
    tip: str | Mapping[str, str]
    joints: tuple[str, ...] = ()
    rest: tuple[float, ...] = ()
    units: Literal["rad", "deg"] = "rad"
    gripper: tuple[float, float] = (0.0, 1.0)
    base: Base = Base()
    max_speed: float = 3.0
    unreachable: Literal["nearest", "hold"] = "nearest"
    tolerance: tuple[float, float] = (10.0, 10.0)

    def __post_init__(self) -> None:
        if self.gripper[0] == self.gripper[1]:
            raise InputError("kinematics.gripper has one value for closed and open: give two")
        if not (self.max_speed > 0 and min(self.tolerance) > 0):
            raise InputError("kinematics.max_speed and tolerance must be more than 0")

    @property
    def sent(self) -> Mapping[str, str]:
        """Joint of the model, or feature -> the robot's name for it; in the order of the numbers."""
        return {name: motor or name for motor, _, name in (text.rpartition("=") for text in self.joints)}

    @property
    def tips(self) -> Mapping[str, str]:
        """Name of the tool -> tip."""
        return {"tool": self.tip} if isinstance(self.tip, str) else self.tip


@dataclass(frozen=True)
class RobotSpec:
    """A robot as data: its proprioception, actions, cameras and objects."""

    name: str
    control_hz: float
    proprio: tuple[Feature, ...]
    action: tuple[Feature, ...] = ()  # empty: the same as proprio
    action_mode: ActionMode = "absolute"
    max_step: Mapping[str, float] = field(default_factory=dict)  # feature -> max change per control period
    gate_tolerance: Mapping[str, float] = field(default_factory=dict)  # feature -> tolerance of the gate
    cameras: Mapping[str, CameraSpec] = field(default_factory=dict)
    objects: Mapping[str, ObjectSpec] = field(default_factory=dict)
    goal: ObjectKind | None = None  # kind of a task's goal pose; None: no goal
    kinematics: Kinematics | None = None

    def __post_init__(self) -> None:
        if not 0 < self.control_hz < math.inf:
            raise InputError(f"robot '{self.name}' has control_hz {self.control_hz}: give more than 0")
        if not self.proprio:
            raise InputError(f"robot '{self.name}' has no proprio feature: give at least one")
        kinds = sorted({spec.kind for spec in self.objects.values()})
        if len(kinds) > 1:
            raise InputError(
                f"robot '{self.name}' has objects of the kinds {' and '.join(kinds)}: give all alike",
                code="robot.objects",
            )
        object.__setattr__(self, "action", self.action or self.proprio)
        names = {feature.name for feature in self.action}
        for what in ("max_step", "gate_tolerance"):
            for name, most in getattr(self, what).items():
                one_of(f"feature in {what}", name, sorted(names))
                if not most > 0:
                    raise InputError(f"{what} of '{name}' is {most}: give more than 0")
        self.body  # noqa: B018 - refuses doubled names
        self.act  # noqa: B018

    @cached_property
    def body(self) -> Body:
        """The features of proprioception."""
        return Body(self.proprio)

    @cached_property
    def act(self) -> Body:
        """The features of an action."""
        return Body(self.action, self.action_mode == "delta")

    @cached_property
    def measured(self) -> NDArray[np.int64]:
        """For each number of an action, the index of the proprioception that it commands, or -1."""
        found = np.full(self.act.size, -1)
        known = {feature.name: at for feature, at in self.body.spans}
        for feature, at in self.act.spans if self.action_mode == "absolute" else ():
            there = known.get(feature.name, slice(0, 0))
            if there.stop - there.start == feature.size:
                found[at] = np.arange(there.start, there.stop)
        return found

    @property
    def is_metric(self) -> bool:
        """True if some feature is in metres or radians."""
        return any(f.unit in ("m", "rad") for f in (*self.proprio, *self.action))

    @property
    def object_kind(self) -> ObjectKind | None:
        """The kind of its objects, which all have the same; None without objects."""
        kinds = {spec.kind for spec in self.objects.values()}
        return min(kinds) if kinds else None

    def object_size(self, name: str) -> int | None:
        """Size of an object's pose, or None if unknown; the object `*` stands for every other name."""
        spec = self.objects.get(name) or self.objects.get("*")
        return None if spec is None else spec.size

    def hold(self, proprio: F32 | F64) -> F64:
        """Actions (..., a) that keep the robot at proprioception (..., p); unmeasured numbers are 0."""
        here = np.asarray(proprio, np.float64)[..., self.measured]
        return np.asarray(np.where(self.measured >= 0, here, 0.0))

    @cached_property
    def max_steps(self) -> tuple[tuple[slice, float], ...]:
        """Columns of an action, with the largest norm of their change per control period."""
        return tuple((at, self.max_step[f.name]) for f, at in self.act.spans if f.name in self.max_step)


def read_robot(values: object, what: str) -> RobotSpec:
    """A robot from plain values; `action` is a list of features or `{like: proprio, mode, max_step}`."""
    if not isinstance(values, dict):
        raise InputError(f"{what} is no description of a robot: give name, control_hz, proprio, …")
    known = dict(values)
    action = known.get("action")
    if isinstance(action, dict):
        beyond = sorted(set(action) - {"like", "mode", "max_step", "features"})
        if beyond:
            raise InputError(f"{what} has an unknown key 'action.{beyond[0]}': give like, mode or max_step")
        if action.get("like", "proprio") != "proprio":
            raise InputError(f"{what} has action.like {action['like']!r}: only proprio can be meant")
        known["action"] = action.get("features", known.get("proprio"))
        renamed = {"mode": "action_mode", "max_step": "max_step"}
        known |= {renamed[key]: action[key] for key in renamed if key in action}
    return configs.read(RobotSpec, known, what)


def load_robot(path: str | Path) -> RobotSpec:
    """Read a `robot.yaml`, with the text of its kinematic model."""
    robot = read_robot(configs.load_file(Path(path)), str(path))
    k = robot.kinematics
    if k is None:
        return robot
    from recap.robot_model import load_model, read_model

    inside = k.model.lstrip().startswith("<")
    what = f"the model of {path}" if inside else str(Path(path).parent / k.model)
    model = read_model(k.model, what) if inside else load_model(Path(what))
    features = {feature.name for feature in (*robot.proprio, *robot.action)}
    model.check(tuple(k.tips.values()), [name for name in k.sent if name not in features], what)
    return replace(robot, kinematics=replace(k, model=model.text))


def difference(wanted: RobotSpec, given: RobotSpec) -> str | None:
    """The reason why a pool of robot `given` does not fit a policy for `wanted`, or None.

    Features must agree in name, kind, size and unit. Camera sizes, rate, limits and kinematics may differ.
    """
    if wanted.action_mode != given.action_mode:
        return f"actions are {given.action_mode}, not {wanted.action_mode}"
    for what, ours, theirs in (
        ("action", wanted.action, given.action),
        ("proprio", wanted.proprio, given.proprio),
    ):
        for a, b in zip(ours, theirs, strict=False):
            if (a.name, a.kind, a.size, a.unit) != (b.name, b.kind, b.size, b.unit):
                return f"{what} feature {_shown(b)} is not {_shown(a)}"
        if len(ours) != len(theirs):
            longer = ours if len(ours) > len(theirs) else theirs
            extra = longer[min(len(ours), len(theirs))]
            return f"{what} feature {_shown(extra)} is {'missing' if longer is ours else 'unknown'}"
    return None


def _shown(feature: Feature) -> str:
    unit = f" {feature.unit}" if feature.unit else ""
    return f"'{feature.name}' ({feature.kind}, {feature.size}{unit})"


def infer_robot(episode: Episode) -> RobotSpec:
    """A description inferred from a demonstration, for data without one."""

    def features(values: F32) -> tuple[Feature, ...]:
        starts = arm_starts(values)
        if starts:
            names = ("left", "right") if len(starts) == 2 else ("tool",)
            return tuple(f for number in range(len(starts)) for f in arm_features(names[number]))
        size = values.shape[1]
        if size == 2:
            return (Feature("position", "position", 2, "px"),)
        return (Feature("state", "scalar", size),) if size else ()

    kinds = {size: kind for kind, size in POSE_SIZES.items()}
    objects = {
        key: ObjectSpec(kinds[poses.shape[1]], int(episode.attributes.get("symmetry", 1)))  # type: ignore[arg-type]
        for key, poses in episode.objects.items()
        if poses.shape[1] in kinds
    }
    goal: Any = None if episode.goal is None else kinds.get(len(episode.goal))
    return RobotSpec(
        episode.embodiment or "robot",
        float(episode.fps),
        features(episode.proprio),
        features(episode.actions),
        cameras={camera: CameraSpec() for camera in episode.images},
        objects=objects,
        goal=goal,
    )
