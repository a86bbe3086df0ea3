"""Shapes of blocks and pushers, about their origins and in px. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Bars: TypeAlias = tuple[tuple[float, float, float, float], ...]  # x0, y0, x1, y1 of each
Corners: TypeAlias = tuple[tuple[float, float], ...]

# Bars joined without overlap. All have the area of the benchmark's T, so that coverage is comparable.
BLOCK_BARS: Mapping[str, Bars] = {
    "tee": ((-60, 0, 60, 30), (-15, 30, 15, 120)),
    "ell": ((-60, 0, 60, 30), (-60, 30, -30, 120)),
    "zed": ((-60, -60, 15, -30), (-15, -30, 15, 30), (-15, 30, 60, 60)),
    "plus": ((-60, -15, 60, 15), (-15, 15, 15, 60), (-15, -60, 15, -15)),
    "cup": ((-60, 0, 60, 30), (-60, 30, -30, 75), (30, 30, 60, 75)),
}
BLOCK_SYMMETRY: Mapping[str, int] = {"zed": 2, "plus": 4}  # number of equivalent rotations; 1 if not listed
LOPSIDED = frozenset({"ell", "zed"})  # the mirror image is a different shape

DISC_RADIUS = 15.0
TRIANGLE_CORNERS: Corners = ((-15.0, -15.0), (15.0, -15.0), (0.0, 15.0))  # it never rotates
