"""The configuration of an agent, in a module without heavy imports for the command line."""

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
PATIENCE = 6  # default maximum of extra steps per action of a progress gate
MATCHINGS = ("retrieved", "random", "none")


@dataclass(frozen=True)
class AgentConfig:
    """The configuration of an agent, for evaluation, serving, the studio, RoboTwin and Python.

    None and the empty string mean: as the policy or the retrieval has it.
    """

    policy: str = REPLAY  # `replay`, the name of an included policy, or a path
    settings_of: str | None = None  # replay: use the settings of this policy
    retrieval: str = ""  # a name, such as world, or a file
    subtrajectories: bool | None = None  # also retrieve parts of demonstrations
    n_candidates: int | None = None  # demonstrations that stage 1 selects
    reach: float | None = None  # added to the cost of a moment whose chunk the robot cannot reach
    reach_ahead: int | None = None  # frames that must be within reach; 0: the whole chunk
    n_action_steps: int | None = None  # actions of a chunk to execute before the next retrieval
    reaction: Reaction = "hold"  # if confidence is low or nothing is retrieved
    min_confidence: float = 0.0  # confidence below which the reaction applies
    matching: Matching = "retrieved"  # or `random`, `none`: controls for the match
    residual: bool = True  # add the residual to the retrieved actions
    residual_halflife: float = 0.0  # match distance at which the residual counts half; 0: off
    denoising_steps: int | None = None
    temperature: float | None = None
    sampler: str | None = None
    device: str = "cpu"  # device of the policy
    gate: bool = False  # wait for the robot to reach each action
    gate_patience: int = PATIENCE  # maximum extra steps per action
    gate_tolerance: Mapping[str, float] = field(default_factory=dict)  # by feature; replaces the robot's own
    mask: str | None = None  # attention mask, by an entry point of the group `recap.masks`
    noise_seed: int = 0  # seed of the noise; the trials stay the same

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
