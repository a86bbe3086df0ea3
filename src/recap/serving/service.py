"""What is served: a frozen policy or replay, a pool that may grow, and an agent with a slot a connection."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recap import __version__
from recap.agent import RetrievalAgent
from recap.assembly import assemble_agent, load_policy, pusht_bodies
from recap.envs.pusht.gaze import Gaze
from recap.envs.pusht.tasks import ACTION_SPACE, FPS, INSTRUCTION
from recap.errors import InputError, RecapError
from recap.pool.store import Pool
from recap.pool.view import PoolSource
from recap.retrieval.hindsight import in_origin
from recap.serving.limits import limit_actions
from recap.serving.metrics import Metrics
from recap.serving.observations import IMAGE, STATE, Look, Reset, fit_image
from recap.serving.spec import ServeSpec
from recap.standard_pools import open_pool
from recap.types import F64, Match, Observation

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy

__all__ = ["Reply", "Request", "ServeSpec", "Service", "Session", "one_line"]

STATE_DIM = 2  # of a robot that replays: a position on the board
CAMERA_SIZE = 96  # px that are enough to find poses in


@dataclass
class Session:
    """One connection's running episode; touched by the thread that computes, but for `fresh`."""

    slot: int
    gaze: Gaze
    fresh: Reset | None = None  # a reset that has come and is not yet carried out
    n_episodes: int = 0
    steps: int = 0  # control steps since the episode began


@dataclass(frozen=True, slots=True)
class Request:
    """A connection's moment to be acted on."""

    session: Session
    observation: Observation
    executed: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back, and whether it only holds still."""

    message: Mapping[str, Any]
    held: bool
    n_limited: int


class Service:
    """Holds the policy, the pool and the agent; `open` makes one."""

    def __init__(
        self,
        spec: ServeSpec,
        pool: PoolSource,
        policy: TrainedPolicy | None = None,
        source: PoolSource | None = None,
    ) -> None:
        self.spec, self.pool, self.policy = spec, pool, policy
        self.metrics = Metrics()
        self.agent = self.new_agent(source or pool)
        config = self.agent.retriever.config
        self.look = Look(
            camera="top" if policy is None else policy.config.image.cameras[0],
            camera_size=self.agent.image_size,
            state_dim=STATE_DIM if policy is None else policy.config.proprio_dim,
            object_name=config.object_name,
            default_prompt=INSTRUCTION,
        )
        self.chunk_size = config.chunk_size
        lasts_ms = 1000 * self.agent.n_action_steps / FPS
        self.budget_ms = lasts_ms if spec.limits.budget_ms is None else spec.limits.budget_ms
        self._n_sessions = 0

    @classmethod
    def open(cls, spec: ServeSpec) -> Service:
        """Load the policy and open the pool."""
        pool = open_pool(spec.pool)
        policy = load_policy(spec.agent_spec())
        if policy is not None:
            _set_threads(spec.n_threads)
        # A view of its own: a writer that waits for its turn must not hold up the policy.
        source = Pool.open(pool.uri) if isinstance(pool, Pool) else pool
        service = cls(spec, pool, policy, source)
        service.warm_up()
        return service

    @property
    def store(self) -> Pool:
        """The pool to change; an InputError where what is served is a snapshot."""
        if not isinstance(self.pool, Pool):
            raise InputError(
                "this pool is a snapshot and cannot be changed: serve one of your own with --pool"
            )
        return self.pool

    @property
    def is_writable(self) -> bool:
        """Whether the pool can be changed."""
        return isinstance(self.pool, Pool)

    @property
    def fingerprint(self) -> str:
        """Of the weights; of replay, of how it chooses."""
        if self.policy is None:
            return self.agent.retriever.config.fingerprint[:12]
        return self.policy.fingerprint

    def new_agent(self, source: PoolSource | None = None, block: str | None = None) -> RetrievalAgent:
        """Another agent of the same kind, by default over the same pool."""
        return assemble_agent(self.spec.agent_spec(block), source or self.pool, self.policy)

    def metadata(self) -> dict[str, Any]:
        """What a robot is told first; on the thread that computes."""
        action_dim = STATE_DIM if self.policy is None else self.policy.config.action_dim
        return {
            "server": f"recap {__version__}",
            "policy": self.spec.agent,
            "fingerprint": self.fingerprint,
            "mode": self.spec.mode,
            "action_horizon": self.chunk_size,
            "n_action_steps": self.agent.n_action_steps,
            "action_dim": action_dim,
            "action_space": ACTION_SPACE,
            "state_dim": self.look.state_dim,
            "state_key": STATE,
            "image_key": IMAGE,
            "camera_size": self.look.camera_size or CAMERA_SIZE,
            "image_required": self.look.camera_size is not None,  # else only where poses are not sent
            "control_hz": FPS,
            "budget_ms": self.budget_ms,
            "block": self.spec.block,
            "reaction": self.spec.reaction,
            "min_confidence": self.spec.min_confidence,
            "action_low": self.spec.limits.box[0],
            "action_high": self.spec.limits.box[1],
            "max_step": self.spec.limits.max_step,
            "pool_version": self.agent.retriever.source.view().version,
            "reset": "a new connection, or {'reset': true, 'seed': n, 'block': name}, begins an episode",
        }

    def warm_up(self) -> None:
        """Compile and lay out what the first request would wait for."""
        from recap.envs.pusht.env import PushTEnv

        board = PushTEnv(self.spec.pusher or "disc", block=self.spec.block)
        board.reset(seed=0)
        session = self.new_session()
        seen = board.observe(self.look.camera_size or CAMERA_SIZE, with_poses=False)
        images = {self.look.camera: next(iter(seen.images.values()))}
        for _ in range(2):  # eyes that have seen a board look for it otherwise than the first time
            self.serve([Request(session, replace(seen, images=images))])
        self.release(session)
        self.metrics = Metrics()

    def new_session(self) -> Session:
        """A place for a new connection."""
        self._n_sessions += 1
        return Session(self._n_sessions, Gaze(self.spec.block, self.spec.pusher), fresh=Reset())

    def serve(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """Answer requests of different connections by one call of the policy; runs on one thread only."""
        try:
            return list(self._serve(requests))
        except Exception:
            if len(requests) == 1:
                raise
        return [self._alone(request) for request in requests]  # whatever is wrong is wrong with one of them

    def _alone(self, request: Request) -> Reply | Exception:
        try:
            return self._serve([request])[0]
        except Exception as error:
            return error

    def _serve(self, requests: Sequence[Request]) -> list[Reply]:
        started = time.perf_counter()
        for request in requests:
            self._begin(request)
        seen = [self._see(request) for request in requests]
        looked = time.perf_counter()
        slots = [request.session.slot for request in requests]
        n = self.agent.n_action_steps
        executed = [n if r.executed is None else r.executed for r in requests]
        chunks = self.agent.replan(slots, seen, executed)
        timings = self.agent.timings_ms
        self.metrics.vision.observe(looked - started)
        self.metrics.retrieval.observe(timings["retrieval"] / 1000)
        self.metrics.policy.observe(timings["policy"] / 1000)
        spent = {"vision_ms": 1000 * (looked - started), "batch_size": len(requests)}
        spent |= {f"{key}_ms": value for key, value in timings.items()}
        return [self._reply(r, o, c, spent) for r, o, c in zip(requests, seen, chunks, strict=True)]

    def _begin(self, request: Request) -> None:
        """Carry out a reset, else count the steps since the last request."""
        session, fresh = request.session, request.session.fresh
        if fresh is None:
            session.steps += self.agent.n_action_steps if request.executed is None else request.executed
            return
        block = fresh.block or session.gaze.block
        session.gaze = Gaze(block, self.spec.pusher)
        seed = session.n_episodes if fresh.seed is None else fresh.seed
        self.agent.reset(session.slot, _Seeded(seed), pusht_bodies(block, self.spec.pusher or ""))
        session.fresh, session.steps = None, 0
        session.n_episodes += 1

    def _see(self, request: Request) -> Observation:
        """The observation with every pose it needs, as far as it can be found in the picture."""
        given = request.observation
        if np.isnan(given.time_s):
            given = replace(given, time_s=request.session.steps / FPS)
        name = self.look.object_name
        if given.goal is None or name not in given.objects:
            found = request.session.gaze.look(given)
            objects = {**found.objects, **given.objects}  # what was sent goes before what was seen
            given = replace(given, objects=objects, goal=found.goal if given.goal is None else given.goal)
        size = self.look.camera_size
        if size is None:
            return given
        return replace(given, images={key: fit_image(image, size) for key, image in given.images.items()})

    def _reply(
        self, request: Request, seen: Observation, chunk: F64 | None, spent: Mapping[str, float]
    ) -> Reply:
        here = np.asarray(seen.proprio, np.float64)
        held = chunk is None
        wanted = np.tile(here, (self.chunk_size, 1)) if chunk is None else chunk
        actions, n_limited = (wanted, 0) if held else limit_actions(wanted, here, self.spec.limits)
        visible = self.look.object_name in seen.objects and seen.goal is not None
        found = self.agent.retrieval(request.session.slot) if visible else None
        confidence = 0.0 if found is None else float(found.confidence)
        if found is not None:
            self.metrics.pool_version.set(found.pool_version)
        if confidence == confidence:
            self.metrics.confidence.observe(confidence)
        match = found.matches[0] if found is not None and found.matches else None
        return Reply(
            {
                "actions": actions.astype(np.float32),
                "confidence": confidence,
                "held": held,
                "retrieval": None if match is None else _told(match),
                "pool_version": None if found is None else found.pool_version,
                "policy": self.spec.agent,
                "server_timing": dict(spent),
            },
            held,
            n_limited,
        )

    def release(self, session: Session) -> None:
        """Forget a connection that has gone; on the thread that computes."""
        self.agent.release(session.slot)


@dataclass(frozen=True, slots=True)
class _Seeded:
    """What an agent asks of a trial."""

    seed: int


def _told(match: Match) -> dict[str, Any]:
    """A match by the demonstration it is part of."""
    ref = in_origin(match.ref)
    return {"episode_id": ref.episode_id, "t": ref.t, "distance": float(match.distance)}


def _set_threads(n: int | None) -> None:
    """Leave a core to the event loop: threads that wait for each other hold everything up."""
    import torch

    torch.set_num_threads(n or max(1, (os.cpu_count() or 1) - 1))


def one_line(error: BaseException) -> str:
    """What went wrong, without its trace."""
    if isinstance(error, RecapError):
        return " ".join(str(error).split())
    return f"{type(error).__name__} within the server: see its log"
