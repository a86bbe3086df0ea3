"""What an episode has acted on already: matches that cost more the next time, until that is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from recap.retrieval.config import RetrievalConfig
from recap.types import FrameRef

FORGET_BELOW = 0.05  # of a penalty: what has faded so far is forgotten


@dataclass
class UsedMatches:
    """Penalties by match; each fades as others are charged."""

    config: RetrievalConfig
    penalties: dict[FrameRef, float] = field(default_factory=dict)
    last: FrameRef | None = None  # the one that was charged last

    def charge(self, ref: FrameRef) -> None:
        """It is acted on now."""
        config = self.config
        if not config.stall_penalty:
            return
        faded = {r: p * config.stall_decay for r, p in self.penalties.items()}
        self.penalties = {r: p for r, p in faded.items() if p > FORGET_BELOW * config.stall_penalty}
        self.penalties[ref] = self.penalties.get(ref, 0.0) + config.stall_penalty
        self.last = ref

    def take_back(self, share: float) -> None:
        """That share of the last chunk was not carried out: neither is its penalty, nor its fading."""
        if share <= 0 or self.last is None:
            return
        config, last = self.config, self.last
        slower = config.stall_decay**-share
        kept = {r: p * slower for r, p in self.penalties.items() if r != last}
        rest = self.penalties.get(last, 0.0) - share * config.stall_penalty
        self.penalties = {**kept, last: rest} if rest > FORGET_BELOW * config.stall_penalty else kept
        self.last = None
