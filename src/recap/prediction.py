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
class PolicyInput:
    """The policy's inputs for one episode, and where they come from."""

    observation: Observation
    retrieval: Retrieval
    conditioning: Conditioning
    view: PoolView  # of this retrieval; another slot may already use a newer view
    generator: torch.Generator | None = None


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

    def with_latents(self, inputs: Sequence[PolicyInput]) -> list[PolicyInput]:
        """Add the latents of the retrieved frames, if the policy uses images."""
        if self.policy is None or not self.policy.config.sees or not self.policy.config.retrieval:
            return list(inputs)
        conditionings = self.latents.add(self.policy, [(one.view, one.conditioning) for one in inputs])
        return [replace(one, conditioning=c) for one, c in zip(inputs, conditionings, strict=True)]

    def predict(self, inputs: Sequence[PolicyInput]) -> list[ActionChunk]:
        """One chunk for each item."""
        if not inputs:
            return []
        if self.policy is None:
            return [_unchanged(one.conditioning) for one in inputs]
        generators = [one.generator for one in inputs if one.generator is not None]
        chunks = self.policy.predict_action_chunk(
            [one.observation for one in inputs], [one.conditioning for one in inputs], generators
        )
        if not self.residual:
            pairs = zip(chunks, [one.conditioning for one in inputs], strict=True)
            return [_unchanged(c) if self.replays(c) else chunk for chunk, c in pairs]
        if self.halflife:
            return [self._weighted(chunk, one.retrieval) for chunk, one in zip(chunks, inputs, strict=True)]
        return chunks

    def replays(self, conditioning: Conditioning) -> bool:
        """True if the retrieved chunk is executed unchanged."""
        return self.policy is None or not (self.residual or conditioning.is_empty)

    def _weighted(self, chunk: ActionChunk, retrieval: Retrieval) -> ActionChunk:
        """Scale the residual by a weight that grows with the distance of the match."""
        distance = retrieval.matches[0].distance if retrieval.matches else np.inf
        if not np.isfinite(distance):
            return chunk
        assert self.policy is not None
        weight = distance**2 / (distance**2 + self.halflife**2)  # inverse-variance weighting
        base = chunk.actions - chunk.residual
        actions = self.policy.config.robot.act.project(base + weight * chunk.residual, base)
        return replace(
            chunk, actions=actions.astype(np.float32), residual=(actions - base).astype(np.float32)
        )


def _unchanged(conditioning: Conditioning) -> ActionChunk:
    return ActionChunk(conditioning.actions[0], np.zeros_like(conditioning.actions[0]))
