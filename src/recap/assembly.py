"""How an agent that retrieves is put together: a policy or none, a pool, and a way to choose from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recap.errors import InputError
from recap.policies.config import SHIPPED
from recap.types import Bodies

if TYPE_CHECKING:
    from recap.agent import Matching, Reaction, RetrievalAgent
    from recap.policies.config import PolicyConfig
    from recap.policies.policy import TrainedPolicy
    from recap.pool.view import PoolSource

REPLAY = "replay"


@dataclass(frozen=True)
class AgentSpec:
    """An agent that retrieves; None is as the agent, the mode or the environment has it."""

    name: str  # `replay`, or a policy by shipped name or path
    settings_of: str | None = None  # the policy whose chunk, look interval and sub-trajectories replay takes
    env: str = "pusht"
    mode: str = "aligned"  # how it chooses: oracle, single, aligned, contact or published
    block: str = "tee"
    pusher: str = ""  # the robot's, by whose shape mode contact hands over
    n_candidates: int | None = None
    n_action_steps: int | None = None
    reaction: Reaction = "hold"
    min_confidence: float = 0.0
    matching: Matching = "retrieved"
    hindsight: bool | None = None
    residual: bool = True
    half_at: float = 0.0  # distance of a match at which the residual counts half
    denoising_steps: int | None = None
    temperature: float | None = None
    sampler: str | None = None
    device: str = "cpu"
    mask: str | None = None  # attention that is blocked: see `recap.policies.attention.Mask`
    noise_seed: int = 0  # another gives other noise on the same trials


def names_checkpoint(name: str) -> bool:
    """Whether that is a policy's name; by its files, for whether it can be used is seen with torch."""
    if ":" in name or name == REPLAY:
        return False
    return name in SHIPPED or "/" in name or (Path(name) / "config.json").is_file()


def usual_mode(agent: str) -> str:
    """How an agent retrieves unless told otherwise: a policy as it was trained."""
    if not names_checkpoint(agent):
        return "aligned"
    from recap.policies.checkpoint import read_config

    return read_config(agent).mode


def usual_robot(agent: str) -> str | None:
    """The embodiment that a policy drives; None where it does not say."""
    if not names_checkpoint(agent):
        return None
    from recap.policies.checkpoint import read_config

    return read_config(agent).robot or None


def load_policy(spec: AgentSpec) -> TrainedPolicy | None:
    """The policy as the spec wants it sampled; None to replay."""
    if spec.name == REPLAY:
        return None
    from recap.policies.checkpoint import from_pretrained

    policy = from_pretrained(spec.name, spec.device)
    if policy.config.domain != spec.env:
        raise InputError(
            f"policy '{spec.name}' acts in {policy.config.domain}, not in {spec.env}: "
            f"use recap eval --env {policy.config.domain}, with a pool of its demonstrations"
        )
    if policy.config.mode != spec.mode:
        raise InputError(
            f"policy '{spec.name}' was trained in mode {policy.config.mode}: give --mode {policy.config.mode}"
        )
    changes = {"n_steps": spec.denoising_steps, "temperature": spec.temperature, "sampler": spec.sampler}
    policy = policy.with_sampling(**{key: value for key, value in changes.items() if value is not None})
    if spec.mask is None:
        return policy
    from recap.policies.attention import Mask, WatchedPolicy

    return WatchedPolicy(policy, [Mask.parse(spec.mask)])


def assemble_agent(
    spec: AgentSpec, source: PoolSource, policy: TrainedPolicy | None = None
) -> RetrievalAgent:
    """The agent over that pool."""
    from recap.agent import RetrievalAgent
    from recap.retrieval.config import ARMS_ACTION_STEPS, looking_after
    from recap.retrieval.hindsight import HindsightPool
    from recap.retrieval.presets import preset
    from recap.retrieval.retriever import Retriever

    describer, config = preset(f"{spec.env}-{spec.mode}", spec.n_candidates)
    own = _settings_of(spec) if policy is None else policy.config
    if own is not None:
        config = replace(config, chunk_size=own.chunk_size)
    wanted = own is not None and own.hindsight if spec.hindsight is None else spec.hindsight
    if wanted:
        source = HindsightPool(source, config.object_name)
    arms = spec.env == "dualarm"
    usual = own.n_action_steps if own is not None else ARMS_ACTION_STEPS if arms else None
    n_action_steps = spec.n_action_steps or usual
    bodies, limits = (Bodies(), (-math.inf, math.inf)) if arms else _board(spec)
    return RetrievalAgent(
        Retriever(source, describer, looking_after(config, n_action_steps)),
        policy,
        n_action_steps=n_action_steps,
        bodies=bodies,
        reaction=spec.reaction,
        min_confidence=spec.min_confidence,
        limits=limits,
        matching=spec.matching,
        residual=spec.residual,
        half_at=spec.half_at,
        noise_seed=spec.noise_seed,
    )


def _settings_of(spec: AgentSpec) -> PolicyConfig | None:
    """Of the policy that replay is to be compared with."""
    if spec.settings_of is None:
        return None
    from recap.policies.checkpoint import read_config

    config = read_config(spec.settings_of)
    if (config.domain, config.mode) != (spec.env, spec.mode):
        raise InputError(
            f"policy '{spec.settings_of}' retrieves in {config.domain} in mode {config.mode}, not in "
            f"{spec.env} in mode {spec.mode}: give --env {config.domain} --mode {config.mode}"
        )
    return config


def _board(spec: AgentSpec) -> tuple[Bodies, tuple[float, float]]:
    """PushT: who pushes what, and the board that actions stay on."""
    from recap.envs.pusht.drawing import BOARD_SIZE

    return pusht_bodies(spec.block, spec.pusher), (0.0, BOARD_SIZE)


def pusht_bodies(block: str, pusher: str) -> Bodies:
    """A block of PushT and what pushes it."""
    from recap.envs.pusht.blocks import block_named

    return Bodies(block_named(block).symmetry, pusher, block)
