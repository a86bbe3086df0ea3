"""A robot's control loop at a fixed rate: observe, request ahead, act within limits, else hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recap_client.corrections import person_of
from recap_client.errors import BusyError, InputError, ServerError, UnreachableError
from recap_client.gate import Gate, Progress
from recap_client.limits import F64, ActionLimits, action_spans, limit_actions
from recap_client.messages import EXECUTED, MISSED, PROMPT, STATE, TIME, as_message, held_columns, position_in
from recap_client.realtime import N_BLEND, Answer, Asker, Infers, Latency, Timeline, ask_after


@runtime_checkable
class Robot(Protocol):
    """A robot to drive. It may also have `status()` (numbers to show), `done` and `close()`.

    With `takeover()` a person may drive it: it returns an action that replaces the policy's, or None. When
    the person hands back, their correction is added to the server's pool.
    """

    def observe(self) -> Any:
        """The current observation: a `recap.Observation`, or a message."""
        ...

    def act(self, action: F64) -> None:
        """Move towards a target; called once per control period, and must return well within it."""
        ...


class Policy(Infers, Protocol):
    """A `PolicyClient`, with few retries, since the loop itself retries."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the server."""
        ...


@dataclass(frozen=True)
class LoopSpec:
    """The settings of a control loop; None: the server's setting."""

    steps: int | None = None  # control periods; None until `done`, `stop` or Ctrl-C
    rate_hz: float | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # feature -> inside the server's
    max_step: Mapping[str, float] = field(default_factory=dict)  # feature -> less than the server's
    speed: float = 1.0  # fraction of the largest changes per period
    task: str = ""  # the instruction; empty: the robot's own, or the server's
    n_blend: int = N_BLEND
    delay_s: float = 0.0  # artificial delay of every reply
    patience_s: float = 10.0  # how long the robot holds and waits for a lost server
    gate: bool | None = None  # repeat an action until the robot has reached it

    def __post_init__(self) -> None:
        if self.rate_hz is not None and not 0.1 <= self.rate_hz <= 1000:
            raise InputError(f"a rate of {self.rate_hz} Hz is out of range: give 0.1 to 1000")
        if not 0 <= self.delay_s <= 60:
            raise InputError(f"a delay of {self.delay_s} s is out of range: give 0 to 60 s")
        if not 0 < self.speed <= 1:
            raise InputError(f"a speed of {self.speed} is out of range: give more than 0, up to 1")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"{self.steps} steps are none: give 1 or more")


@dataclass(frozen=True)
class LoopReport:
    """The result of a run."""

    reason: str  # why it ended: steps, done, stopped, or an error
    periods: int = 0
    misses: int = 0  # periods without an action left, in which the robot held
    overruns: int = 0  # periods that took too long
    replies: int = 0
    held: int = 0  # replies that hold the robot in place
    gated: int = 0  # periods in which an action was repeated because the robot had not reached it
    failures: int = 0  # requests without a reply: lost or busy
    limited: int = 0  # actions that were clipped or slowed down
    by_person: int = 0  # periods in which a person drove
    corrections: int = 0  # corrections added to the server's pool
    not_kept: str = ""  # why a correction was not added
    latency_p50_ms: float = float("nan")
    latency_p99_ms: float = float("nan")
    acceleration: float = float("nan")  # mean second difference of the targets, in units of actions
    jerk: float = float("nan")  # mean third difference
    seconds: float = 0.0
    status: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True if the run ended with an error."""
        return self.reason not in ("steps", "done", "stopped")


class RobotLoop:
    """Drives a robot with a policy; when `run` returns, the robot holds.

    Args:
        robot: `observe` is called for each request, or with a `takeover` or a gate once per period; `act` is
            called once per period.
        policy: called from a separate thread; the caller closes it.
        watch: called after every period.
    """

    def __init__(
        self,
        robot: Robot,
        policy: Policy,
        spec: LoopSpec | None = None,
        watch: Callable[[LoopReport], None] = lambda _: None,
    ) -> None:
        self.robot, self.policy, self.spec, self._watch = robot, policy, spec or LoopSpec(), watch
        said = policy.metadata
        try:
            hz, self._horizon = float(said["control_hz"]), int(said["action_horizon"])
            self._n_action_steps, self._action_dim = int(said["n_action_steps"]), int(said["action_dim"])
            self._said, limits = said, ActionLimits.read(said)
            held_columns(said)  # refuses metadata without valid `hold` columns
            if not (0 < hz < np.inf and 1 <= self._n_action_steps <= self._horizon):
                raise ValueError(f"{self._n_action_steps} of {self._horizon} actions at {hz} Hz")
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise ServerError(
                f"the server does not say what a loop must know ({error}): is it `recap serve`?"
            ) from error
        self.rate_hz = self.spec.rate_hz or hz
        # Limits are changes per period, so at a higher rate than the server's they must be smaller.
        limits = limits.tightened(action_spans(said), self.spec.limits, self.spec.max_step)
        self.limits = limits.scaled(self.spec.speed * min(1.0, hz / self.rate_hz))
        self._progress = Progress(Gate.read(said, self.spec.gate))
        self.timeline = Timeline(self.spec.n_blend)
        self.latency = Latency()
        self.report = LoopReport("running")
        self.targets: list[F64] = []
        self._stopped = threading.Event()
        self._latencies_ms: list[float] = []
        self._at: F64 | None = None  # the current target
        self._answered_at = 0  # actions taken at the last observation that was answered
        self._answered_misses = 0
        self._asked_misses = 0
        self._lost_since: float | None = None
        self._person = person_of(
            robot, said, self.rate_hz, getattr(policy, "upload", _no_upload), patience_s=self.spec.patience_s
        )
        self._stale = False  # True if the open request was sent before a person drove
        self._seen: dict[str, Any] | None = None  # observation of this period, if made already
        self._resumes = False  # True after a person has handed back, until a new chunk

    def stop(self) -> None:
        """Stop after this period; may be called from any thread or a signal handler."""
        self._stopped.set()

    def run(self) -> LoopReport:
        """Drive until the end, then hold; raises errors of the robot, but reports errors of the server."""
        asker = Asker(self.policy, self.spec.delay_s)
        started = time.monotonic()
        reason = "interrupted"
        try:
            reason = self._drive(asker)
        except ServerError as error:
            reason = " ".join(str(error).split())
            self._rest()
        except BaseException:
            with suppress(Exception):  # the first error is raised
                self._rest()
            raise
        else:
            self._rest()
        finally:
            asker.close()
            if self._person is not None:
                self._person.close()
            close = getattr(self.robot, "close", None)
            if callable(close):
                close()
            self.report = replace(
                self.report,
                reason=reason,
                seconds=time.monotonic() - started,
                **self._kept(),
                latency_p50_ms=_quantile(self._latencies_ms, 0.5),
                latency_p99_ms=_quantile(self._latencies_ms, 0.99),
                acceleration=roughness(self.targets, 2),
                jerk=roughness(self.targets, 3),
            )
        return self.report

    def _drive(self, asker: Asker) -> str:
        """Run the control periods; returns why the run ended."""
        period_s = 1 / self.rate_hz
        self._ask(asker)
        # Wait for the first chunk. These periods do not count as misses.
        while not len(self.timeline):
            self._receive(asker.poll(period_s))
            if self._stopped.is_set():
                return "stopped"
            if not asker.is_waiting and not len(self.timeline):
                self._ask(asker)
                self._stopped.wait(period_s)
        due = time.monotonic()
        while True:
            if self._person is not None or self._progress.gate is not None:
                self._seen = self._look()
            if not self._follow_person(asker):
                self._receive(asker.poll())
                if not asker.is_waiting and self._wants_to_ask():
                    self._ask(asker)
                self._act()
            due += period_s
            early_s = due - time.monotonic()
            if early_s < 0:
                self._count(overruns=1)
                due -= early_s  # late periods are not caught up by a burst of actions
            if self.spec.steps is not None and self.report.periods >= self.spec.steps:
                return "steps"
            if getattr(self.robot, "done", False):
                return "done"
            if self._stopped.wait(max(0.0, early_s)):
                return "stopped"

    def _follow_person(self, asker: Asker) -> bool:
        """Run one period by a person and drop the policy's plan; False if no person drives."""
        person = self._person
        if person is None:
            return False
        drove = person.is_driving
        wanted = person.action()
        if drove and wanted is None:
            person.hand_back()
            self._resumes, self._stale = True, asker.is_waiting
            self.timeline.stay(0, self._still)
            self.timeline.last = self._still
        if wanted is None:
            return False
        if wanted.shape != (self._action_dim,):
            raise InputError(f"takeover() gave {wanted.shape}: give {self._action_dim} numbers, or None")
        asker.poll()  # discard an outdated answer
        self._progress.send(None)
        self._count(by_person=1)
        self._send(wanted)
        return True

    def _wants_to_ask(self) -> bool:
        delay = self.latency.periods(1 / self.rate_hz)
        every = ask_after(self._horizon, self._n_action_steps, delay)
        if self._resumes and self._person is not None and self._person.settle():
            return False  # wait until the correction is in the pool
        return not len(self.timeline) or self.timeline.n_taken - self._answered_at >= every

    def _look(self) -> dict[str, Any]:
        seen = self.robot.observe()
        message = dict(seen if isinstance(seen, Mapping) else as_message(seen))
        if self.spec.task:
            message[PROMPT] = self.spec.task
        if self._at is None:
            self._at = position_in(message, self._said)
        if self._person is not None:  # the server does not count a person's actions
            message.setdefault(TIME, self.report.periods / self.rate_hz)
        return message

    def _ask(self, asker: Asker) -> None:
        message = dict(self._look() if self._seen is None else self._seen)
        taken, missed = self.timeline.n_taken, self.report.misses
        message |= {EXECUTED: taken - self._answered_at, MISSED: missed - self._answered_misses}
        asker.ask(message, taken)
        self._asked_misses = missed

    def _receive(self, answer: Answer | None) -> None:
        """Blend in a chunk that has arrived; a lost or busy server is retried for `patience_s`."""
        if answer is None or self._stale:
            self._stale = self._stale and answer is None
            return
        if isinstance(answer.error, UnreachableError | BusyError):
            self._count(failures=1)
            now = time.monotonic()
            self._lost_since = now if self._lost_since is None else self._lost_since
            if now - self._lost_since > self.spec.patience_s:
                raise answer.error
            return
        if answer.error is not None:
            raise answer.error
        assert answer.reply is not None
        chunk = self._checked(answer.reply)
        self._lost_since = None
        self._answered_at, self._answered_misses = answer.asked_at, self._asked_misses
        self._latencies_ms.append(1000 * answer.latency_s)
        self.latency.observe(answer.latency_s)
        held = bool(answer.reply.get("held", False))
        self._count(replies=1, held=int(held))
        if held and self.timeline.last is not None:
            self.timeline.stay(len(chunk), self._still)  # at the current position, not that of the request
            self._progress.send(None)
        else:
            self.timeline.join(chunk, answer.asked_at)

    def _checked(self, reply: Mapping[str, Any]) -> F64:
        """The actions of a reply, checked for shape and finite numbers."""
        actions = np.asarray(reply.get("actions"))
        fits = actions.ndim == 2 and actions.shape[1] == self._action_dim and len(actions)
        if not fits or actions.dtype.kind not in "iuf" or not np.isfinite(actions).all():
            raise ServerError(
                f"the server sends actions of {actions.dtype} {actions.shape}, or not finite: nothing is done"
            )
        return actions.astype(np.float64)

    def _act(self) -> None:
        """Run one period: send the next action, or hold."""
        assert self._at is not None
        again = None if self._seen is None else self._progress.again(self._seen[STATE])
        if again is not None:
            self._count(gated=1)
            self._send(again)
            return
        wanted = self.timeline.take()
        self._progress.send(None if wanted is None else np.clip(wanted, self.limits.low, self.limits.high))
        if wanted is None:
            self._count(misses=0 if self._resumes else 1)
            self.timeline.last = self._still  # the next chunk blends from here
        else:
            self._resumes = False
        self._send(wanted)

    def _send(self, wanted: F64 | None) -> None:
        """Send an action within the limits; None: hold."""
        assert self._at is not None
        target = self._still
        if wanted is not None:
            kept, n_limited = limit_actions(wanted[None], self._at, self.limits)
            target = kept[0]
            self._count(limited=n_limited)
        self.robot.act(target.copy())
        if self._person is not None and self._seen is not None:
            self._person.record(self._seen, target, self._person.is_driving)
        self._at = target
        self.targets.append(target)
        self._count(periods=1)
        self._watch(self.report)

    @property
    def _still(self) -> F64:
        """The action that holds the robot: the last target, or zeros for delta actions."""
        assert self._at is not None
        return np.zeros_like(self._at) if self.limits.relative else self._at

    def _rest(self) -> None:
        """Hold the robot at the end of the run."""
        if self._at is not None:
            self.robot.act(self._still.copy())

    def _count(self, **more: int) -> None:
        counts = {key: getattr(self.report, key) + n for key, n in more.items()}
        if "periods" in more:
            status = getattr(self.robot, "status", None)
            counts["status"] = dict(status()) if callable(status) else {}
            counts |= self._kept()
            counts["latency_p50_ms"] = _quantile(self._latencies_ms[-32:], 0.5)
        self.report = replace(self.report, **counts)

    def _kept(self) -> dict[str, Any]:
        """The corrections that were uploaded."""
        person = self._person
        if person is None:
            return {}
        person.settle()
        return {"corrections": person.n_kept, "not_kept": person.problem}


def _no_upload(episode: Mapping[str, Any]) -> None:
    raise ServerError("this server takes no demonstrations")


def roughness(targets: list[F64], order: int) -> float:
    """Mean norm of the differences of that order of the targets; nan if there are too few."""
    if len(targets) <= order:
        return float("nan")
    return float(np.linalg.norm(np.diff(np.array(targets), order, axis=0), axis=1).mean())


def _quantile(values: list[float], q: float) -> float:
    return float(np.quantile(values, q)) if values else float("nan")
