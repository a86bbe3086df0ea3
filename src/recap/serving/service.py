"""The service: a frozen policy or replay, a pool that may grow, and an agent with one slot per connection."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from recap.agent import RetrievalAgent
from recap.assembly import assemble_agent, load_policy, policy_config
from recap.compatible import refuse_other_robot
from recap.errors import InputError, RecapError
from recap.gate import gate_metadata
from recap.pool.opening import open_pool
from recap.pool.store import Pool
from recap.pool.view import PoolSource, only_task, robot_of
from recap.retrieval.explain import observation_at
from recap.retrieval.index import Index
from recap.robot import RobotSpec, load_robot
from recap.serving.metadata import metadata_of
from recap.serving.metrics import Metrics
from recap.serving.observations import ObservationSpec, Reset
from recap.serving.scene import Scene
from recap.serving.spec import ServeSpec
from recap.suites import Options, PoseEstimator
from recap.types import F64, Observation
from recap.usage import UsageLog, of_reply
from recap_client.limits import ActionLimits, limit_actions

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy

__all__ = ["Reply", "Request", "ServeSpec", "Service", "Session", "one_line"]
log = logging.getLogger("recap.serving")


@dataclass
class Session:
    """One connection's running episode; only `pending` is written outside the policy's thread."""

    slot: int
    options: Options  # of the suite, as set by resets
    estimator: PoseEstimator | None
    pending: Reset | None = None  # a reset that was received but not yet applied
    n_episodes: int = 0
    steps: int = 0  # control steps since the episode began
    served_at: float = 0.0  # when its last request was served, monotonic clock
    robot: str = ""  # name of the client in the usage log


@dataclass(frozen=True, slots=True)
class Request:
    """One client's request for an action chunk."""

    session: Session
    observation: Observation
    executed: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, whether it only holds the robot in place, and how many actions were limited."""

    message: Mapping[str, Any]
    held: bool
    n_limited: int


class Service:
    """The policy, the pool and the agent of a server; `open` makes one."""

    def __init__(
        self,
        spec: ServeSpec,
        pool: PoolSource,
        policy: TrainedPolicy | None = None,
        source: PoolSource | None = None,
    ) -> None:
        self.spec, self.pool, self.policy = spec, pool, policy
        self.suite = spec.suite
        self.robot = self._robot()
        if pool.view().episode_ids:
            refuse_other_robot(self.robot, pool.view())
        embodiment = "" if policy is None else policy.config.embodiment  # embodiment of its training data
        implied = {} if self.suite is None else self.suite.embodied(embodiment)
        self.scene = Scene(self.suite, self.robot, {**implied, **spec.options})
        self.metrics = Metrics()
        self.agent = self.new_agent(source or pool)
        config = self.agent.retriever.config
        self.joints = self.agent.joints  # converter, if the robot sends and takes joints
        self.wire_robot = self.robot if self.joints is None else self.joints.robot  # robot of its messages
        self.gate = gate_metadata(self.wire_robot, spec.agent)
        needs = self.agent.requires
        self.obs_spec = ObservationSpec(
            self.wire_robot, needs, self.scene.estimates(needs), only_task(pool.view())
        )
        self.chunk_size = config.chunk_size
        self.limits = self.limits_of(self.robot)
        lasts_ms = 1000 * self.agent.n_action_steps / self.robot.control_hz
        self.budget_ms = lasts_ms if spec.limits.budget_ms is None else spec.limits.budget_ms
        self.n_sessions = 0
        self.name = secrets.token_hex(3)  # random, unique to this run of the server
        self.usage = None if spec.usage_log is None else UsageLog(Path(spec.usage_log))
        self._index: Index | None = None  # index that `unusable` was read from
        self.unreadable = ""  # why the pool cannot be read, if it cannot
        self.unusable: tuple[str, ...] = ()  # demonstrations that retrieval cannot use

    @classmethod
    def open(cls, spec: ServeSpec, notify: Callable[[str], None] = lambda text: None) -> Service:
        """Load the policy and open the pool; `notify` is called before each step."""
        suite = spec.suite
        place = spec.pool or (None if suite is None else suite.default_pool)
        if place is None:
            raise InputError(f"'{spec.agent.policy}' has no pool of its own: give --pool")
        config = policy_config(spec.agent)
        robot = load_robot(Path(spec.robot)) if spec.robot is not None else None
        notify(f"Opening pool {place} …")
        pool = open_pool(place, robot if config is None else config.robot)
        policy = load_policy(spec.agent)
        if policy is not None:
            import torch

            from recap.policies.checkpoint import held_out_errors

            errors = held_out_errors(spec.agent.policy)
            if errors is not None and errors[0] >= errors[1] and spec.agent.residual:
                notify(
                    "warning: on held-out demonstrations the network was no closer than replay: --no-residual"
                )
            # Leave a core to the event loop: torch threads that wait for a busy core slow down every request.
            torch.set_num_threads(spec.n_threads or max(1, (os.cpu_count() or 1) - 1))
        # A second handle for the agent, so that a waiting writer does not block the policy.
        source = Pool.open(pool.uri) if isinstance(pool, Pool) else pool
        n = len(pool.view().episode_ids)
        notify(f"Preparing {n} demonstrations and a first reply; the first time this may take a minute …")
        service = cls(spec, pool, policy, source)
        service.warm_up()
        return service

    def _robot(self) -> RobotSpec:
        """The policy's robot; for replay the given one, the suite's or the pool's."""
        if self.policy is not None:
            return self.policy.config.robot
        if self.spec.robot is not None:
            return load_robot(Path(self.spec.robot))
        if self.suite is not None:
            return self.suite.robot(self.suite.check(self.spec.options))
        robot = robot_of(self.pool.view())
        if robot is None:
            raise InputError("the pool is empty and the robot is unknown: give --robot robot.yaml")
        return robot

    def limits_of(self, robot: RobotSpec) -> ActionLimits:
        """The robot's limits, with smaller steps if the spec sets them."""
        own = robot.max_step
        if robot is self.robot:
            lowered = {name: min(own.get(name, np.inf), step) for name, step in self.spec.max_step.items()}
            robot = replace(robot, max_step={**own, **lowered})  # refuses features that it does not have
        columns = tuple((at.start, at.stop, step) for at, step in robot.max_steps)
        return ActionLimits(*robot.act.bounds, columns, robot.action_mode == "delta")

    @property
    def store(self) -> Pool:
        """The pool to change; raises InputError if a snapshot is served."""
        if not isinstance(self.pool, Pool):
            raise InputError("this pool is a snapshot and cannot be changed: serve your own with --pool")
        return self.pool

    @property
    def is_writable(self) -> bool:
        """True if the pool can be changed."""
        return isinstance(self.pool, Pool)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the policy's weights, or of the retrieval config for replay."""
        if self.policy is None:
            return self.agent.retriever.config.fingerprint[:12]
        return self.policy.fingerprint

    def new_agent(self, source: PoolSource | None = None, options: Options | None = None) -> RetrievalAgent:
        """Another agent of the same kind, by default over the same pool."""
        # For a robot in joints, the gate compares joints, which only the client can do.
        config = self.spec.agent if self.robot.kinematics is None else replace(self.spec.agent, gate=False)
        context = self.scene.context(options or {})
        return assemble_agent(
            config, source or self.pool, self.policy, robot=self.robot, context=context, suite=self.suite
        )

    def metadata(self) -> dict[str, Any]:
        """The first message to a client; call it on the policy's thread."""
        return metadata_of(self)

    def warm_up(self) -> None:
        """Compile and build what the first request would wait for, with a frame of the pool."""
        view = self.agent.retriever.source.view()
        if not view.episode_ids:
            return
        observation = observation_at(view.episode(view.episode_ids[0]), 0)
        if self.obs_spec.estimates and observation.images:
            observation = replace(observation, objects={}, goal=None)
        if self.joints is not None:
            observation = replace(observation, proprio=self.joints.rest)
        session = self.new_session()
        try:
            for _ in range(2):  # an estimator runs other code after its first frame
                self.serve([Request(session, observation)])
        except RecapError as error:  # the first demonstration may be unusable, and others usable
            log.warning("no warm-up: %s", one_line(error))
        self.release(session)
        self.metrics = Metrics()
        self.refresh()

    def refresh(self) -> None:
        """Update the unusable demonstrations of the newest pool; call it on the policy's thread."""
        retriever = self.agent.retriever
        try:
            view, index = retriever.source.view(), retriever.index()
        except (RecapError, OSError) as error:  # requests get the error; keep the last state
            self.unreadable = "the pool cannot be read"
            log.warning("%s: %s", self.unreadable, one_line(error))
            return
        self.unreadable = ""
        if index is not self._index and index.version == view.version:
            # Count demonstrations, not their sub-trajectories.
            self.unusable = tuple(name for name in index.unusable if view.episode(name).cut_from is None)
            self._index = index
        self.metrics.pool_unusable.set(len(self.unusable))

    def new_session(self, robot: str = "") -> Session:
        """A session for a new connection.

        Args:
            robot: address of the client, from which a unique name for the usage log is made.
        """
        self.n_sessions += 1
        name = f"{robot}/{self.name}-{self.n_sessions}" if robot else ""
        return Session(self.n_sessions, {}, None, pending=Reset(), robot=name)

    def end(self, session: Session, success: bool | None) -> None:
        """Log the outcome of an episode, if the robot reported it."""
        if self.usage is not None and success is not None and session.n_episodes:
            self.usage.outcome(session.robot, session.n_episodes, success)

    def serve(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """Answer requests of different connections with one batch; call it on one thread only."""
        try:
            return list(self._serve(requests))
        except Exception:
            if len(requests) == 1:
                raise
        replies: list[Reply | Exception] = []
        for request in requests:  # one of them caused the error: serve each alone
            try:
                replies += self._serve([request])
            except Exception as error:
                replies.append(error)
        return replies

    def _serve(self, requests: Sequence[Request]) -> list[Reply]:
        started = time.perf_counter()
        for request in requests:
            self._apply_reset(request)
        observations = [self._complete(request) for request in requests]
        completed = time.perf_counter()
        slots = [request.session.slot for request in requests]
        n = self.agent.n_action_steps
        executed = [n if r.executed is None else r.executed for r in requests]
        chunks = self.agent.replan(slots, observations, executed)
        self.refresh()
        timings = self.agent.timings_ms
        self.metrics.vision.observe(completed - started)
        self.metrics.retrieval.observe(timings["retrieval"] / 1000)
        self.metrics.policy.observe(timings["policy"] / 1000)
        timing = {"vision_ms": 1000 * (completed - started), "batch_size": len(requests)}
        timing |= {f"{key}_ms": value for key, value in timings.items()}
        return [self._reply(r, o, c, timing) for r, o, c in zip(requests, observations, chunks, strict=True)]

    def _apply_reset(self, request: Request) -> None:
        """Apply a pending reset; otherwise count the steps since the last request."""
        session, reset = request.session, request.session.pending
        session.served_at = time.monotonic()
        if reset is None:
            session.steps += self.agent.n_action_steps if request.executed is None else request.executed
            return
        self.scene.check(reset.options)
        session.options = {**session.options, **(reset.options or {})}
        if self.obs_spec.estimates:
            session.estimator = self.scene.estimator(session.options)
        seed = session.n_episodes if reset.seed is None else reset.seed
        self.agent.reset(session.slot, SimpleNamespace(seed=seed), self.scene.context(session.options))
        session.pending, session.steps = None, 0
        session.n_episodes += 1

    def _complete(self, request: Request) -> Observation:
        """The observation in tool space, with missing poses estimated from its images."""
        obs, estimator = request.observation, request.session.estimator
        if np.isnan(obs.time_s):
            obs = replace(obs, time_s=request.session.steps / self.robot.control_hz)
        obs = self.agent.in_tool_space(obs)
        if estimator is not None and obs.images and self.obs_spec.requires.missing(obs.objects, obs.goal):
            estimated = estimator.estimate(obs)
            objects = {**estimated.objects, **obs.objects}  # sent poses override estimated ones
            obs = replace(obs, objects=objects, goal=estimated.goal if obs.goal is None else obs.goal)
        return obs

    def _reply(
        self, request: Request, observation: Observation, chunk: F64 | None, timing: Mapping[str, float]
    ) -> Reply:
        proprio = np.asarray(observation.proprio, np.float64)
        held = chunk is None
        hold = self.robot.hold(proprio)
        planned = np.tile(hold, (self.chunk_size, 1)) if chunk is None else chunk
        actions, n_limited = (planned, 0) if held else limit_actions(planned, hold, self.limits)
        reach = None
        if self.joints is not None:
            actions, reach, n_slowed = self._in_joints(None if held else actions, request.observation)
            n_limited = max(n_limited, n_slowed)
        missing = self.obs_spec.requires.missing(observation.objects, observation.goal)
        result = None if missing else self.agent.retrieval(request.session.slot)
        confidence = 0.0 if result is None else float(result.confidence)
        if result is not None:
            self.metrics.pool_version.set(result.pool_version)
        if confidence == confidence:
            self.metrics.confidence.observe(confidence)
        ref = self.agent.match(request.session.slot)
        match = None
        if result is not None and result.matches and ref is not None:
            match = {"episode_id": ref.episode_id, "t": ref.t, "distance": float(result.matches[0].distance)}
        if self.usage is not None and request.session.robot:
            session = request.session
            self.usage.use(
                session.robot, session.n_episodes, session.steps, **of_reply(match, result), held=held
            )
        return Reply(
            {
                "actions": actions.astype(np.float32),
                "confidence": confidence,
                "held": held,
                "retrieval": match,
                "pool_version": None if result is None else result.pool_version,
                "policy": self.spec.agent.policy,
                "server_timing": dict(timing),
                **({} if reach is None else {"kinematics": reach}),
            },
            held,
            n_limited,
        )

    def _in_joints(
        self, actions: F64 | None, observation: Observation
    ) -> tuple[F64, Mapping[str, float] | None, int]:
        """Joint targets (H, n), their errors, and how many were slowed down; None as actions: hold."""
        assert self.joints is not None
        if actions is None:
            return np.tile(self.wire_robot.hold(observation.proprio), (self.chunk_size, 1)), None, 0
        targets, result = self.joints.command(actions, observation.proprio)
        reach = result.summary()
        self.metrics.unreachable.add(int(result.unreachable.sum()))
        self.metrics.ik_mm.observe(reach["error_mm"])
        self.metrics.ik_deg.observe(reach["error_deg"])
        return targets, reach, int(result.limited.sum())

    def release(self, session: Session) -> None:
        """Free the slot of a closed connection; call it on the policy's thread."""
        self.agent.release(session.slot)


def one_line(error: BaseException) -> str:
    """An error on one line, without traceback."""
    if isinstance(error, RecapError):
        return " ".join(str(error).split())
    return f"{type(error).__name__} within the server: see its log"
