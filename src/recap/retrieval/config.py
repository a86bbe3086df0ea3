"""Settings of retrieval: weights, scales and options of both stages. A checkpoint stores them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from recap.errors import InputError
from recap.retrieval.aligners import Aligner, World
from recap.retrieval.paths import PATH
from recap.retrieval.subtrajectories import Subtrajectories
from recap.types import Descriptors


@dataclass(frozen=True)
class RetrievalConfig:
    """Costs are sums of weight · |difference / scale|² over terms; a term without a weight is ignored."""

    name: str
    scene_weights: Mapping[str, float]  # stage 1, on the first frame; for `path` see `recap.retrieval.paths`
    weights: Mapping[str, float]  # stage 2, at every step
    scales: Mapping[str, float] = field(default_factory=dict)  # by term; 1 if absent
    auto_scale: bool = False  # divide terms without a scale by their spread in the training pool
    n_candidates: int | None = None  # demonstrations that stage 1 keeps; None keeps all
    same_goal: bool = False  # use only demonstrations of the goal nearest to the query's (the paper's oracle)
    aligner: Aligner = field(default_factory=World)
    chunk_size: int = 8
    trim: int = 0  # frames dropped from the end of each demonstration
    stall_penalty: float = 0.0  # added to the distance near a match already used
    stall_radius: float = 20.0
    stall_decay: float = 0.97  # factor on all penalties per chunk
    follow_bonus: float = 0.0  # subtracted from the distance of the moment that the last chunk led to
    follow_fade: float = 0.0  # decrease of the bonus per frame before or after that moment
    reach: float = 0.0  # added to the cost of a moment if the robot can reach no action of the chunk
    reach_ahead: int = 0  # frames of a demonstration that are checked; 0: the chunk
    max_distance: float = math.inf  # a match farther away is not returned
    lead: int = 0  # frames that actions are ahead of the tool, if only the start of a chunk is executed
    n_action_steps: int | None = None  # of a replayed chunk before the next look; None: the whole chunk
    subtrajectories: Subtrajectories | None = None  # how demonstrations are cut, if sub-trajectories are used

    @property
    def fingerprint(self) -> str:
        """Hash of all settings including scales. A checkpoint stores it."""
        text = json.dumps([self.aligner.name, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def metric_fingerprint(self) -> str:
        """Hash of the settings that define distances and alignment, without those that narrow the search."""
        parts: list[Any] = [dict(self.weights), dict(self.scales), self.chunk_size]
        parts += [self.aligner.name, asdict(self.aligner)]  # type: ignore[call-overload]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def __post_init__(self) -> None:
        if not any(self.weights.values()) or min([*self.weights.values(), *self.scene_weights.values()]) < 0:
            raise InputError(f"retrieval '{self.name}' has no weight, or a negative one: give some above 0")
        if any(not scale > 0 for scale in self.scales.values()):
            raise InputError(f"retrieval '{self.name}' has a scale that is not above 0")
        if self.n_candidates is not None and self.n_candidates < 1:
            raise InputError(f"n_candidates {self.n_candidates} keeps nothing: give 1 or more, or none")
        if not 0 <= self.reach < math.inf or self.reach_ahead < 0:
            raise InputError(f"reach {self.reach} or reach_ahead {self.reach_ahead} is below 0: give more")
        if self.chunk_size < 1 or self.trim < 0:
            raise InputError("chunk_size must be 1 or more, and trim 0 or more")


def scale_for_replan_interval(config: RetrievalConfig, n_action_steps: int | None) -> RetrievalConfig:
    """The config for a shorter replanning interval.

    If only the first actions of a chunk are executed, the tool's offset must fade within these. Settings that
    count per look are scaled in proportion to the interval.
    """
    usual = config.n_action_steps or config.chunk_size
    share = (n_action_steps or usual) / usual
    if not config.aligner.servo_lag or share >= 1:
        return config
    return replace(
        config,
        lead=config.aligner.servo_lag,
        stall_penalty=config.stall_penalty * share,
        stall_decay=config.stall_decay**share,
        follow_fade=config.follow_fade / share,
    )


def with_scales(config: RetrievalConfig, descriptors: Descriptors) -> RetrievalConfig:
    """The config with the scale of each weighted term set to its spread in these descriptors.

    Fitted once on the training pool and stored in the checkpoint: later additions do not change the metric.
    """
    scales = dict(config.scales)
    for name in (name for name in {**config.weights, **config.scene_weights} if name != PATH):
        rows = descriptors.terms[name].astype(np.float64)
        spread = float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())) if len(rows) else 0.0
        if name not in config.scales and spread > 0:  # a constant term has no spread to scale by
            scales[name] = spread
    return replace(config, scales=scales)
