"""Compares a hand's demonstration with a robot: frames out of reach, and how much too fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry3 import matrix_to_rotation6
from recap.kinematics import joint_space
from recap.pool.importers.tracked import runs
from recap.robot import RobotSpec
from recap.types import F64, Episode
from recap_hands.lift import Lifted

FAST = 95  # percentile of a hand's speed that the robot has to reach
SLOWEST = 1e-3  # m/s: a slower robot counts as standing still


def targets_of(lifted: Lifted, robot: RobotSpec) -> F64:
    """(t, a): the demonstration as actions of a robot in tool space; other features are 0."""
    spans = [(feature, at) for feature, at in robot.act.spans]
    places = [at for feature, at in spans if feature.kind == "position" and feature.size == 3]
    if len(places) != len(lifted.hands):
        raise InputError(
            f"robot '{robot.name}' has {len(places)} tools in space, the demonstration {len(lifted.hands)} "
            "hands: give --hands one, or both",
            code="hands.robot",
        )
    turns = [at for feature, at in spans if feature.kind == "rotation6d"]
    grips = [at for feature, at in spans if feature.kind == "gripper"]
    out = np.zeros((len(lifted.times), robot.act.size))
    for number, hand in enumerate(lifted.hands.values()):
        out[:, places[number]] = hand.path.position
        if number < len(turns):
            out[:, turns[number]] = matrix_to_rotation6(hand.path.rotation)
        if number < len(grips):
            out[:, grips[number]] = hand.gripper[:, None]
    return out


def out_of_reach(lifted: Lifted, robot: RobotSpec, every_s: float = 0.1) -> list[str]:
    """A line for each interval that the robot's limits or kinematics do not allow."""
    targets, seen = targets_of(lifted, robot), lifted.seen
    good = np.ones(len(targets), bool)
    lines = []
    for feature, at in robot.act.spans:
        if feature.kind == "position" and feature.limits is not None and robot.action_mode == "absolute":
            low, high = (np.broadcast_to(np.asarray(end, float), (feature.size,)) for end in feature.limits)
            beyond = np.maximum(low - targets[:, at], targets[:, at] - high).max(axis=1)
            bad = seen & (beyond > 1e-6)
            lines += _stretches(bad, lifted.times, f"beyond the limits of '{feature.name}'", beyond)
            good &= ~bad
    space = joint_space(robot)
    if space is not None:
        bad = np.zeros(len(targets), bool)
        step = max(1, round(every_s * lifted.fps))
        for begin, end in runs(seen):
            rows = np.arange(begin, end, step)
            now = space.posture(_proprio(targets[begin], robot))
            reached = space.can_reach(targets[rows], now)
            for row, fine in zip(rows, reached, strict=True):
                bad[row : min(row + step, end)] = not fine
        lines += _stretches(bad & good, lifted.times, "out of reach by its kinematics")
    return lines


def relative_speed(
    lifted: Lifted, robot: RobotSpec, paired: Sequence[Episode] = ()
) -> tuple[float, str] | None:
    """The hand's speed divided by the robot's, and what the latter comes from; None if it is unknown.

    Args:
        paired: the robot's demonstrations of the task, in tool space. By default its limits are used: largest
            tool step and joint speed; a hand within the limits gives 1.
    """
    fast = [_fast(hand.path.position, lifted.fps) for hand in lifted.hands.values()]
    if paired:
        return max(fast) / _robot_speed(paired, robot), f"{len(paired)} demonstrations of '{robot.name}'"
    found = [
        (max(fast) / (step * robot.control_hz), f"the largest step of '{name}'")
        for name, step in robot.max_step.items()
        if any(f.name == name and f.kind == "position" for f in robot.action)
    ]
    for feature in robot.action if robot.action_mode == "delta" else ():
        if feature.kind == "position" and feature.limits is not None:
            step = float(np.abs(np.array(feature.limits)).max())
            found.append((max(fast) / (step * robot.control_hz), f"the limits of '{feature.name}'"))
    if robot.kinematics is not None:
        joints = _joint_speed(lifted, robot) / robot.kinematics.max_speed
        found.append((joints, f"how fast the joints of '{robot.name}' may be"))
    factor, why = max(found, default=(0.0, ""))
    return (max(1.0, factor), why) if found else None


def _robot_speed(paired: Sequence[Episode], robot: RobotSpec) -> float:
    """m/s: the median over its demonstrations."""
    places = [at for feature, at in robot.body.spans if feature.kind == "position" and feature.size == 3]
    for episode in paired:
        if episode.proprio.shape[1] != robot.body.size or not places:
            raise InputError(
                f"episode {episode.id!a} has {episode.proprio.shape[1]} numbers, '{robot.name}' has "
                f"{robot.body.size} with {len(places)} tools: give demonstrations of this robot",
                code="hands.robot",
            )
    speed = float(np.median([max(_fast(e.proprio[:, at], e.fps) for at in places) for e in paired]))
    if not speed > SLOWEST:
        raise InputError(f"'{robot.name}' does not move in its demonstrations: give --speed N")
    return speed


def _joint_speed(lifted: Lifted, robot: RobotSpec) -> float:
    """rad/s or m/s of the fastest joint that follows the hand; frames out of reach are ignored."""
    space, targets = joint_space(robot), targets_of(lifted, robot)
    assert space is not None
    step = min(3, max(1, len(targets) - 1))
    speeds = [0.0]
    for begin, end in runs(lifted.seen):
        rows = targets[begin:end:step]
        joints, fine = space.follow(rows, space.posture(_proprio(rows[0], robot)))
        moves = np.abs(np.diff(joints, axis=0)).max(axis=1) * lifted.fps / step
        speeds += moves[fine[1:] & fine[:-1]].tolist()
    return float(np.percentile(speeds, FAST))


def _fast(positions: NDArray[Any], fps: float) -> float:
    return float(np.nanpercentile(_speeds(positions, fps), FAST))


def _speeds(positions: NDArray[Any], fps: float) -> F64:
    """m/s over three frames, which reduces noise."""
    gap = min(3, max(1, len(positions) - 1))
    return np.asarray(np.linalg.norm(positions[gap:] - positions[:-gap], axis=1) * fps / gap)


def _proprio(target: F64, robot: RobotSpec) -> F64:
    """Proprioception (p,) of a robot that has reached the target."""
    out = np.zeros(robot.body.size)
    known = robot.measured >= 0
    out[robot.measured[known]] = target[known]
    return out


def _stretches(bad: NDArray[np.bool_], times: F64, words: str, beyond: F64 | None = None) -> list[str]:
    out = []
    for begin, end in runs(bad, 1):
        far = "" if beyond is None else f" by up to {1000 * beyond[begin:end].max():.0f} mm"
        out.append(f"Out of reach: {times[begin]:.2f} to {times[end - 1]:.2f} s, {words}{far}")
    return out
