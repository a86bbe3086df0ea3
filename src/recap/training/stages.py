"""The time of each stage of a run's preparation, and the stages that were reused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int, str], None]  # stage, done, total, note


class Stages:
    """Seconds until the first iteration, by stage and in order."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self.seconds: dict[str, float] = {}
        self.reused: list[str] = []

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the elapsed time to a stage; its start is reported as 0 of 0."""
        self.report(stage, 0, 0)
        began = time.monotonic()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began

    def report(self, what: str, done: int, total: int, note: str = "") -> None:
        """Call the listener, if there is one."""
        if self._report is not None:
            self._report(what, done, total, note)

    def move(self, source: str, stage: str, seconds: float) -> None:
        """Move seconds from one stage to another."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.seconds[source] = max(0.0, self.seconds[source] - seconds)

    def reuse(self, *stages: str) -> None:
        """Mark stages as reused."""
        self.reused += stages

    def __str__(self) -> str:
        parts = [f"{stage} {seconds:.1f} s" for stage, seconds in self.seconds.items()]
        parts += [f"{stage} reused" for stage in self.reused]
        return f"{sum(self.seconds.values()):.1f} s until the first iteration: {', '.join(parts)}"
