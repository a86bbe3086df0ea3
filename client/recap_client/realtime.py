"""Asynchronous chunking: the next chunk is requested while this one is executed, and blended in."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from recap_client.limits import F64

N_BLEND = 4  # periods of blending from the old chunk to the new; see docs/results/measured
MARGIN = 1  # periods of tolerance for a late reply
QUANTILE = 0.9  # of the latest latencies: the expected latency of the next reply
N_LATENCIES = 32
CLOSE_TIMEOUT_S = 1.0


class Timeline:
    """The queue of next actions. An action belongs to a position in the motion, so past ones are skipped.

    Positions are counted in actions taken. A period in which the robot holds takes none: the robot does not
    move, so a chunk that was planned for its position stays valid.

    Args:
        n_blend: periods of blending from an old chunk to a new one; 0 switches at once.
    """

    def __init__(self, n_blend: int = N_BLEND) -> None:
        self.n_blend = n_blend
        self.n_taken = 0
        self.last: F64 | None = None  # the last action taken
        self._coming: deque[F64] = deque()

    def __len__(self) -> int:
        return len(self._coming)

    def join(self, chunk: F64, asked_at: int) -> int:
        """Continue with a chunk that was observed after `asked_at` actions; returns how many actions remain.

        If the old chunk ends before the blend, its last action is repeated.
        """
        late = self.n_taken - asked_at
        if late < 0:
            raise ValueError(f"a chunk of place {asked_at} is from the future: {self.n_taken} are taken")
        fresh = [np.asarray(action, np.float64) for action in chunk[late:]]
        if not fresh:
            return 0  # entirely out of date: keep the current actions
        old = list(self._coming) or ([] if self.last is None else [self.last])
        for i in range(min(self.n_blend, len(fresh)) if old else 0):
            weight = (i + 1) / (self.n_blend + 1)
            fresh[i] = (1 - weight) * old[min(i, len(old) - 1)] + weight * fresh[i]
        self._coming = deque(fresh)
        return len(fresh)

    def stay(self, n: int, action: F64) -> None:
        """Hold with that action for n periods, because the policy's reply is to hold."""
        self._coming = deque([action] * n)

    def take(self) -> F64 | None:
        """The action of this period; None if none is left and the robot should hold."""
        if not self._coming:
            return None
        self.last = self._coming.popleft()
        self.n_taken += 1
        return self.last


def ask_after(horizon: int, n_action_steps: int, delay: int, margin: int = MARGIN) -> int:
    """The number of actions between an observation and the next request, if a reply takes `delay` periods.

    The reply should arrive when `n_action_steps` actions of the chunk are used, and at least `margin` periods
    before the chunk ends. If a reply takes longer than a whole chunk, the request is sent at the end of the
    chunk, since its actions would otherwise be out of date.
    """
    if delay >= horizon:
        return horizon
    return max(1, min(n_action_steps - delay, horizon - delay - margin))


class Latency:
    """The expected latency of the next reply: a quantile of the latest latencies."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=N_LATENCIES)

    def observe(self, seconds: float) -> None:
        """Add the latency of a reply."""
        self._latest.append(seconds)

    def periods(self, period_s: float) -> int:
        """The expected latency in control periods, rounded up; 0 before the first reply."""
        if not self._latest:
            return 0
        return math.ceil(float(np.quantile(list(self._latest), QUANTILE)) / period_s)


class Infers(Protocol):
    """A `PolicyClient`, or any object with its `infer`."""

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Actions for an observation."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request: a reply or an error."""

    asked_at: int  # actions that had been taken when the observation was made
    latency_s: float
    reply: Mapping[str, Any] | None = None
    error: Exception | None = None


class Asker:
    """Sends requests in a separate thread, one at a time, so that the control loop never waits.

    Args:
        policy: called from that thread only.
        delay_s: artificial delay of every reply.
    """

    def __init__(self, policy: Infers, delay_s: float = 0.0) -> None:
        self._policy, self._delay_s = policy, delay_s
        self._questions: queue.SimpleQueue[tuple[Mapping[str, Any], int, float] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.is_waiting = False  # a request is open, or its answer not yet polled
        self._thread = threading.Thread(target=self._run, name="recap-asker", daemon=True)
        self._thread.start()

    def ask(self, message: Mapping[str, Any], asked_at: int) -> None:
        """Send an observation; `poll` returns the answer."""
        assert not self.is_waiting, "one question at a time"
        self.is_waiting = True
        self._questions.put((message, asked_at, time.monotonic()))

    def poll(self, timeout_s: float = 0.0) -> Answer | None:
        """The answer, or None if it does not arrive within the timeout."""
        try:
            answer = self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
        except queue.Empty:
            return None
        self.is_waiting = False
        return answer

    def close(self) -> None:
        """Stop the thread; an open request ends by itself."""
        self._closed.set()
        self._questions.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            message, asked_at, started = question
            reply: Mapping[str, Any] | None = None
            failed: Exception | None = None
            try:
                reply = self._policy.infer(message)
            except Exception as error:  # the loop handles it
                failed = error
            self._closed.wait(self._delay_s)
            self._answers.put(Answer(asked_at, time.monotonic() - started, reply, failed))
