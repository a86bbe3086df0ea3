"""Predicts chunks from retrieved ones: with a policy's residual, or unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from recap.errors import InputError
from recap.latents import RetrievedLatents
from recap.pool.view import PoolView
from recap.types import ActionChunk, Conditioning, Observation, Retrieval

if TYPE_CHECKING:
    import torch

    from recap.policies.policy import TrainedPolicy


@dataclass(frozen=True)
class Given:
    """The policy's inputs for one episode, and where they come from."""

    seen: Observation
    found: Retrieval
    given: Conditioning
    view: PoolView  # of this retrieval; another slot may already use a newer view
    dice: torch.Generator | None = None


class Predictor:
    """Predicts chunks for several episodes in one batch.

    Args:
        policy: None replays the retrieved chunks.
        residual: False replays the retrieved chunks although there is a policy.
        halflife: match distance at which the residual counts half. The error of a retrieved chunk grows with
            its distance, the policy's error does not. So near matches are corrected less than far ones.
            0: the residual always counts fully.
    """

    def __init__(self, policy: TrainedPolicy | None, residual: bool, halflife: float) -> None:
        if not 0 <= halflife < np.inf:
            raise InputError(f"residual_halflife {halflife} is no distance: give 0 or more")
        self.policy, self.residual, self.halflife = policy, residual, halflife
        self.latents = RetrievedLatents()

    def with_latents(self, ready: Sequence[Given]) -> list[Given]:
        """Add the latents of the retrieved frames, if the policy uses images."""
        if self.policy is None or not self.policy.config.sees or not self.policy.config.retrieval:
            return list(ready)
        shown = self.latents.show(self.policy, [(one.view, one.given) for one in ready])
        return [replace(one, given=given) for one, given in zip(ready, shown, strict=True)]

    def predict(self, ready: Sequence[Given]) -> list[ActionChunk]:
        """One chunk for each item."""
        if not ready:
            return []
        if self.policy is None:
            return [_as_it_is(one.given) for one in ready]
        dice = [one.dice for one in ready if one.dice is not None]
        chunks = self.policy.predict_action_chunk(
            [one.seen for one in ready], [one.given for one in ready], dice
        )
        if not self.residual:
            pairs = zip(chunks, ready, strict=True)
            return [_as_it_is(one.given) if self.acts_out(one.given) else chunk for chunk, one in pairs]
        if self.halflife:
            return [self._weighed(chunk, one.found) for chunk, one in zip(chunks, ready, strict=True)]
        return chunks

    def acts_out(self, given: Conditioning) -> bool:
        """True if the retrieved chunk is executed unchanged."""
        return self.policy is None or not (self.residual or given.is_empty)

    def _weighed(self, chunk: ActionChunk, found: Retrieval) -> ActionChunk:
        """Scale the residual by a weight that grows with the distance of the match."""
        distance = found.matches[0].distance if found.matches else np.inf
        if not np.isfinite(distance):
            return chunk
        assert self.policy is not None
        weight = distance**2 / (distance**2 + self.halflife**2)  # inverse-variance weighting
        base = chunk.actions - chunk.residual
        actions = self.policy.config.robot.act.project(base + weight * chunk.residual, base)
        return replace(
            chunk, actions=actions.astype(np.float32), residual=(actions - base).astype(np.float32)
        )


def _as_it_is(given: Conditioning) -> ActionChunk:
    return ActionChunk(given.actions[0], np.zeros_like(given.actions[0]))
