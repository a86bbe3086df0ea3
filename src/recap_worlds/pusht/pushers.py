"""The two embodiments: a disc (cheap, fills the pool) and a triangle (the robot), which never rotates."""

from __future__ import annotations

import numpy as np

from recap.errors import one_of
from recap_worlds.pusht.shapes import TRIANGLE_CORNERS

PUSHERS = ("disc", "triangle")
TRIANGLE = np.array(TRIANGLE_CORNERS)  # (3, 2) about its centre


def pusher_named(name: str) -> str:
    """The name, if there is such a pusher; otherwise raises an InputError."""
    return one_of("pusher", name, PUSHERS)
