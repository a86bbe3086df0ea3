"""Checks whether the robot can reach the actions of a match, by inverse kinematics or by limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.kinematics import joint_space
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.robot import RobotSpec
from recap.types import F64, FrameRef, Match, Moment, Query

REACH = "reach"  # key among the costs of a match
N_POSES = 4  # poses of a transformed chunk that are checked: evenly spaced, always with the last one
N_TRIED = 16  # matches that are checked, nearest first
SLACK = 1e-6  # beyond a limit


class Reachability:
    """Adds a cost to matches whose transformed chunk the robot cannot reach.

    Args:
        robot: with `kinematics`, or with limits of positions or joints.
        config: `reach` times the unreachable share of poses is added to the cost.
    """

    def __init__(self, robot: RobotSpec, config: RetrievalConfig) -> None:
        bounded = [f for f in robot.action if f.kind != "gripper" and f.limits]
        changes = robot.action_mode == "delta"
        if changes or not (robot.kinematics or bounded):
            why = "takes changes (delta)" if changes else "has neither kinematics nor limits"
            raise InputError(
                f"retrieval '{config.name}' weighs reach, and robot '{robot.name}' {why}: leave it out, or "
                "say in robot.yaml where it can go",
                code="retrieval.reach",
            )
        self.robot, self.config = robot, config
        self.joints = joint_space(robot)
        low, high = robot.act.bounds
        moving = np.concatenate([np.full(f.size, f in bounded) for f in robot.action])
        self._low, self._high = np.where(moving, low, -np.inf), np.where(moving, high, np.inf)

    def ranked(self, matches: Sequence[Match], query: Query, view: PoolView, n: int) -> list[Match]:
        """The n best of the matches, given nearest first; stops when no other match can be among them."""
        checked: list[Match] = []
        posture = None if self.joints is None else self.joints.posture(query.window[-1].proprio)
        for match in matches[:N_TRIED]:
            checked.sort(key=lambda one: one.distance)
            if len(checked) >= n and checked[n - 1].distance <= match.distance:
                break
            poses = self._transformed_poses(match.ref, match.symmetry_index, query, view)
            cost = self.config.reach * float(np.mean(self._unreachable(poses, posture)))
            costs = {**match.costs, REACH: cost}
            checked.append(replace(match, distance=math.sqrt(match.distance**2 + cost), costs=costs))
        return sorted(checked, key=lambda one: one.distance)[:n]

    def _unreachable(self, poses: F64, posture: F64 | None) -> NDArray[np.bool_]:
        """Which poses (n, a) the robot cannot reach."""
        out = ((poses < self._low - SLACK) | (poses > self._high + SLACK)).any(axis=1)
        if self.joints is not None and posture is not None:
            out |= ~self.joints.can_reach(poses, posture)
        return np.asarray(out)

    def _transformed_poses(self, ref: FrameRef, symmetry_index: int, query: Query, view: PoolView) -> F64:
        """(n, a) poses of the transformed chunk in the world."""
        aligner, episode = self.config.aligner, view.episode(ref.episode_id)
        obs = [query.first, query.window[-1]] if aligner.from_start else [query.window[-1]]
        moment = Moment.of([o.seen_by(aligner.requires.cameras) for o in obs], query.context, symmetry_index)
        t = len(obs) - 1
        n_frames = self.config.reach_ahead or self.config.chunk_size
        rows = np.arange(ref.t, min(ref.t + n_frames, len(episode)))
        actions, _ = aligner.carry(episode, rows, moment, t, self.robot, self.config.lead)
        if not aligner.in_world:
            actions = self.robot.act.out_of(aligner.frame(moment, t), actions)
        picked = np.linspace(-1, len(rows) - 1, min(N_POSES, len(rows)) + 1)[1:]
        return np.asarray(actions[picked.round().astype(int)])
