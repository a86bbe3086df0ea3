"""Fits poses to an image by Levenberg-Marquardt from several starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from recap.types import F64
from recap_worlds.pusht.vision_planes import Normal

MAX_STEPS = 12
SETTLED = 0.003  # px and rad; the step below which the descent ends, after taking it


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a descent."""

    at: F64
    total: float  # sum of squares
    errors: F64  # root mean square of each fitted object


def descend(normal: Callable[[F64], Normal], start: F64, stiffness: F64) -> Fit:
    """Levenberg-Marquardt; `stiffness` pulls values that the image does not determine to their start."""

    def measured(at: F64) -> Normal:
        total, jj, jr, near = normal(at)
        off = at - start
        return total + float(stiffness @ off**2), jj + np.diag(stiffness), jr - stiffness * off, near

    at, damping = start, 1e-3
    total, jj, jr, near = measured(at)
    for _ in range(MAX_STEPS):
        step = np.linalg.solve(jj + damping * np.diag(np.diag(jj)), jr)
        other = measured(at + step)
        if other[0] < total:
            at, damping = at + step, damping * 0.2
            total, jj, jr, near = other
        else:
            damping *= 8
        if np.abs(step).max() < SETTLED:
            break
    return Fit(at, total, np.sqrt(near))


def _narrow(
    normal: Callable[[float, F64], Normal], start: F64, stiffness: F64, blurs: Sequence[float]
) -> Fit:
    found = descend(partial(normal, blurs[0]), start, stiffness)
    for blur in blurs[1:]:
        found = descend(partial(normal, blur), found.at, stiffness)
    return found


def fit(
    normal: Callable[[float, F64], Normal],
    starts: Sequence[F64],
    stiffness: F64,
    good: float,
    blurs: Sequence[float],
) -> Fit:
    """The first good descent, or the best; edges are blurred by each width in turn, wide ones first."""
    best = _narrow(normal, starts[0], stiffness, blurs)
    for start in starts[1:]:
        if best.errors[0] < good:
            break
        best = min(best, _narrow(normal, start, stiffness, blurs), key=lambda f: f.total)
    return best
