"""An agent's configuration, which the command line reads before anything else is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from recap.errors import InputError, one_of

REPLAY, EXPERT, HOLD = "replay", "expert", "hold"
Reaction: TypeAlias = Literal["ignore", "hold", "stop"]
Matching: TypeAlias = Literal["retrieved", "random", "none"]
REACTIONS = ("ignore", "hold", "stop")
PATIENCE = 6  # of a progress gate
MATCHINGS = ("retrieved", "random", "none")


@dataclass(frozen=True)
class AgentConfig:
    """One configuration of an agent, for evaluation, serving, the studio, RoboTwin and Python alike.

    None, or an empty text, is as the policy or the retrieval has it.
    """

    policy: str = REPLAY  # `replay`, or a policy by shipped name or path
    settings_of: str | None = None  # replay: the policy whose retrieval, chunk and look interval it takes
    retrieval: str = ""  # by name, such as world, or a file
    subtrajectories: bool | None = None  # parts of demonstrations are retrieved too
    n_candidates: int | None = None  # trajectories that stage 1 keeps
    reach: float | None = None  # added to the cost of a moment whose chunk the robot cannot reach
    reach_ahead: int | None = None  # frames of a demonstration that count for it; 0: the chunk
    n_action_steps: int | None = None  # of a chunk that are executed before the next look
    reaction: Reaction = "hold"  # to low confidence, or to nothing retrieved
    min_confidence: float = 0.0  # below it the reaction is taken
    matching: Matching = "retrieved"  # or `random`, `none`: what the match is worth
    residual: bool = True  # False: what is retrieved is executed as it is
    residual_halflife: float = (
        0.0  # distance of a match at which the residual counts half; 0: it counts whole
    )
    denoising_steps: int | None = None
    temperature: float | None = None
    sampler: str | None = None
    device: str = "cpu"  # where a policy computes
    gate: bool = False  # the next action waits until the robot is where the last one sent it
    gate_patience: int = PATIENCE  # extra steps an action at most
    gate_tolerance: Mapping[str, float] = field(default_factory=dict)  # feature -> other than the robot's own
    mask: str | None = None  # attention that is blocked, by an entry point of the group `recap.masks`
    noise_seed: int = 0  # another one gives other noise on the same trials

    def __post_init__(self) -> None:
        one_of("reaction", self.reaction, REACTIONS)
        one_of("matching", self.matching, MATCHINGS)
        if self.policy in (EXPERT, HOLD):
            usual = AgentConfig()
            for name in (f.name for f in fields(self) if f.name not in ("policy", "device", "noise_seed")):
                if getattr(self, name) != getattr(usual, name):
                    raise InputError(f"'{self.policy}' retrieves nothing, has no network: leave {name} out")
        if self.settings_of is not None and self.policy != REPLAY:
            raise InputError(f"--settings-of is for replay: '{self.policy}' has settings of its own")
        if self.n_candidates is not None and self.n_candidates < 1:
            raise InputError(f"candidates {self.n_candidates} keeps nothing: give 1 or more")
        if self.n_action_steps is not None and self.n_action_steps < 1:
            raise InputError(f"n_action_steps {self.n_action_steps} executes nothing: give 1 or more")
        if not 0 <= self.min_confidence < 1:
            raise InputError(f"min_confidence {self.min_confidence} is out of range: give 0 to 1")
        if self.gate_patience < 0:
            raise InputError(f"gate_patience {self.gate_patience} is out of range: give 0 or more")
        if not 0 <= self.residual_halflife < math.inf:
            raise InputError(f"residual_halflife {self.residual_halflife} is no distance: give 0 or more")
