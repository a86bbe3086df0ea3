"""Attention during a rollout as one image: the observations, and where the action slot attended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.errors import InputError
from recap.evaluation.agents import Trial, make_agent
from recap.evaluation.spec import EvalSpec
from recap.policies.canonical import canonical_image
from recap.policies.policy import TrainedPolicy
from recap.running_episode import Plan
from recap.types import F32, U8, Observation
from recap_research.analysis.attention import FIRST, Reading, overlay
from recap_research.analysis.traces import TracingAgent, trace_episodes

N_MOMENTS = 6
TILE, CAPTION = 128, 22  # px


@dataclass(frozen=True)
class Moment:
    """The inputs for drawing one look."""

    observation: Observation
    plan: Plan
    reading: Reading


def attention_strip(spec: EvalSpec, trial: Trial, layers: dict[str, int]) -> U8:
    """An image of a rollout: a row of scenes, then a row of attention in the layer of each axis.

    Args:
        layers: `intake` and `commit`, as found by the probe.
    """
    agent = TracingAgent(make_agent(spec), spec, probe=True)
    policy = agent.inner.policy
    assert isinstance(policy, TrainedPolicy)
    if not policy.config.sees:
        raise InputError("the policy is given no pictures to lay attention over: use one with images")
    seen: list[Moment] = []
    agent.keep = lambda observation, plan, reading: seen.append(Moment(observation, plan, reading))
    list(trace_episodes(agent, spec, [trial]))
    picks = np.unique(np.linspace(0, len(seen) - 1, N_MOMENTS).round().astype(int))
    moments = [seen[i] for i in picks]
    camera = policy.config.image.cameras[0]
    rows = [("the scene", [_enlarged(_present(m, policy)) for m in moments])]
    for axis, layer in layers.items():
        tiles = [_laid_over(_present(m, policy), m.reading, f"frame/{camera}", layer) for m in moments]
        rows.append((f"{axis}, layer {layer}: present view", tiles))
    if "intake" in layers and f"{FIRST}/{camera}" in moments[0].reading.slots:
        layer = layers["intake"]
        tiles = [_laid_over(_retrieved(m, policy), m.reading, f"{FIRST}/{camera}", layer) for m in moments]
        rows.append((f"intake, layer {layer}: first retrieved frame", tiles))
    width = len(moments) * TILE
    parts = [
        part for words, tiles in rows for part in (_caption(words, width), np.concatenate(tiles, axis=1))
    ]
    return np.concatenate(parts)


def _present(moment: Moment, policy: TrainedPolicy) -> U8:
    """The camera image as the policy receives it."""
    config = policy.config.image
    image = moment.observation.images[config.cameras[0]]
    return canonical_image(image, moment.plan.conditioning.frame, config, policy.aligned)


def _retrieved(moment: Moment, policy: TrainedPolicy) -> U8 | None:
    latents = moment.plan.conditioning.latents
    return None if latents is None else policy.decode_frames(latents[:1])[0]


def _laid_over(picture: U8 | None, reading: Reading, slot: str, layer: int) -> U8:
    if picture is None:
        return np.full((TILE, TILE, 3), 235, np.uint8)
    attention: F32 = reading.on(slot)[layer].mean(axis=0)
    return overlay(picture, attention, TILE)


def _enlarged(picture: U8) -> U8:
    import cv2

    return np.asarray(cv2.resize(picture, (TILE, TILE), interpolation=cv2.INTER_LINEAR), np.uint8)


def _caption(words: str, width: int) -> U8:
    import cv2

    line = np.full((CAPTION, width, 3), 255, np.uint8)
    cv2.putText(line, words, (6, CAPTION - 7), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (60, 60, 60), 1, cv2.LINE_AA)
    return line
