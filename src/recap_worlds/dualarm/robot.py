"""Robot description of two arms: each has a tool pose and a gripper."""

from __future__ import annotations

from recap.body import arm_features
from recap.robot import CameraSpec, ObjectSpec, RobotSpec

CAMERAS = ("head", "left_wrist", "right_wrist")
TWO_ARMS = RobotSpec(
    "dualarm",
    control_hz=20.0,
    proprio=(*arm_features("left"), *arm_features("right")),
    cameras={camera: CameraSpec() for camera in CAMERAS},
    objects={"*": ObjectSpec("pose3")},  # every task has its own objects
)
