"""Quality of a hand's tracking, and limits for films that are too poor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F64
from recap_hands.tool import Event, Mask, ToolPath, gaps, palm_length, usable

# A film beyond one of these limits is refused.
MAX_JITTER_MM = 15.0
MAX_ERROR_PX = 15.0  # at 640 px of width
PALM_MM = 55.0, 130.0  # from the wrist to the knuckle of the middle finger, for any person
MAX_PALM_SPREAD = 0.25  # of the palm's length, which should be constant


@dataclass(frozen=True)
class Quality:
    """One hand's entry in `quality.json`."""

    n_frames: int
    coverage: float  # share of frames with the hand, before filling gaps
    gaps_s: tuple[tuple[float, float], ...]  # from, to; without the filled ones
    bridged_frames: int
    jitter_mm: float  # noise of the tool's position per frame
    jitter_deg: float
    error_px: float  # median reprojection error; nan if points were given in metres
    palm_mm: float
    palm_spread: float
    opening_mm: tuple[float, float]  # closed, open
    grasps_s: tuple[float, ...]
    releases_s: tuple[float, ...]
    swaps: int


def measure(
    times: F64,
    points: F64,
    path: ToolPath,
    filled: Mask,
    error_px: F64,
    events: list[Event],
    swaps: int,
) -> Quality:
    """The quality figures of one hand."""
    seen = usable(points) & ~filled
    palm = palm_length(points)[seen]
    end = np.append(times[1:], times[-1])
    known = error_px[np.isfinite(error_px)]  # includes frames that are not seen because the cameras disagreed
    length = float(np.median(palm)) if len(palm) else float("nan")
    return Quality(
        len(times),
        float(seen.mean()),
        tuple((round(float(times[a]), 4), round(float(end[b - 1]), 4)) for a, b in gaps(path.seen)),
        int(filled.sum()),
        1000 * jitter(path.position, path.seen),
        turn_jitter(path.rotation, path.seen),
        float(np.median(known)) if len(known) else float("nan"),
        1000 * length,
        float(palm.std() / length) if len(palm) else float("nan"),
        (1000 * path.range_m[0], 1000 * path.range_m[1]),
        tuple(round(float(times[e.frame]), 4) for e in events if e.kind == "grasp"),
        tuple(round(float(times[e.frame]), 4) for e in events if e.kind == "release"),
        swaps,
    )


def jitter(values: F64, seen: Mask) -> float:
    """Noise per frame in values (t, d), from second differences, which motion hardly affects.

    Independent noise with deviation s in each of d numbers gives s times the square root of d.
    """
    second = values[2:] - 2 * values[1:-1] + values[:-2]
    second = second[seen[2:] & seen[1:-1] & seen[:-2]]
    if not len(second):
        return float("nan")
    deviation = 1.4826 * np.median(np.abs(second), axis=0) / np.sqrt(6)
    return float(np.sqrt((deviation**2).sum()))


def turn_jitter(rotations: F64, seen: Mask) -> float:
    """The same for rotations (t, 3, 3), in degrees."""
    a, b = rotations[:-1], rotations[1:]
    turn = np.einsum("tji,tjk->tik", a, b)
    small = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0]], axis=1) / 2
    small = np.column_stack([small, (turn[:, 1, 0] - turn[:, 0, 1]) / 2])
    steps: NDArray[np.bool_] = seen[1:] & seen[:-1]
    second = np.diff(small, axis=0)[steps[1:] & steps[:-1]]
    if not len(second):
        return float("nan")
    deviation = 1.4826 * np.median(np.abs(second), axis=0) / np.sqrt(6)
    return float(np.degrees(np.sqrt((deviation**2).sum())))


def refuse_poor(found: Mapping[str, Quality], width: int, min_coverage: float, what: str) -> None:
    """Raise an error of one line for the first figure beyond its limit."""
    for side, quality in found.items():
        low, high = PALM_MM
        most_px = MAX_ERROR_PX * width / 640
        hint = "wrong calibration or hand size: calibrate again, or give --hand-size"
        checks = (
            (
                not quality.error_px > most_px,
                f"is {quality.error_px:.1f} px off where it is seen, more than {most_px:.1f}: {hint}",
            ),
            (
                quality.coverage >= min_coverage,
                f"is seen in {quality.coverage:.0%} of the frames, less than "
                f"{min_coverage:.0%}: film it closer, in better light, with no frame without it",
            ),
            (
                not np.isfinite(quality.palm_mm) or low <= quality.palm_mm <= high,
                f"has a palm of {quality.palm_mm:.0f} mm, not {low:.0f} to {high:.0f}: {hint}",
            ),
            (
                not quality.palm_spread > MAX_PALM_SPREAD,
                f"changes its size by {quality.palm_spread:.0%}, more than {MAX_PALM_SPREAD:.0%}: {hint}",
            ),
            (
                not quality.jitter_mm > MAX_JITTER_MM,
                f"trembles by {quality.jitter_mm:.1f} mm a frame, more than "
                f"{MAX_JITTER_MM:.1f}: film it closer, in better light, or with a second camera",
            ),
        )
        for good, words in checks:
            if not good:
                name = "hand" if side == "hand" else f"{side} hand"
                raise InputError(f"{what}: the {name} {words}", code="hands.quality")
