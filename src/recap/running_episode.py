"""What an agent remembers of an episode while it runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from recap.retrieval.used import UsedMatches
from recap.types import F64, ActionChunk, Conditioning, FrameRef, Observation, Retrieval
from recap_client.gate import Progress

N_WINDOW = 8  # observations kept


@dataclass(frozen=True)
class Plan:
    """What an agent last decided in an episode, and on what grounds."""

    retrieval: Retrieval
    given: Conditioning
    chunk: ActionChunk


@dataclass
class RunningEpisode:
    """What is remembered of one running episode."""

    first: Observation
    used: UsedMatches
    progress: Progress
    window: deque[Observation] = field(default_factory=lambda: deque(maxlen=N_WINDOW))
    queue: deque[F64] = field(default_factory=deque)
    chunk: F64 | None = None  # (H, a) in the world, the whole of what was last planned
    retrieval: Retrieval | None = None
    match: FrameRef | None = None  # of it, in the demonstration as it was recorded
    plan: Plan | None = None
    led_to: FrameRef | None = None  # where in its demonstration the last chunk ends, as far as it is executed
    stopped: bool = False

    def drop(self) -> None:
        """Forget what was to be sent."""
        self.queue.clear()
        self.progress.send(None)
