"""What is made of retrieved chunks: a policy's residual on them, or the chunks as they are."""

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
    """What the policy is given of one episode, and where it comes from."""

    seen: Observation
    found: Retrieval
    given: Conditioning
    view: PoolView  # that it was found in; another slot may already look into a newer one
    dice: torch.Generator | None = None


class Predictor:
    """Predicts chunks for several episodes by one call.

    Args:
        policy: None acts out what was retrieved.
        residual: False acts out what was retrieved whatever the policy says.
        halflife: distance of a match at which the residual counts half. A policy errs by about as much
            wherever it is, what is retrieved by how far it is: nearer matches are left alone, farther ones
            are corrected. 0: the residual always counts whole.
    """

    def __init__(self, policy: TrainedPolicy | None, residual: bool, halflife: float) -> None:
        if not 0 <= halflife < np.inf:
            raise InputError(f"residual_halflife {halflife} is no distance: give 0 or more")
        self.policy, self.residual, self.halflife = policy, residual, halflife
        self.latents = RetrievedLatents()

    def with_latents(self, ready: Sequence[Given]) -> list[Given]:
        """With the latents of what was retrieved, where the policy looks at it."""
        if self.policy is None or not self.policy.config.sees or not self.policy.config.retrieval:
            return list(ready)
        shown = self.latents.show(self.policy, [(one.view, one.given) for one in ready])
        return [replace(one, given=given) for one, given in zip(ready, shown, strict=True)]

    def predict(self, ready: Sequence[Given]) -> list[ActionChunk]:
        """One chunk each."""
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
        """Whether what was retrieved is acted out as it is."""
        return self.policy is None or not (self.residual or given.is_empty)

    def _weighed(self, chunk: ActionChunk, found: Retrieval) -> ActionChunk:
        """With as much of the residual as the distance of what it corrects is worth."""
        distance = found.matches[0].distance if found.matches else np.inf
        if not np.isfinite(distance):
            return chunk
        assert self.policy is not None
        weight = distance**2 / (distance**2 + self.halflife**2)  # of two estimates, by their variances
        base = chunk.actions - chunk.residual
        actions = self.policy.config.robot.act.project(base + weight * chunk.residual, base)
        return replace(
            chunk, actions=actions.astype(np.float32), residual=(actions - base).astype(np.float32)
        )


def _as_it_is(given: Conditioning) -> ActionChunk:
    return ActionChunk(given.actions[0], np.zeros_like(given.actions[0]))
