"""Code that both robots share: checks of actions, limited motion, and drawing."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
U8: TypeAlias = NDArray[np.uint8]
Colour: TypeAlias = tuple[int, int, int]  # RGB
Embodiment: TypeAlias = Literal["target", "pool"]
Observation: TypeAlias = dict[str, Any]
Info: TypeAlias = dict[str, Any]

CONTROL_HZ = 20
MAX_STEPS = 120
OPEN, CLOSED = 1.0, 0.0  # a gripper
SHUT = 0.2  # a gripper below this holds or presses
_SHIFT = 4  # OpenCV's points in sixteenths of a pixel


def checked(action: NDArray[Any], low: F32, high: F32) -> F64:
    """An action in double precision, clipped to its bounds; another shape or NaN is refused."""
    values = np.asarray(action, np.float64)
    if values.shape != low.shape or not np.isfinite(values).all():
        raise ValueError(f"an action is {low.shape[0]} finite numbers, not {action!r}")
    return np.clip(values, low, high)


def towards(now: F64, target: F64, most: float) -> F64:
    """Moves straight towards the target by at most `most`."""
    way = target - now
    length = float(np.linalg.norm(way))
    return target.copy() if length <= most else now + way * (most / length)


def closer(now: float, target: float, most: float) -> float:
    """The same for one number."""
    return now + float(np.clip(target - now, -most, most))


def polygon(picture: U8, points: F64, colour: Colour) -> None:
    """A filled convex polygon of (n, 2) columns and rows, to a sixteenth of a pixel."""
    cv2.fillConvexPoly(picture, _fixed(points), colour, cv2.LINE_AA, _SHIFT)


def disc(picture: U8, centre: F64, radius: float, colour: Colour, thickness: int = -1) -> None:
    """A disc, or a ring of some thickness; the radius is in pixels."""
    x, y = _fixed(centre).tolist()
    cv2.circle(picture, (x, y), round(radius * 2**_SHIFT), colour, thickness, cv2.LINE_AA, _SHIFT)


def line(picture: U8, start: F64, end: F64, colour: Colour, thickness: int) -> None:
    """A line between two points in pixels."""
    a, b = _fixed(start).tolist(), _fixed(end).tolist()
    cv2.line(picture, tuple(a), tuple(b), colour, thickness, cv2.LINE_AA, _SHIFT)


def _fixed(points: F64) -> NDArray[np.int32]:
    """Points in OpenCV's fixed-point format; points far outside the image are clipped."""
    fixed: NDArray[np.int32] = np.round(np.clip(points, -500, 500) * 2**_SHIFT).astype(np.int32)
    return fixed
