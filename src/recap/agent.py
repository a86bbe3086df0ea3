"""The test-time loop: look, retrieve, act out the chunk; the only piece that remembers an episode."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from recap.retrieval.conditioning import build_conditioning, frame_of, out_of
from recap.retrieval.retriever import Retriever, as_episode
from recap.types import F64, FrameRef, Observation, Query, Retrieval

Reaction: TypeAlias = Literal["ignore", "hold", "stop"]
N_WINDOW = 8  # observations kept
FORGET_BELOW = 0.3  # px: a stalled match whose penalty has faded so far is forgotten


@dataclass
class _Episode:
    """What is remembered of one running episode."""

    first: Observation
    window: deque[Observation] = field(default_factory=lambda: deque(maxlen=N_WINDOW))
    queue: deque[F64] = field(default_factory=deque)
    retrieval: Retrieval | None = None
    stalled: dict[FrameRef, float] = field(default_factory=dict)
    stopped: bool = False


class ReplayAgent:
    """Acts out the nearest chunk of the pool, moved into the frame of now: retrieval without a policy.

    Args:
        retriever: finds the chunk.
        n_action_steps: how much of a chunk is executed before the next look.
        symmetry: of the block that is pushed.
        min_confidence: below it the `reaction` is taken.
        reaction: act all the same (ignore), stay until it is sure again (hold), or for good (stop).
        limits: between which every number of an action is kept.
    """

    image_size: int | None = None

    def __init__(
        self,
        retriever: Retriever,
        n_action_steps: int = 8,
        symmetry: int = 1,
        reaction: Reaction = "ignore",
        min_confidence: float = 0.0,
        limits: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self.retriever = retriever
        self.n_action_steps = n_action_steps
        self.symmetry = symmetry
        self.reaction = reaction
        self.min_confidence = min_confidence
        self.limits = limits
        self._episodes: dict[int, _Episode | None] = {}

    def reset(self, slot: int, trial: object) -> None:
        """A new episode begins in that slot."""
        self._episodes[slot] = None

    def retrieval(self, slot: int) -> Retrieval | None:
        """The last one of that slot's episode."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.retrieval

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """One action a slot: (n, a)."""
        return np.array([self._act(s, o) for s, o in zip(slots, observations, strict=True)], np.float64)

    def _act(self, slot: int, observation: Observation) -> F64:
        episode = self._episodes.get(slot)
        lost = self.retriever.config.object_name not in observation.objects or observation.goal is None
        if episode is None and not lost:
            episode = self._episodes[slot] = _Episode(first=observation)
        if episode is not None and not lost:
            episode.window.append(observation)
            if episode.retrieval is not None and self.retriever.is_stale(episode.retrieval):
                episode.queue.clear()  # the pool has changed: what came in may fit better
            if not episode.queue and not episode.stopped:
                self._plan(episode)
        if episode is None or not episode.queue:  # nothing seen, nothing retrieved, or too unsure: stay
            return np.asarray(observation.proprio, np.float64)
        return episode.queue.popleft()

    def _plan(self, episode: _Episode) -> None:
        """Retrieve, and queue the chunk's actions in the world."""
        config = self.retriever.config
        now = episode.window[-1]
        query = Query(
            tuple(episode.window), episode.first, self.symmetry, avoid=tuple(episode.stalled.items())
        )
        found = episode.retrieval = self.retriever.retrieve(query, episode.retrieval)
        # Written so that nan, a pool too small to tell, is unsure.
        doubtful = self.min_confidence > 0 and not found.confidence >= self.min_confidence
        unsure = doubtful or not found.matches
        episode.stopped = unsure and self.reaction == "stop"
        if not found.matches or (unsure and self.reaction != "ignore"):
            return
        match = found.matches[0]
        frame = frame_of(as_episode([now], self.symmetry, match.look_alike), 0, config)
        widths = (len(now.proprio), len(now.proprio))  # an action is a pose to go to
        chunk = build_conditioning(self.retriever.view_of(found), [match.ref], frame, config, widths)
        actions = out_of(frame, chunk.actions[0].astype(np.float64))
        n = min(self.n_action_steps, int(chunk.valid[0].sum()))
        episode.queue.extend(np.clip(actions[:n], *self.limits))
        self._remember(episode, match.ref)

    def _remember(self, episode: _Episode, ref: FrameRef) -> None:
        config = self.retriever.config
        if not config.stall_penalty:
            return
        faded = {r: p * config.stall_decay for r, p in episode.stalled.items()}
        episode.stalled = {r: p for r, p in faded.items() if p > FORGET_BELOW}
        episode.stalled[ref] = episode.stalled.get(ref, 0.0) + config.stall_penalty
