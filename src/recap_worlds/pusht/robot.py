"""Robot description of PushT: a point in the plane that pushes a block, seen from above."""

from __future__ import annotations

from recap.body import Feature
from recap.policies.config import ImageConfig
from recap.robot import CameraSpec, ObjectSpec, RobotSpec

BOARD = 512.0  # px
IMAGE_SIZE = 96  # px of a camera image
PUSHT = RobotSpec(
    "pusht",
    control_hz=10.0,
    proprio=(Feature("position", "position", 2, "px", (0.0, BOARD)),),
    max_step={"position": 60.0},
    cameras={"top": CameraSpec((IMAGE_SIZE, IMAGE_SIZE))},
    objects={"block": ObjectSpec("pose2", source="pusht-pixels")},
    goal="pose2",
)
TOP_DOWN = ImageConfig(("top",), camera_size=IMAGE_SIZE, view="top-down", world=BOARD, span=320.0, white=True)
