"""Penalties for matches that an episode has already used; they fade over time."""

from __future__ import annotations

from dataclasses import dataclass, field

from recap.retrieval.config import RetrievalConfig
from recap.types import FrameRef

FORGET_BELOW = 0.05  # share of a penalty below which it is dropped


@dataclass
class UsedMatches:
    """Penalties by match; each fades when another match is charged."""

    config: RetrievalConfig
    penalties: dict[FrameRef, float] = field(default_factory=dict)
    last: FrameRef | None = None  # the last one charged

    def charge(self, ref: FrameRef) -> None:
        """Charge a match that is now executed."""
        config = self.config
        if not config.stall_penalty:
            return
        faded = {r: p * config.stall_decay for r, p in self.penalties.items()}
        self.penalties = {r: p for r, p in faded.items() if p > FORGET_BELOW * config.stall_penalty}
        self.penalties[ref] = self.penalties.get(ref, 0.0) + config.stall_penalty
        self.last = ref

    def take_back(self, share: float) -> None:
        """Undo this share of the last charge and its fading: that part of the chunk was not executed."""
        if share <= 0 or self.last is None:
            return
        config, last = self.config, self.last
        slower = config.stall_decay**-share
        kept = {r: p * slower for r, p in self.penalties.items() if r != last}
        rest = self.penalties.get(last, 0.0) - share * config.stall_penalty
        self.penalties = {**kept, last: rest} if rest > FORGET_BELOW * config.stall_penalty else kept
        self.last = None
