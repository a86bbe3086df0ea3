"""Pictures varied: shifted and in other colours, as another camera or another light would show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recap.types import U8


@dataclass(frozen=True)
class Variants:
    """Some varied copies of each picture; in one copy all pictures of a demonstration are varied alike.

    What is now and what is to come must go together, and copies can be encoded once and kept.
    """

    n_copies: int
    shift: float  # share of a side, the most
    colour: float  # share by which brightness, contrast and saturation change, the most
    owners: NDArray[np.int64]  # (m,) which demonstration each picture is of

    def __call__(self, pictures: U8, rows: slice, copy: int) -> U8:
        """One copy of these pictures."""
        shown = np.array(pictures[rows])
        owners = self.owners[rows]
        for owner in np.unique(owners):
            mine = owners == owner
            shown[mine] = self._varied(shown[mine], np.random.default_rng((int(owner), copy)))
        return shown

    def _varied(self, pictures: U8, dice: np.random.Generator) -> U8:
        size = pictures.shape[1]
        most = round(self.shift * size)
        down, right = dice.integers(-most, most + 1, size=2)
        brightness, contrast, saturation = 1 + self.colour * dice.uniform(-1, 1, size=3)
        ahead = np.arange(size)
        # What is beyond the edge is the edge again: there is nothing else to show.
        moved = pictures[:, np.clip(ahead + down, 0, size - 1)][:, :, np.clip(ahead + right, 0, size - 1)]
        values = moved.astype(np.float32) * brightness
        values = (values - 127.5) * contrast + 127.5
        grey = values.mean(axis=-1, keepdims=True)
        out: U8 = np.clip(grey + (values - grey) * saturation, 0, 255).round().astype(np.uint8)
        return out
