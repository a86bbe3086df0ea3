"""Starts next to the goal, for demonstrations of the last corrections."""

from __future__ import annotations

import math

import numpy as np

from recap.geometry import transform_points
from recap.types import F64
from recap_worlds.pusht.env import PushTEnv

CLEARANCE = 30.0  # px from the pusher's centre to the block's corners and edges


def start_near_goal(env: PushTEnv, reach: float) -> F64:
    """Pusher x y, block x y angle: (5,), the block's mass within `reach` px and degrees of its goal.

    Drawn from the environment's generator. The task is not solved yet, and the pusher is clear of the block.
    """
    draw, goal = env.np_random, env.goal_pose
    arm = np.asarray(env.shape.center_of_gravity, np.float64)
    while True:
        turn = goal[2] + math.radians(draw.uniform(-reach, reach))
        shift = reach * math.sqrt(draw.uniform()) * _direction(draw.uniform(0, 2 * math.pi))
        mass = transform_points(goal, arm[None])[0] + shift
        pose = np.array([*(mass - transform_points(np.array([0.0, 0.0, turn]), arm[None])[0]), turn])
        pusher = draw.uniform(50, 450, 2)
        corners = transform_points(pose, env.shape.parts)
        if env.coverage_at(pose) > env.success_threshold or not ((corners > 7) & (corners < 504)).all():
            continue
        if _distance(pusher, corners) > CLEARANCE:
            return np.array([*pusher, *pose])


def _direction(angle: float) -> F64:
    return np.array([math.cos(angle), math.sin(angle)])


def _distance(point: F64, parts: F64) -> float:
    """Distance from a point to the nearest of convex polygons (p, n, 2); 0 inside."""
    import shapely

    return min(float(shapely.Polygon(part).distance(shapely.Point(point))) for part in parts)
