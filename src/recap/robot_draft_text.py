"""The text of a draft: the description as commented YAML, and a comparison with a pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from recap.body import Feature
from recap.robot import POSE_SIZES
from recap.robot_draft import Data, Draft
from recap.types import F64


def is_other(own: Data, pool: Data) -> bool:
    """True if a pool is of another embodiment, by its name or by the names of its numbers."""
    named = own.episodes[0].embodiment, pool.episodes[0].embodiment
    return named[0] != named[1] or (own.state, own.action) != (pool.state, pool.action)


def compare(own: Data, pool: Data, made: Draft) -> list[str]:
    """Notes on how a pool differs from the robot's own demonstrations."""
    lines: list[str] = []
    a, b = own.embodiment, pool.embodiment
    in_joints = any(f.kind == "joint" for f in made.robot.proprio)
    unsaid = {own.episodes[0].embodiment, pool.episodes[0].embodiment} <= {"", "unknown"}
    if unsaid and not is_other(own, pool) and (in_joints or made.robot.kinematics is not None):
        lines.append(
            "Neither dataset names its robot (robot_type). If they are of two arms, joints mean other poses: "
            "give --model FILE --tip NAME, describe the other arm by its own model, and add its "
            "demonstrations with --robot FILE."
        )
    elif in_joints and not is_other(own, pool):
        lines.append(f"The pool is of the same robot ({a}): joint space is fine.")
    elif in_joints:
        why = f"'{b}' and '{a}'" if a != b else "other names or numbers of joints"
        lines.append(
            f"The pool is of another embodiment ({why}): the same joint angles are other poses there, "
            "so both must be in tool space. Give --model FILE --tip NAME, and describe the other robot "
            "by its own model."
        )
    elif made.robot.kinematics is None and len(own.state) != len(pool.state):
        lines.append(
            f"The pool has {len(pool.state)} numbers in its state, the robot {len(own.state)}: --map picks "
            "those that fit; recap pool add --robot makes tool poses of joints, by a model in that file."
        )
    lacking = sorted(set(own.episodes[0].images) - set(pool.episodes[0].images))
    if lacking:
        lines.append(f"The pool has no camera '{lacking[0]}': only cameras that both have can be compared.")
    rates = own.episodes[0].fps, pool.episodes[0].fps
    if rates[0] != rates[1]:
        lines.append(f"The pool is at {rates[1]:g} Hz, the robot at {rates[0]:g}: adding it resamples it.")
    return lines


def render(made: Draft, data: Data) -> str:
    """The description as commented YAML."""
    robot, first, k = made.robot, data.episodes[0], made.robot.kinematics
    kinds = {size: kind for kind, size in POSE_SIZES.items()}
    poses = {name: {"kind": kinds[v.shape[1]]} for name, v in first.objects.items() if v.shape[1] in kinds}
    n = f"{len(data.episodes)} of {len(data.source)} episodes"
    alike = robot.action == robot.proprio
    lines = [
        f"# {robot.name}, inferred from {data.source.path} ({n}). Limits leave room for other tasks.",
        *(f"# Unsure: {line}" for line in made.unsure),
        f"name: {_flow(robot.name)}",
        f"control_hz: {robot.control_hz:g}",
        "proprio:  # the state, number by number",
        *(_line(f, made.seen) for f in robot.proprio),
        "action:",
        *(
            ["  like: proprio"]
            if alike
            else ["  features:", *("  " + _line(f, made.seen) for f in robot.action)]
        ),
        f"  mode: {robot.action_mode}",
        f"  max_step: {_flow(dict(robot.max_step))}  # the largest change in one control period",
        "cameras:  # height, width; fit: letterbox, crop or resize" if first.images else "cameras: {}",
    ]
    for camera, frames in first.images.items():
        size = list(frames[0].shape[:2])
        lines.append(f"  {_flow(camera)}: {_flow({'size': size, 'fit': 'letterbox'})}")
    lines.append(f"objects: {_flow(poses)}  # with a known pose")
    lines += [] if robot.goal is None else [f"goal: {robot.goal}"]
    if k is not None:
        lines += [
            "kinematics:  # the robot sends and takes joints; pool and policy have its tool poses",
            f"  model: {_flow(made.model)}",
            f"  tip: {_flow(k.tip)}",
            f"  joints: {_flow(list(k.joints))}  # the order of the numbers that are sent",
            f"  units: {k.units}",
            f"  gripper: {_flow(list(k.gripper))}  # what is sent closed and open",
            f"  max_speed: {k.max_speed:g}  # rad/s of a joint",
            f"  unreachable: {k.unreachable}  # or hold",
        ]
    return "\n".join([*lines, ""])


def _line(feature: Feature, seen: Mapping[str, tuple[F64, F64]]) -> str:
    """One feature as a line of YAML, with the range that was seen."""
    shown: dict[str, Any] = {"name": feature.name, "kind": feature.kind}
    if feature.kind in ("position", "joint"):
        shown |= {"size": feature.size, "unit": feature.unit}
    if feature.limits is not None:
        shown["limits"] = [list(end) if isinstance(end, tuple) else end for end in feature.limits]
    line = f"  - {_flow(shown)}"
    if feature.name in seen and feature.kind != "rotation6d":
        ends = (", ".join(f"{x:.3g}" for x in end) for end in seen[feature.name])
        line += f"  # seen: {' to '.join(ends)}"
    return line


def _flow(value: object) -> str:
    """A value as one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
    return str(text).removesuffix("...\n").strip()
