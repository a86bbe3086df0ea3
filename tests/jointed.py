"""The arm of examples/one_arm in joint space, without images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recap.body import Feature
from recap.robot import Kinematics, RobotSpec
from recap.robot_model import load_model
from recap.types import Episode
from recap_worlds.dualarm.robots import SIDES, Robot, arm_xml, assets_xml

EXAMPLES = Path(__file__).parents[1] / "examples" / "one_arm"
TOOL = (
    Feature("tool.position", "position", 3),
    Feature("tool.rotation", "rotation6d"),
    Feature("gripper", "gripper"),
)
HOME = np.array([0.1, 0.3, 1.6, 0.0, 1.2, 0.0])


def arm(name: str = "arm", **changes: Any) -> RobotSpec:
    """The robot description of an example arm in tool space."""
    k: dict[str, Any] = {"model": load_model(EXAMPLES / f"{name}.urdf").text, "tip": "tool"}
    return RobotSpec(
        name, 30.0, TOOL, max_step={"tool.position": 0.05}, kinematics=Kinematics(**(k | changes))
    )


def pair_of_arms(robot: Robot) -> str:
    """The MJCF of two arms with meshes."""
    arms = "".join(arm_xml(robot, side) for side in SIDES)
    return (
        f'<mujoco><compiler angle="radian" autolimits="true"/><asset>{assets_xml(robot)}</asset>'
        f"<worldbody>{arms}</worldbody></mujoco>"
    )


def walk(seed: int, n: int = 40, embodiment: str = "arm") -> Episode:
    """A demonstration in joint space: six joints and a gripper."""
    rng = np.random.default_rng(seed)
    smooth = np.cumsum(np.cumsum(rng.normal(0, 0.001, (n, 6)), axis=0), axis=0)
    start = HOME + rng.uniform(-0.2, 0.2, 6)
    states = np.column_stack([start + smooth, rng.uniform(0, 1, n)]).astype(np.float32)
    return Episode(
        id=f"walk/{embodiment}/{seed}",
        scene_id=f"walk/{seed}",
        task="walk about",
        embodiment=embodiment,
        fps=30.0,
        timestamps=np.arange(n) / 30,
        proprio=states,
        actions=np.concatenate([states[1:], states[-1:]]),
    )
