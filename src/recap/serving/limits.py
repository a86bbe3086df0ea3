"""What a server lets in."""

from __future__ import annotations

from dataclasses import dataclass

from recap.errors import InputError

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
    upload_stall_s: float = 10.0  # an upload that brings nothing for so long is dropped
    upload_timeout_s: float = 600.0  # for the whole of it
    header_timeout_s: float = 30.0  # for the head of a request
    max_connections: int = 256
    max_waiting: int = 128  # requests; one more is answered busy
    max_batch: int = 8  # requests that are served by one call; on a CPU more only wait longer
    send_timeout_s: float = 10.0  # a client that does not take its reply is dropped
    budget_ms: float | None = None  # a slower reply is a missed deadline; None: as long as a chunk lasts

    def __post_init__(self) -> None:
        counts = (self.max_members, self.max_uploads, self.max_connections, self.max_waiting, self.max_batch)
        sizes = (self.max_message_bytes, self.max_upload_bytes, self.max_unpacked_bytes, self.max_frames)
        if min(*counts, *sizes) < 1:
            raise InputError("a limit below 1 lets nothing through: give 1 or more")
