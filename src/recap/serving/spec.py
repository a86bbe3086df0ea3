"""What to serve, and to whom."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from recap.agent import Reaction
from recap.assembly import REPLAY, AgentSpec, names_checkpoint, usual_mode, usual_robot
from recap.envs.pusht.blocks import block_named
from recap.envs.pusht.pushers import pusher_named
from recap.errors import InputError, did_you_mean, one_of
from recap.policies.config import SHIPPED
from recap.serving.limits import Limits

MODES = ("aligned", "contact", "single", "oracle", "published")
REACTIONS = ("ignore", "hold", "stop")


@dataclass(frozen=True)
class ServeSpec:
    """What to serve, and to whom."""

    agent: str = "pusht-nano"  # a policy by shipped name or path, or `replay`
    pool: str | None = None  # None: the standard pool, which cannot be changed
    mode: str = ""  # how to retrieve; empty: as the policy was trained
    block: str = "tee"  # where a connection does not say otherwise
    pusher: str | None = None  # None: the policy's robot, or found by its colour
    reaction: Reaction = "hold"  # to nothing found, or to a confidence below the next
    min_confidence: float = 0.0
    n_action_steps: int | None = None  # how much of a chunk a robot should carry out; None: the agent's own
    hindsight: bool | None = None
    device: str = "cpu"
    n_threads: int | None = None  # that a policy computes on; None: all cores but one, at least one
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    token: str | None = None  # needed where others can reach the host
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.agent != REPLAY and not names_checkpoint(self.agent):
            hint = did_you_mean(self.agent, (REPLAY, *SHIPPED))
            raise InputError(f"unknown policy '{self.agent}': {hint} (your own is named by its path)")
        object.__setattr__(self, "mode", self.mode or usual_mode(self.agent))
        object.__setattr__(self, "pusher", self.pusher or usual_robot(self.agent))
        one_of("mode", self.mode, MODES)
        one_of("reaction", self.reaction, REACTIONS)
        block_named(self.block)
        if self.pusher is not None:
            pusher_named(self.pusher)
        elif self.mode == "contact":
            raise InputError("mode contact needs to know the robot's shape: give --pusher, such as triangle")
        if not 0 <= self.min_confidence < 1:
            raise InputError(
                f"min_confidence {self.min_confidence} is out of range: give 0 to 1, such as 0.05"
            )
        if not 0 <= self.port < 2**16:
            raise InputError(f"port {self.port} is out of range: give 0 to 65535")
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii()):
            raise InputError("the token is too short or not plain ASCII: give 8 characters or more")
        if not self.is_local and self.token is None:
            raise InputError(
                f"others can reach {self.host}, so a token is needed: give --token, or set RECAP_TOKEN"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def agent_spec(self, block: str | None = None) -> AgentSpec:
        """How its agent is put together."""
        return AgentSpec(
            name=self.agent,
            mode=self.mode,
            block=block or self.block,
            pusher=self.pusher or "",
            n_action_steps=self.n_action_steps,
            reaction=self.reaction,
            min_confidence=self.min_confidence,
            hindsight=self.hindsight,
            device=self.device,
        )
