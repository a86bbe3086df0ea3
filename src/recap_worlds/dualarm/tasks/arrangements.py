"""Arrangements of objects in which the heading matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from recap_worlds.dualarm.objects import Place
from recap_worlds.dualarm.tasks.task import Area, scattered


def in_mirror(
    areas: Mapping[str, Area], *, apart: float = 0.0
) -> Callable[[np.random.Generator], Mapping[str, Place]]:
    """Draw each object from its area until all are `apart`, and swap left and right half the time.

    Headings are mirrored too, so that an object that points to the middle of the table still does.
    """
    draw = scattered(areas, apart=apart)

    def arrange(rng: np.random.Generator) -> Mapping[str, Place]:
        swapped = rng.random() < 0.5
        places = draw(rng)
        return {k: Place(-p.x, p.y, 180 - p.yaw) for k, p in places.items()} if swapped else places

    return arrange
