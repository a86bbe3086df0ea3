"""Infers a first description of a robot from its demonstrations, and lists what is unsure."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.body import Feature, arm_features
from recap.chain import NAME, Chain
from recap.errors import DatasetError, InputError
from recap.geometry3 import arm_starts, quaternion_start
from recap.kinematics import JointSpace
from recap.pool.importers import Source
from recap.robot import POSE_SIZES, Kinematics, RobotSpec
from recap.robot_model import load_model
from recap.types import F64, Episode

N_EPISODES = 64  # number of episodes to read, spread evenly
# Unit -> margin added to limits, besides the widest range that was seen: new tasks may be elsewhere.
ROOM = {"m": 0.1, "rad": 0.5, "deg": 30.0, "px": 50.0}
STEPS = 1.5  # factor on the largest steps that were seen
TURN = 2 * math.pi * 1.05  # rad; larger values are taken as degrees
GRIPPER = re.compile(r"gripper|finger|jaw|claw|grasp")
JOINT = re.compile(
    r"joint|motor|shoulder|elbow|wrist|waist|forearm|arm|pan|lift|flex|rotat|base|torso|head|hip|knee|\bj\d"
)
RATES = re.compile(r"vel|effort|torque|current|force|load|temp|time")
NUMBERED = re.compile(r"(motor|joint|state|action|dim|value)?s?[._-]?\d+")
QUATERNIONS = {"qx qy qz qw": "xyzw", "qw qx qy qz": "wxyz"}
TURNS = (("roll", "pitch", "yaw"), ("rx", "ry", "rz"))
SIDES = ("left", "right")
OPENINGS = (0.0, 1.0), (0.0, 100.0)  # usual ranges of a gripper


@dataclass(frozen=True)
class Data:
    """The part of a dataset that is read: some episodes, and the names of their numbers."""

    source: Source
    episodes: tuple[Episode, ...]
    state: tuple[str, ...]  # one name per number; empty if it has none
    action: tuple[str, ...]

    @property
    def embodiment(self) -> str:
        """The embodiment that was recorded, as a valid name; else the name of the dataset."""
        name = self.episodes[0].embodiment
        return re.sub(r"\W+", "_", name if name not in ("", "unknown") else self.source.path.name)


def read_data(source: Source) -> Data:
    """Read some episodes, spread evenly, without damaged ones, which the import reports."""
    keys = {key.name: key.names for key in source.describe().keys}
    damaged = {damage.episode for damage in source.damage}
    sound = [i for i in range(len(source)) if i not in damaged]
    n = min(len(sound), N_EPISODES)
    episodes = tuple(source[sound[int((i + 0.5) * len(sound) / n)]] for i in range(n))
    found: dict[str, tuple[str, ...]] = {}
    for field, width in (("proprio", episodes[0].proprio.shape[1]), ("action", episodes[0].actions.shape[1])):
        names: list[str] = []
        for part in source.plan.numbers[field].parts:
            own = keys.get(part.key, ())[part.columns]
            names += [*own[:-4], *(f"r6d_{i}" for i in range(6))] if part.order else own
        found[field] = tuple(names) if len(names) == width else ("",) * width
    return Data(source, episodes, found["proprio"], found["action"])


@dataclass
class Draft:
    """The description so far, and what a person should check."""

    robot: RobotSpec
    unsure: list[str]
    model: str = ""  # path of the kinematic model, relative to the description
    seen: Mapping[str, tuple[F64, F64]] = ()  # type: ignore[assignment]  # feature -> minimum and maximum


def draft(data: Data, model: Path | None = None, tips: Sequence[str] = (), out: Path = Path()) -> Draft:
    """Infer a description from a dataset; with a model and its tips, in tool space.

    Args:
        tips: a link, body or site; for two arms `left=NAME` and `right=NAME`.
        out: the file of the description; the model's path is relative to it.
    """
    first = data.episodes[0]
    unsure: list[str] = []
    states = np.concatenate([e.proprio for e in data.episodes]).astype(np.float64)
    actions = np.concatenate([e.actions for e in data.episodes]).astype(np.float64)
    if not (np.isfinite(states).all() and np.isfinite(actions).all()):
        raise DatasetError(f"{data.source.path} holds NaN or infinity: recap pool inspect says where")
    proprio = _distinct(_features(data, "proprio", states, unsure))
    alike = len(data.state) == len(data.action) and data.action in (data.state, ("",) * len(data.state))
    action = proprio if alike else _distinct(_features(data, "action", actions, unsure))
    kinds = {size: kind for kind, size in POSE_SIZES.items()}
    robot = RobotSpec(
        data.embodiment,
        float(first.fps),
        proprio,
        action,
        "delta" if alike and _are_changes(data.episodes) else "absolute",
        goal=None if first.goal is None else kinds.get(len(first.goal)),  # type: ignore[arg-type]
    )
    if robot.action_mode == "delta":
        unsure.append("actions look like changes of the state: if they are targets, set mode to absolute")
    made = Draft(robot, unsure)
    episodes: Sequence[Episode] = data.episodes
    if model is not None:
        made = _with_model(made, data, model, tips, out)
        space = JointSpace(made.robot)
        episodes = [space.episode(episode) for episode in episodes]
        _check_limits(space, data, unsure)
    elif tips:
        raise InputError("--tip is of a model: give --model FILE too")
    elif any(f.kind == "joint" for f in proprio):
        unsure.append("no model: the description is in joints, which serves pools of the same robot alone")
    for feature in made.robot.action:
        if feature.kind == "gripper" and feature.limits not in OPENINGS:
            low, high = feature.limits or (0.0, 1.0)
            unsure.append(f"'{feature.name}' never left {low:g} to {high:g}: set its limits to all it can do")
    unsure += _not_used(data)
    return _with_limits(made, episodes)


def _not_used(data: Data) -> Iterator[str]:
    """Warnings about measured numbers that are not part of the state."""
    report = data.source.describe()
    used = {key for field in report.fields for key in field.keys}
    for key in report.keys:
        spare = key.name.startswith("observation.") and key.dtype.startswith("float") and len(key.shape) == 2
        if spare and key.name not in used:
            both = f"{data.source.plan.numbers['proprio'].text}+{key.name}"
            yield f"'{key.name}' is not used: --map proprio={both} adds it, here and at the import"


def _features(data: Data, field: str, values: F64, unsure: list[str]) -> Iterator[Feature]:
    """Infer features from names, in the order of the numbers."""
    what = {"proprio": "state"}.get(field, field)
    columns = data.state if what == "state" else data.action
    names = [re.sub(r"[.]pos(ition)?$", "", name) for name in columns]
    ends = [re.split(r"[^a-z0-9]+", name.lower())[-1] for name in names]
    if all(NUMBERED.fullmatch(name.lower()) or not name for name in names):
        turning = None if arm_starts(values) else quaternion_start(values)
        _refuse_quaternion(data, field, turning, len(names), "xyzw")
        yield from _unnamed(names, values, unsure, what)
        return
    unit = _unit(values[:, [i for i, name in enumerate(names) if _is_joint(name)]], unsure)
    at, tool = 0, "tool"
    unknown: list[str] = []
    while at < len(names):
        name, low, three = names[at], names[at].lower(), tuple(ends[at : at + 3])
        if order := QUATERNIONS.get(" ".join(ends[at : at + 4])):
            _refuse_quaternion(data, field, at, len(names), order)
        if re.search(r"r6d|rot6d|rotation_?6d", low):
            yield Feature(f"{tool}.rotation", "rotation6d")
            at += 6
        elif three == ("x", "y", "z"):
            tool = re.sub(r"[^A-Za-z0-9]+$", "", name[:-1]) or "tool"
            yield Feature(f"{tool}.position", "position", 3)
            at += 3
        elif three[:2] == ("x", "y"):
            yield _planar(values[:, at : at + 2])
            at += 2
        elif three in TURNS:
            unsure.append(f"'{name}' and the next two are angles of a rotation, which jump: taken as scalars")
            yield from (Feature(names[i], "scalar") for i in range(at, at + 3))
            at += 3
        else:
            if GRIPPER.search(low):
                side = next((f"{side}." for side in SIDES if side in low), "")
                yield Feature(f"{side}gripper", "gripper", limits=_opening(values[:, at]))
            elif _is_joint(name):
                yield Feature(name, "joint", unit=unit)
            else:
                unknown.append(f"'{name}'")
                yield Feature(name or f"{what}_{at}", "scalar")
            at += 1
    if unknown:
        unsure.append(f"of no known kind, taken as scalars: {', '.join(unknown)}")


def _distinct(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Append a number to a repeated name, such as that of two fingers of one gripper."""
    found: dict[str, Feature] = {}
    for feature in features:
        names = (feature.name, *(f"{feature.name}_{i}" for i in range(2, 1000)))
        name = next(name for name in names if name not in found)
        found[name] = replace(feature, name=name)
    return tuple(found.values())


def _unnamed(names: Sequence[str], values: F64, unsure: list[str], what: str) -> Iterator[Feature]:
    """Infer features without names from the number of columns and their ranges."""
    n, starts = len(names), arm_starts(values)
    # Columns of grippers: one arm of five to seven joints, or two arms of six or seven, gripper last.
    last = {6: (5,), 7: (6,), 8: (7,), 14: (6, 13), 16: (7, 15)}.get(n, ())
    grippers = [i for i in last if values[:, i].min() > -0.1]
    guess = f"joints, numbers {', '.join(map(str, grippers))} grippers" if grippers else "joints"
    guess = "tool poses with 6-D rotations" if starts else "a position in the plane" if n == 2 else guess
    unsure.append(f"the {what} has no names: its numbers are taken as {guess}")
    unit = "" if starts or n == 2 else _unit(np.delete(values, grippers, axis=1), unsure)
    if starts:
        yield from (f for side in (SIDES if len(starts) == 2 else ("tool",)) for f in arm_features(side))
    elif n == 2:
        yield _planar(values)
    else:
        for i in range(n):
            side = f"{SIDES[grippers.index(i)]}." if i in grippers and len(grippers) == 2 else ""
            if i in grippers:
                yield Feature(f"{side}gripper", "gripper", limits=_opening(values[:, i]))
            else:
                yield Feature(names[i] or f"joint_{i + 1}", "joint", unit=unit)


def _refuse_quaternion(data: Data, field: str, at: int | None, n: int, order: str) -> None:
    """Refuse a quaternion and name the mapping that converts it to a 6-D rotation."""
    if at is None:
        return
    key = data.source.plan.numbers[field].text
    parts = [
        f"{key}[{a}:{b}]{mark}"
        for a, b, mark in ((0, at, ""), (at, at + 4, f"@{order}"), (at + 4, n, ""))
        if b > a
    ]
    raise InputError(
        f"columns {at} to {at + 3} of {key} are a quaternion, which has two values for one rotation: give "
        f"--map '{field}={'+'.join(parts)}', here and at the import (@xyzw or @wxyz, as it was recorded)",
        code="init.quaternion",
    )


def _planar(values: F64) -> Feature:
    return Feature("position", "position", 2, "m" if np.abs(values).max() < 10 else "px")


def _is_joint(name: str) -> bool:
    low = name.lower()
    return bool(JOINT.search(low)) and not GRIPPER.search(low) and not RATES.search(low)


def _opening(values: F64) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    for closed, most in OPENINGS:
        if -0.05 * most <= low and 0.3 * most < high <= 1.05 * most:
            return closed, most
    return _round(low), _round(max(high, low + 1e-3))


def _unit(joints: F64, unsure: list[str]) -> str:
    """The unit of joints, from their largest value."""
    most = float(np.abs(joints).max(initial=0.0))
    if most > TURN:
        if most <= 101:
            unsure.append(
                f"joints go to {most:.0f}: taken as degrees; LeRobot's percent (-100 to 100) look alike, "
                "and fit no model: record with use_degrees"
            )
        return "deg"
    return "rad"


def _are_changes(episodes: Sequence[Episode]) -> bool:
    """True if actions are nearer to the next change of the state than to the next state."""
    errors = np.zeros(2)
    for e in episodes:
        change = np.diff(e.proprio, axis=0)
        errors += np.abs(e.actions[:-1] - e.proprio[1:]).sum(), np.abs(e.actions[:-1] - change).sum()
    return bool(errors[1] < 0.5 * errors[0])


def _with_model(made: Draft, data: Data, model: Path, tips: Sequence[str], out: Path) -> Draft:
    """Convert the draft to tool space, by matching its joints to those of the model."""
    robot, known, unsure = made.robot, load_model(model), made.unsure
    if not tips:
        raise InputError(f"give --tip, the tool in {model}: one of {', '.join(known.tips)}", code=NAME)
    pairs = [tip.partition("=") for tip in tips]
    known.check([link or name for name, _, link in pairs], (), str(model))
    tip = tips[0] if len(tips) == 1 and not pairs[0][1] else {name: link for name, _, link in pairs}
    sent = [f.name for f in robot.proprio if f.kind == "joint"]
    names = _joint_names(sent, Chain(known.text, [link or name for name, _, link in pairs]).names, unsure)
    grippers = {f.limits for f in robot.proprio if f.kind == "gripper"}
    kinematics = Kinematics(
        known.text,
        tip,
        tuple(names.get(f.name, f.name) for f in robot.proprio),
        units="deg" if any(f.unit == "deg" for f in robot.proprio) else "rad",
        gripper=next(iter(grippers), (0.0, 1.0)),  # type: ignore[arg-type]
    )
    if grippers:
        closed, opened = kinematics.gripper
        several = ", and grippers differ in range" if len(grippers) > 1 else ""
        unsure.append(f"kinematics.gripper: {closed:g} is taken as closed and {opened:g} as open{several}")
    extra = [f.name for f in robot.proprio if f.kind not in ("joint", "gripper")]
    if extra:
        unsure.append(f"'{extra[0]}' stays, and a pool of another robot needs it too: --map can leave it out")

    def tools(features: Sequence[Feature]) -> tuple[Feature, ...]:
        poses = [f for name in kinematics.tips for f in arm_features(name)[:2]]
        return (*poses, *(replace(f, limits=None) for f in features if f.kind != "joint"))

    there = replace(robot, proprio=tools(robot.proprio), action=tools(robot.action), kinematics=kinematics)
    return Draft(there, unsure, os.path.relpath(model, out.parent))


def _joint_names(sent: Sequence[str], known: Sequence[str], unsure: list[str]) -> dict[str, str]:
    """Match joints of the dataset to `motor=joint` of the model: by name, by suffix, or in order."""

    def alike(name: str) -> list[str]:
        same = [joint for joint in known if joint == name]
        return same or [joint for joint in known if joint.endswith(name) or name.endswith(joint)]

    if len(sent) != len(known):
        raise InputError(
            f"the dataset has {len(sent)} joints ({', '.join(sent)}), and {len(known)} move the tip "
            f"({', '.join(known)}): give another --tip, or the numbers of the joints by --map",
            code=NAME,
        )
    found = [names[0] for names in map(alike, sent) if len(names) == 1]
    if len(set(found)) < len(sent):
        unsure.append("the model has other joint names: they are taken in order, see kinematics.joints")
        found = list(known)
    return {
        motor: joint if motor == joint else f"{motor}={joint}"
        for motor, joint in zip(sent, found, strict=True)
    }


def _check_limits(space: JointSpace, data: Data, unsure: list[str]) -> None:
    """Warn about joints beyond the limits of the model: their unit, zero or sign may differ."""
    states = np.concatenate([e.proprio for e in data.episodes])
    least, most = space.robot.body.bounds
    for feature, at in space.robot.body.spans:
        low, high = float(states[:, at].min()), float(states[:, at].max())
        ends = float(least[at.start]), float(most[at.start])
        room = 0.1 * (ends[1] - ends[0])
        if feature.kind == "joint" and not ends[0] - room <= low <= high <= ends[1] + room:
            unsure.append(
                f"'{feature.name}' goes from {low:.3g} to {high:.3g} {feature.unit}, the model has "
                f"{ends[0]:.3g} to {ends[1]:.3g}: check its unit, zero and sign"
            )


def _with_limits(made: Draft, episodes: Sequence[Episode]) -> Draft:
    """Set limits and largest steps from the values that were seen, with a margin."""
    robot = made.robot
    known = [robot.hold(e.proprio) for e in episodes] if robot.measured.min() >= 0 else []
    values = np.concatenate([e.actions.astype(np.float64) for e in episodes] + known)
    seen: dict[str, tuple[F64, F64]] = {}
    limits: dict[str, tuple[Any, Any]] = {}
    steps: dict[str, float] = {}
    for feature, at in robot.act.spans:
        low, high = values[:, at].min(axis=0), values[:, at].max(axis=0)
        seen[feature.name] = low, high
        if feature.kind in ("position", "joint"):
            room = float((high - low).max()) + ROOM.get(feature.unit, 0.0)
            ends = [tuple(_round(x) for x in end) for end in (low - room, high + room)]
            limits[feature.name] = (ends[0][0], ends[1][0]) if feature.size == 1 else (ends[0], ends[1])
            steps[feature.name] = _round(STEPS * _largest_step(robot, episodes, at))
    joints = [f.name for f in robot.action if f.kind == "joint"]
    steps |= dict.fromkeys(joints, max((steps[name] for name in joints), default=0.0))  # or one stood still
    steps = {name: step for name, step in steps.items() if step > 0}
    if robot.action_mode == "delta":
        limits, steps = {}, {}

    def bounded(features: Sequence[Feature]) -> tuple[Feature, ...]:
        return tuple(replace(f, limits=limits.get(f.name, f.limits)) for f in features)

    robot = replace(robot, proprio=bounded(robot.proprio), action=bounded(robot.action), max_step=steps)
    return Draft(robot, made.unsure, made.model, seen)


def _largest_step(robot: RobotSpec, episodes: Sequence[Episode], at: slice) -> float:
    """The 99.9 % quantile of the change from the previous action, and from the robot's state."""
    lengths = [np.linalg.norm(np.diff(e.actions[:, at], axis=0), axis=1) for e in episodes]
    if robot.measured[at].min() >= 0:
        lengths += [np.linalg.norm(e.actions[:, at] - robot.hold(e.proprio)[:, at], axis=1) for e in episodes]
    return float(np.quantile(np.concatenate([*lengths, [0.0]]), 0.999))


def _round(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")
