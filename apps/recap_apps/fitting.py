"""Check that a policy drives PushT, which demo and studio use."""

from __future__ import annotations

from recap.errors import InputError
from recap.robot import RobotSpec, difference
from recap_worlds.pusht.robot import PUSHT


def refuse_other_robot(policy: str, robot: RobotSpec) -> None:
    """Raise an InputError if a policy drives another robot than PushT's pusher."""
    why = difference(PUSHT, robot)
    if why is not None:
        raise InputError(f"policy '{policy}' is not for PushT: {why}; give another --policy")
