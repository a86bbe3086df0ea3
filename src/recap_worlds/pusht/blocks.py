"""Blocks that can be pushed: bars joined without overlap, with the mass rules of stock PushT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recap.errors import one_of
from recap.types import F64
from recap_worlds.pusht.shapes import BLOCK_BARS, BLOCK_SYMMETRY, Bars

MASS, INERTIA = 1.0, 3000.0  # stock's values for the T, used for every block because they have equal areas


@dataclass(frozen=True)
class Block:
    """A rigid shape built of bars; rotations by 360°/symmetry about its origin are equivalent."""

    name: str
    bars: Bars
    symmetry: int = 1

    @cached_property
    def parts(self) -> F64:
        """Corners of each bar, counter-clockwise in the block's frame: (n, 4, 2)."""
        return np.array([[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for x0, y0, x1, y1 in self.bars])

    @cached_property
    def center_of_gravity(self) -> tuple[float, float]:
        """Stock's rule: the mean of the bars' centres, regardless of their areas."""
        x, y = self.parts.mean(axis=(0, 1))
        return float(x), float(y)

    @cached_property
    def area(self) -> float:
        return sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in self.bars)

    @cached_property
    def outline(self) -> F64:
        """Corners of the joined shape, counter-clockwise in the block's frame: (m, 2)."""
        import shapely

        union = shapely.normalize(shapely.unary_union([shapely.box(*bar) for bar in self.bars]))
        corners = np.array(shapely.simplify(union, 0).exterior.coords)[:-1]
        return np.ascontiguousarray(corners if shapely.is_ccw(union.exterior) else corners[::-1])

    @property
    def angle_period(self) -> float:
        """The rotation after which the block looks the same, in radians."""
        return 2 * math.pi / self.symmetry


BLOCKS: dict[str, Block] = {
    name: Block(name, bars, BLOCK_SYMMETRY.get(name, 1)) for name, bars in BLOCK_BARS.items()
}


def block_named(name: str) -> Block:
    """The block with that name; raises an InputError that lists the known ones."""
    return BLOCKS[one_of("block", name, BLOCKS)]
