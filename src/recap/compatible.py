"""Checks before the robot moves that pool and robot fit, and policy and retrieval."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from recap.errors import InputError
from recap.pool.view import PoolView
from recap.robot import RobotSpec, difference

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy
    from recap.retrieval.retriever import Retriever


def refuse_other_robot(robot: RobotSpec, view: PoolView, what: str = "pool") -> None:
    """Refuse demonstrations of another robot; the error names the feature that differs."""
    described = getattr(view, "robot", None)
    first = view.episode(view.episode_ids[0])
    widths = first.actions.shape[1], first.proprio.shape[1]
    if widths != (robot.act.size, robot.body.size):
        raise InputError(
            f"the {what} has {widths[0]}-D actions and {widths[1]}-D proprioception, robot '{robot.name}' "
            f"{robot.act.size}-D and {robot.body.size}-D: it is of another robot",
            code="robot.mismatch",
        )
    why = None if described is None else difference(robot, described)
    if why is not None:
        raise InputError(f"the {what} does not fit robot '{robot.name}': {why}", code="robot.mismatch")


def foreign_joints_warning(robot: RobotSpec, embodiments: Collection[str]) -> str:
    """A warning if joints of different arms are compared, else an empty string."""
    if len(set(embodiments)) < 2 or not any(feature.kind == "joint" for feature in robot.proprio):
        return ""
    names = " and ".join(f"'{name}'" for name in sorted(set(embodiments)))
    return (
        f"Joints of different arms are compared ({names}): the same angles are other poses there. Describe "
        "each in tool space, by recap init with --model FILE --tip NAME."
    )


def check_retriever(policy: TrainedPolicy, retriever: Retriever) -> None:
    """Refuse a retrieval with other features, weights or scales than the policy was trained with."""
    stamp, config = policy.stamp, retriever.config
    if retriever.describer.fingerprint != stamp.describer or config.metric_fingerprint != stamp.config:
        raise InputError(
            f"the policy was trained with retrieval '{stamp.name}' and this is '{config.name}', or its "
            "features or scales have changed: use the retrieval it was trained with",
            code="policy.retrieval",
        )
