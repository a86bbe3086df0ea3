"""Asynchronous chunking: the next chunk is asked for while this one is carried out, and joined smoothly."""

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

N_BLEND = 4  # periods over which the old chunk fades into the new; chosen in docs/results/measured
MARGIN = 1  # periods that a reply may be later than expected
QUANTILE = 0.9  # of the latest latencies: what the next reply is expected to take
N_LATENCIES = 32
CLOSE_TIMEOUT_S = 1.0


class Timeline:
    """The actions to come. An action belongs to a place in the motion, so what has passed is skipped.

    Places are counted in actions taken. A period in which the robot holds takes none: it stands still, and a
    chunk that was made for where it stands stays good.

    Args:
        n_blend: periods over which an old chunk fades into a new one; 0 switches at once.
    """

    def __init__(self, n_blend: int = N_BLEND) -> None:
        self.n_blend = n_blend
        self.n_taken = 0
        self.last: F64 | None = None  # the action that was taken last
        self._coming: deque[F64] = deque()

    def __len__(self) -> int:
        return len(self._coming)

    def join(self, chunk: F64, asked_at: int) -> int:
        """Go on with a chunk whose observation was made after `asked_at` actions; returns how many it adds.

        Where the old chunk ends before the blend does, the robot is taken to stay at its end.
        """
        late = self.n_taken - asked_at
        if late < 0:
            raise ValueError(f"a chunk of place {asked_at} is from the future: {self.n_taken} are taken")
        fresh = [np.asarray(action, np.float64) for action in chunk[late:]]
        if not fresh:
            return 0  # wholly out of date: what there is goes on
        old = list(self._coming) or ([] if self.last is None else [self.last])
        for i in range(min(self.n_blend, len(fresh)) if old else 0):
            weight = (i + 1) / (self.n_blend + 1)
            fresh[i] = (1 - weight) * old[min(i, len(old) - 1)] + weight * fresh[i]
        self._coming = deque(fresh)
        return len(fresh)

    def stay(self, n: int, action: F64) -> None:
        """Hold by that action for n periods, because the policy wants to."""
        self._coming = deque([action] * n)

    def take(self) -> F64 | None:
        """The action of this period; None when there is none left, and the robot is to hold."""
        if not self._coming:
            return None
        self.last = self._coming.popleft()
        self.n_taken += 1
        return self.last


def ask_after(horizon: int, n_action_steps: int, delay: int, margin: int = MARGIN) -> int:
    """How many actions after an observation the next one is sent, when a reply takes `delay` periods.

    So early that the reply is there when `n_action_steps` of the chunk are used, which is as far as it is
    good for, and that one which is later still finds actions left. A reply that takes longer than a whole
    chunk is waited for at its end: what was asked for earlier would be of no use.
    """
    if delay >= horizon:
        return horizon
    return max(1, min(n_action_steps - delay, horizon - delay - margin))


class Latency:
    """What the next reply is expected to take: a quantile of the latest ones."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=N_LATENCIES)

    def observe(self, seconds: float) -> None:
        """One more reply."""
        self._latest.append(seconds)

    def periods(self, period_s: float) -> int:
        """In whole control periods, upwards; 0 before the first reply."""
        if not self._latest:
            return 0
        return math.ceil(float(np.quantile(list(self._latest), QUANTILE)) / period_s)


class Infers(Protocol):
    """What is asked: a `PolicyClient`, or anything with its `infer`."""

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Actions for an observation."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question: a reply, or why there is none."""

    asked_at: int  # actions that had been taken when the observation was made
    latency_s: float
    reply: Mapping[str, Any] | None = None
    error: Exception | None = None


class Asker:
    """Asks in a thread of its own, one question at a time, so that a control loop never waits.

    Args:
        policy: asked from that thread only.
        delay_s: added to every reply, to see what a slow one does.
    """

    def __init__(self, policy: Infers, delay_s: float = 0.0) -> None:
        self._policy, self._delay_s = policy, delay_s
        self._questions: queue.SimpleQueue[tuple[Mapping[str, Any], int, float] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.is_waiting = False  # for an answer that has not been taken yet
        self._thread = threading.Thread(target=self._run, name="recap-asker", daemon=True)
        self._thread.start()

    def ask(self, message: Mapping[str, Any], asked_at: int) -> None:
        """Send an observation; the answer is taken by `poll`."""
        assert not self.is_waiting, "one question at a time"
        self.is_waiting = True
        self._questions.put((message, asked_at, time.monotonic()))

    def poll(self, timeout_s: float = 0.0) -> Answer | None:
        """The answer, if it has come, or comes in time."""
        try:
            answer = self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
        except queue.Empty:
            return None
        self.is_waiting = False
        return answer

    def close(self) -> None:
        """Ask no more; a question under way is left to end by itself."""
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
            except Exception as error:  # whatever it is, the loop decides what becomes of it
                failed = error
            self._closed.wait(self._delay_s)
            self._answers.put(Answer(asked_at, time.monotonic() - started, reply, failed))
