"""The two embodiments: a disc (cheap, fills the pool) and a triangle (the robot) that never turns."""

from __future__ import annotations

import numpy as np

from recap.errors import one_of

PUSHERS = ("disc", "triangle")
DISC_RADIUS = 15.0
TRIANGLE = np.array([(-15.0, -15.0), (15.0, -15.0), (0.0, 15.0)])  # (3, 2) about its centre


def pusher_named(name: str) -> str:
    """The name itself if there is such a pusher, or an error that helps."""
    return one_of("pusher", name, PUSHERS)
