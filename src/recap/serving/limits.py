"""What a server lets in and sends out: sizes of what comes, box and speed of what goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.errors import InputError
from recap.types import F64

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Every bound of a server, in one place."""

    max_message_bytes: int = 4 * MIB  # one observation
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
    box: tuple[float, float] = (0.0, 512.0)  # every number of an action
    max_step: float = 60.0  # length of the way from one action to the next, a control period

    def __post_init__(self) -> None:
        counts = (self.max_members, self.max_uploads, self.max_connections, self.max_waiting, self.max_batch)
        sizes = (self.max_message_bytes, self.max_upload_bytes, self.max_unpacked_bytes, self.max_frames)
        if min(*counts, *sizes) < 1:
            raise InputError("a limit below 1 lets nothing through: give 1 or more")
        if not self.box[0] < self.box[1] or not self.max_step > 0:
            raise InputError("the box of the actions is empty, or their step is not above 0: widen it")


def limit_actions(actions: F64, position: F64, limits: Limits) -> tuple[F64, int]:
    """The actions within box and speed, from where the robot is now, and how many had to be changed.

    Speed goes before the box: a robot that stands outside is led back at its speed, not thrown back.
    """
    if not np.isfinite(actions).all():
        raise InputError("an action is not a finite number: nothing is sent")
    out = np.clip(actions, *limits.box)
    before = np.asarray(position, np.float64)
    for i, wanted in enumerate(out):
        step = wanted - before
        length = float(np.linalg.norm(step))
        if length > limits.max_step:
            out[i] = before + step * (limits.max_step / length)
        before = out[i]
    return out, int((out != actions).any(axis=1).sum())
