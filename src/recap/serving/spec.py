"""What to serve, to whom, and what a server lets in."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from recap.assembly import AgentConfig, refuse_unknown_policy, suite_of
from recap.errors import InputError
from recap.suites import Suite, suites
from recap.types import Scalar

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Every bound of a server, in one place."""

    max_message_bytes: int = 16 * MIB  # one observation
    max_upload_bytes: int = 256 * MIB  # one upload, as it comes
    max_unpacked_bytes: int = 1024 * MIB  # of a zip, or of a table in it
    max_members: int = 10_000  # of a zip
    max_frames: int = 1_000_000  # of the episodes of one upload together
    max_uploads: int = 2  # at once
    max_upload_memory_bytes: int = 2048 * MIB  # of the process that reads one
    upload_work_s: float = 300.0  # that it may take
    upload_stall_s: float = 10.0  # an upload that brings nothing for so long is dropped
    upload_timeout_s: float = 600.0  # for the whole of it
    header_timeout_s: float = 30.0  # for the head of a request
    max_connections: int = 256
    max_waiting: int = 128  # requests; one more is answered busy
    max_batch: int = 8  # requests that are served by one call; on a CPU more only wait longer
    send_timeout_s: float = 10.0  # a client that does not take its reply is dropped
    drain_s: float = 10.0  # that robots have to finish their episode when the server is told to stop
    budget_ms: float | None = None  # a slower reply is a missed deadline; None: as long as a chunk lasts

    def __post_init__(self) -> None:
        counts = (self.max_members, self.max_uploads, self.max_connections, self.max_waiting, self.max_batch)
        sizes = (self.max_message_bytes, self.max_upload_bytes, self.max_unpacked_bytes, self.max_frames)
        if min(*counts, *sizes, self.max_upload_memory_bytes) < 1:
            raise InputError("a limit below 1 lets nothing through: give 1 or more")


@dataclass(frozen=True)
class ServeSpec:
    """What to serve, and to whom."""

    agent: AgentConfig
    pool: str | None = None  # None: the suite's own, which cannot be changed
    robot: str | None = None  # a robot.yaml, for replay; None: the policy's, the suite's or the pool's
    options: Mapping[str, Scalar] = field(default_factory=dict)  # of the suite, for connections without
    max_step: Mapping[str, float] = field(default_factory=dict)  # feature -> less than the robot's own
    n_threads: int | None = None  # that a policy computes on; None: all cores but one, at least one
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    usage_log: str | None = None  # a file that says which demonstrations each robot used
    token: str | None = None  # needed where others can reach the host
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        refuse_unknown_policy(self.agent.policy)
        suite = self.suite
        if self.options and suite is None:
            raise InputError(f"option '{next(iter(self.options))}' is of a suite, but none is served")
        if suite is not None:
            suite.check(self.options)
        if not 0 <= self.port < 2**16:
            raise InputError(f"port {self.port} is out of range: give 0 to 65535")
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii()):
            raise InputError("the token is too short or not plain ASCII: give 8 characters or more")
        if not self.is_local and self.token is None:
            raise InputError(f"other machines can reach {self.host}: set a token with --token or RECAP_TOKEN")

    @property
    def suite(self) -> Suite | None:
        """Where the agent comes from, or else its pool, if it is of an installed suite."""
        found = suite_of(self.agent)
        if found is None and not self.agent.retrieval and self.robot is None:
            found = next((suite for suite in suites().values() if self.pool in suite.pools()), None)
        return found

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
