"""The configuration of a server: what it serves, where, and its limits."""

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
    """All limits of a server."""

    max_message_bytes: int = 16 * MIB  # one observation
    max_upload_bytes: int = 256 * MIB  # one upload, compressed
    max_unpacked_bytes: int = 1024 * MIB  # of a zip, or of the tables in it
    max_members: int = 10_000  # of a zip
    max_frames: int = 1_000_000  # in all episodes of one upload
    max_uploads: int = 2  # at once
    max_upload_memory_bytes: int = 2048 * MIB  # of the process that reads an upload
    upload_work_s: float = 300.0  # to read an upload
    upload_stall_s: float = 10.0  # an upload that sends nothing for so long is dropped
    upload_timeout_s: float = 600.0  # for the transfer of an upload
    header_timeout_s: float = 30.0  # for the head of a request
    max_connections: int = 256
    max_waiting: int = 128  # requests; beyond it one is answered busy
    max_batch: int = 8  # requests per batch; on a CPU, larger batches only wait longer
    send_timeout_s: float = 10.0  # a client that does not read its reply is dropped
    drain_s: float = 10.0  # time to finish episodes when the server stops
    budget_ms: float | None = None  # slower replies count as missed; None: the duration of a chunk

    def __post_init__(self) -> None:
        counts = (self.max_members, self.max_uploads, self.max_connections, self.max_waiting, self.max_batch)
        sizes = (self.max_message_bytes, self.max_upload_bytes, self.max_unpacked_bytes, self.max_frames)
        if min(*counts, *sizes, self.max_upload_memory_bytes) < 1:
            raise InputError("a limit below 1 lets nothing through: give 1 or more")


@dataclass(frozen=True)
class ServeSpec:
    """The configuration of a server."""

    agent: AgentConfig
    pool: str | None = None  # None: the suite's included pool, which is read-only
    robot: str | None = None  # a robot.yaml, for replay; None: the policy's, the suite's or the pool's
    options: Mapping[str, Scalar] = field(default_factory=dict)  # defaults of the suite's options
    max_step: Mapping[str, float] = field(default_factory=dict)  # feature -> a limit below the robot's
    n_threads: int | None = None  # of the policy; None: all cores but one
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    usage_log: str | None = None  # log of the demonstrations that each robot used
    token: str | None = None  # required if other machines can reach the host
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
        """The installed suite that the agent, or else the pool, comes from."""
        found = suite_of(self.agent)
        if found is None and not self.agent.retrieval and self.robot is None:
            found = next((suite for suite in suites().values() if self.pool in suite.pools()), None)
        return found

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
