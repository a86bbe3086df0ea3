"""How to choose: weights, scales and options of the two stages, frozen with a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from recap.errors import InputError, one_of

Alignment: TypeAlias = Literal["off", "object", "goal"]
ALIGNMENTS = ("off", "object", "goal")


@dataclass(frozen=True)
class RetrievalConfig:
    """Costs are sums of weight · |difference / scale|² over terms; a term without a weight is left out."""

    name: str
    scene_weights: Mapping[str, float]  # stage 1, on the first frame
    weights: Mapping[str, float]  # stage 2, at every step
    scales: Mapping[str, float] = field(default_factory=dict)  # term -> 1 when absent
    n_candidates: int | None = None  # trajectories that stage 1 keeps; None keeps all
    same_goal: bool = False  # only trajectories of the goal nearest to the query's: the published oracle
    align: Alignment = "off"
    object_name: str = "block"
    chunk_size: int = 8
    trim: int = 0  # frames dropped from the end of each demonstration
    stall_penalty: float = 0.0  # added to the distance near a match already used
    stall_radius: float = 20.0
    stall_decay: float = 0.97  # a chunk
    max_distance: float = math.inf  # beyond it nothing is retrieved

    def __post_init__(self) -> None:
        one_of("alignment", self.align, ALIGNMENTS)
        if not any(self.weights.values()) or min([*self.weights.values(), *self.scene_weights.values()]) < 0:
            raise InputError(f"retrieval '{self.name}' has no weight, or a negative one: give some above 0")
        if any(not scale > 0 for scale in self.scales.values()):
            raise InputError(f"retrieval '{self.name}' has a scale that is not above 0")
        if self.n_candidates is not None and self.n_candidates < 1:
            raise InputError(
                f"n_candidates {self.n_candidates} keeps nothing: give 1 or more, or none for all"
            )
        if self.chunk_size < 1 or self.trim < 0:
            raise InputError("chunk_size must be 1 or more, and trim 0 or more")
