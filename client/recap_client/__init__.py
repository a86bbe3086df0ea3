"""The client side of openpi's protocol; needs only numpy, msgpack and websockets.

with PolicyClient("ws://127.0.0.1:8000") as client:
    RobotLoop(my_robot, client).run()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recap_client.client import PolicyClient as PolicyClient
    from recap_client.robot_loop import LoopReport as LoopReport
    from recap_client.robot_loop import LoopSpec as LoopSpec
    from recap_client.robot_loop import Robot as Robot
    from recap_client.robot_loop import RobotLoop as RobotLoop

_PLACES = {
    "PolicyClient": "recap_client.client",
    "LoopReport": "recap_client.robot_loop",
    "LoopSpec": "recap_client.robot_loop",
    "Robot": "recap_client.robot_loop",
    "RobotLoop": "recap_client.robot_loop",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'recap_client' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)
