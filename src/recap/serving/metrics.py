"""Counters, gauges and summaries in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

QUANTILES = (0.5, 0.9, 0.99)
N_KEPT = 2048  # latest values kept for the quantiles


class Counter:
    """A value that only grows."""

    kind = "counter"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self.value: float = 0

    def add(self, n: int = 1) -> None:
        self.value += n

    def lines(self) -> list[str]:
        return [f"{self.name} {_number(self.value)}"]


class Gauge(Counter):
    """A value that can be set."""

    kind = "gauge"

    def set(self, value: float) -> None:
        self.value = value


class Summary:
    """Quantiles of the latest values, and the sum and count of all."""

    kind = "summary"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self.sum, self.count = 0.0, 0
        self._latest: deque[float] = deque(maxlen=N_KEPT)
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        with self._lock:
            self.sum += value
            self.count += 1
            self._latest.append(value)

    def quantile(self, q: float) -> float:
        """A quantile of the latest values; nan if there are none."""
        with self._lock:
            latest = list(self._latest)
        return float(np.quantile(latest, q)) if latest else float("nan")

    def lines(self) -> list[str]:
        shown = [f'{self.name}{{quantile="{q:g}"}} {_number(self.quantile(q))}' for q in QUANTILES]
        return [*shown, f"{self.name}_sum {_number(self.sum)}", f"{self.name}_count {self.count}"]


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("recap_requests_total", "Observations that were answered with actions.")
        self.errors = Counter("recap_errors_total", "Messages that were answered with an error.")
        self.busy = Counter("recap_busy_total", "Requests that were turned away because too many waited.")
        self.missed = Counter("recap_deadline_misses_total", "Replies that took longer than the budget.")
        self.idle = Counter("recap_robot_misses_total", "Periods in which a robot had no action left.")
        self.held = Counter("recap_held_total", "Replies that hold still: nothing seen, or too unsure.")
        self.limited = Counter("recap_actions_limited_total", "Actions moved into the box or slowed down.")
        self.unreachable = Counter("recap_targets_unreachable_total", "Tool targets that no joints reach.")
        self.refused = Counter("recap_refused_total", "Requests without the right token, host or origin.")
        self.changes = Counter("recap_pool_changes_total", "Changes of the pool made through this server.")
        self.connections = Gauge("recap_connections", "Open connections.")
        self.waiting = Gauge("recap_queue_length", "Requests that wait for the policy.")
        self.pool_version = Gauge("recap_pool_version", "The version that was last retrieved from.")
        self.pool_unusable = Gauge("recap_pool_unusable", "Demonstrations that lack what retrieval reads.")
        self.reply = Summary("recap_reply_seconds", "From a whole request to its reply.")
        self.queue = Summary("recap_queue_seconds", "Waiting before the policy.")
        self.vision = Summary("recap_vision_seconds", "Finding the poses of one batch in its images.")
        self.retrieval = Summary("recap_retrieval_seconds", "Retrieving for one batch.")
        self.policy = Summary("recap_policy_seconds", "Predicting one batch.")
        self.batch = Summary("recap_batch_size", "Requests served by one call.")
        self.confidence = Summary("recap_confidence", "Of the matches.")
        self.ik_mm = Summary("recap_kinematics_error_mm", "Farthest that joints are from a chunk's targets.")
        self.ik_deg = Summary("recap_kinematics_error_degrees", "Farthest that they are turned away.")

    def render(self) -> str:
        """All metrics as text."""
        lines: list[str] = []
        metric: Counter | Summary
        for metric in vars(self).values():
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            lines += metric.lines()
        return "\n".join([*lines, ""])


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "NaN" if value != value else f"{value:.9g}"
