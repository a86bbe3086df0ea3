"""How fast to learn, and when."""

from __future__ import annotations

import math

from recap.training.config import TrainConfig


def cosine(peak: float, iteration: int, n_iterations: int, warm_up: int) -> float:
    """Up to `peak` in a line, then down to zero along half a cosine."""
    if iteration < warm_up:
        return peak * (iteration + 1) / warm_up
    share = (iteration - warm_up) / max(1, n_iterations - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def learning_rate(config: TrainConfig, iteration: int) -> float:
    """At an iteration."""
    if not config.decay:
        return config.learning_rate * min(1.0, (iteration + 1) / max(1, config.warm_up))
    return cosine(config.learning_rate, iteration, config.n_iterations, config.warm_up)
