"""How fast to learn, and when."""

from __future__ import annotations

import math


def cosine(peak: float, iteration: int, n_iterations: int, warm_up: int) -> float:
    """Up to `peak` in a line, then down to zero along half a cosine."""
    if iteration < warm_up:
        return peak * (iteration + 1) / warm_up
    share = (iteration - warm_up) / max(1, n_iterations - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
