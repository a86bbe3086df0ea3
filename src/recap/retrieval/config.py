"""How to choose: weights, scales and options of the two stages, frozen with a checkpoint."""

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
    """Costs are sums of weight · |difference / scale|² over terms; a term without a weight is left out."""

    name: str
    scene_weights: Mapping[str, float]  # stage 1, on the first frame; `path`: see `recap.retrieval.paths`
    weights: Mapping[str, float]  # stage 2, at every step
    scales: Mapping[str, float] = field(default_factory=dict)  # term -> 1 when absent
    auto_scale: bool = False  # terms without a scale are divided by their spread in the training pool
    n_candidates: int | None = None  # trajectories that stage 1 keeps; None keeps all
    same_goal: bool = False  # only trajectories of the goal nearest to the query's: the published oracle
    aligner: Aligner = field(default_factory=World)
    chunk_size: int = 8
    trim: int = 0  # frames dropped from the end of each demonstration
    stall_penalty: float = 0.0  # added to the distance near a match already used
    stall_radius: float = 20.0
    stall_decay: float = 0.97  # a chunk
    follow_bonus: float = 0.0  # how much nearer the moment counts to which the last chunk led
    follow_fade: float = 0.0  # and how much less of it for each frame before or after
    reach: float = 0.0  # added to the cost of a moment from which the robot can reach nothing of the chunk
    reach_ahead: int = 0  # frames of a demonstration that count for it; 0: the chunk
    max_distance: float = math.inf  # beyond it nothing is retrieved
    lead: int = 0  # frames by which actions run ahead of the tool, where chunks are cut short
    n_action_steps: int | None = None  # of a replayed chunk before the next look; none: the whole chunk
    subtrajectories: Subtrajectories | None = None  # how demonstrations are cut, where that is asked for

    @property
    def fingerprint(self) -> str:
        """Of every setting, scales included: what a checkpoint remembers of how it was trained to choose."""
        text = json.dumps([self.aligner.name, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def metric_fingerprint(self) -> str:
        """Of what decides which moment is near and how it is carried over, not of how the search narrows."""
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
    """The config for looks after so few actions.

    Of a chunk that is replaced at once only its first actions count, so an offset of the tool must fade in
    these. Whatever is counted by the look is scaled to what it is for the config's own interval.
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
    """The config with each weighed term's scale set to its spread in these descriptors.

    Taken once, from the training pool, and kept with the checkpoint: appending never shifts the metric.
    """
    scales = dict(config.scales)
    for name in (name for name in {**config.weights, **config.scene_weights} if name != PATH):
        rows = descriptors.terms[name].astype(np.float64)
        spread = float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())) if len(rows) else 0.0
        if name not in config.scales and spread > 0:  # a term that never varies cannot be scaled by it
            scales[name] = spread
    return replace(config, scales=scales)
