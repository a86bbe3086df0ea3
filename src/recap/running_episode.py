"""The state of an agent in a running episode."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from recap.retrieval.used import UsedMatches
from recap.types import F64, ActionChunk, Conditioning, FrameRef, Observation, Retrieval
from recap_client.gate import Progress

N_WINDOW = 8  # observations kept


@dataclass(frozen=True)
class Plan:
    """The last planned chunk of an episode, with its retrieval and conditioning."""

    retrieval: Retrieval
    conditioning: Conditioning
    chunk: ActionChunk


@dataclass
class RunningEpisode:
    """The state of one running episode."""

    first: Observation
    used: UsedMatches
    progress: Progress
    window: deque[Observation] = field(default_factory=lambda: deque(maxlen=N_WINDOW))
    queue: deque[F64] = field(default_factory=deque)
    chunk: F64 | None = None  # (H, a) in the world frame: the whole last chunk
    retrieval: Retrieval | None = None
    match: FrameRef | None = None  # frame of its best match in the demonstration as recorded
    plan: Plan | None = None
    expected_frame: FrameRef | None = None  # of the demonstration, where the executed part of the chunk ends
    stopped: bool = False

    def drop(self) -> None:
        """Discard the queued actions."""
        self.queue.clear()
        self.progress.send(None)
