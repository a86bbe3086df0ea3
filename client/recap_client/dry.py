"""A robot that is observed but not moved: what would be sent is shown instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recap_client.limits import F64
from recap_client.messages import as_message, position_in
from recap_client.robot_loop import Robot


class DryRobot:
    """Prints a table a control period: each number of an action, where it is now, and what would be sent.

    Args:
        robot: asked what it observes; its `act` is never called.
        said: the server's metadata.
    """

    def __init__(self, robot: Robot, said: Mapping[str, Any]) -> None:
        self.robot, self._said, self._n = robot, said, 0
        self._shown: F64 | None = None
        self.options = getattr(robot, "options", None)
        self._names = [
            (f"{f['name']}[{i}]" if f["size"] > 1 else str(f["name"]), str(f.get("unit", "")))
            for f in said.get("robot", {}).get("action", ())
            for i in range(int(f["size"]))
        ] or [(str(i), "") for i in range(int(said["action_dim"]))]

    def observe(self) -> Any:
        """What the robot observes."""
        return self.robot.observe()

    def act(self, action: F64) -> None:
        """Show it."""
        self._n += 1
        if self._shown is not None and np.array_equal(action, self._shown):
            print(f"Step {self._n}: the same again")
            return
        self._shown = action
        seen = self.robot.observe()
        message = seen if isinstance(seen, Mapping) else as_message(seen)
        here = position_in(message, self._said)
        relative = self._said.get("action_mode") == "delta"
        rows = [("number", "unit", "now", "change" if relative else "target", "" if relative else "change")]
        for (name, unit), now, target in zip(self._names, here, action, strict=True):
            change = "" if relative else f"{target - now:+.4f}"
            rows.append((name, unit, "" if relative else f"{now:.4f}", f"{target:.4f}", change))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        print(f"Step {self._n}: would be sent, nothing is")
        for row in rows:
            left = f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}"
            print(f"{left}  {'  '.join(f'{row[i]:>{widths[i]}}' for i in (2, 3, 4))}".rstrip())

    def close(self) -> None:
        """Put the robot away."""
        close = getattr(self.robot, "close", None)
        if callable(close):
            close()
