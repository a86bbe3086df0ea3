"""The frozen policy on a task, step by step: observation, retrieval, prediction and action."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.pictures import encode_png
from recap.policies.canonical import camera_image
from recap.pool.store import Pool
from recap.pool.view import PoolSource, PoolView
from recap.retrieval.subtrajectories import source_frame
from recap.running_episode import Plan
from recap.serving.upload_reading import episode_of
from recap.suites import Options
from recap.types import F64, U8, Episode, FrameRef, Observation, Retrieval
from recap_apps.studio.task import DONE, SOLVED, Task, moment
from recap_apps.studio.teaching import PREFIX, attributes_of, free_name, on_board, towards
from recap_client.corrections import CorrectionRecorder
from recap_client.messages import as_message
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.robot import IMAGE_SIZE
from recap_worlds.pusht.tasks import ACTION_SPACE, FPS, MAX_STEPS

PUSHER = "triangle"
FORESEEN_SIZE = 192  # px of the predicted picture
FADED = 0.35  # contrast of the board around it
SLOT = 0
NewAgent: TypeAlias = Callable[[PoolSource, Options], RetrievalAgent]


class Pinned:
    """A pool source that stays at one version."""

    def __init__(self, view: PoolView) -> None:
        self._view = view

    def view(self) -> PoolView:
        """The view of that version."""
        return self._view


@dataclass
class Lane:
    """One episode: an agent on a board, with some version of the pool."""

    agent: RetrievalAgent
    env: PushTEnv
    pool: PoolSource
    t: int = 0
    best: float = 0.0
    n_plans: int = 0
    is_over: bool = False
    pointer: F64 | None = None  # target of a person who drags the pusher; None: the policy drives
    recorder: CorrectionRecorder = field(default_factory=lambda: CorrectionRecorder("", FPS, PUSHER))
    _plan: Plan | None = None
    _target: F64 | None = None

    def advance(self) -> dict[str, Any]:
        """The current state and the next action; then the board moves by one step."""
        size = self.agent.image_size or IMAGE_SIZE
        seen = self.env.observe(size)
        here = moment(self.env)
        self.best = max(self.best, here["coverage"])
        shown = {"t": self.t, **here, "best": self.best, "camera": picture(seen.images["top"])}
        if self.best > DONE or self.t >= MAX_STEPS:
            self.is_over = True
            return {**shown, **self._held(), "end": "solved" if self.best > SOLVED else "unsolved"}
        if self.pointer is not None:
            self._drive(seen, self.pointer)
            return {**shown, "person": True}
        action = self.agent.act([SLOT], [seen])[0]
        found, plan = self.agent.retrieval(SLOT), self.agent.plan(SLOT)
        shown |= self._held()
        if found is not None:
            shown["pool_version"] = found.pool_version
            if found.matches and plan is not None and plan is not self._plan:
                self.n_plans += 1
                shown["plan"] = self._describe(plan, found)
        self._plan = plan
        self._step(seen, action, by_person=False)
        return shown

    def _drive(self, seen: Observation, pointer: F64) -> None:
        """Take one step towards the person's target."""
        self.agent.watch(SLOT, seen)
        here = np.array(self.env.agent.position) if self._target is None else self._target
        self._target = towards(here, pointer).astype(np.float32).astype(np.float64)
        self._step(seen, self._target, by_person=True)

    def _step(self, seen: Observation, action: F64, by_person: bool) -> None:
        self.recorder.add(as_message(seen), action, by_person)
        self.env.step(action)
        self.t += 1

    def hand_back(self, task: Task, taken: frozenset[str]) -> Episode | None:
        """The person's correction with an unused name; None if it is too short."""
        self.pointer = self._target = None
        coverage = self.env.coverage()
        given = self.recorder.finish(coverage > SOLVED)
        if given is None:
            return None
        name = free_name(task, taken, ", correction")
        attributes = {**given["attributes"], **attributes_of(task), "coverage": round(coverage, 4)}
        words = {"id": PREFIX + name, "scene_id": task.scene_id, "action_space": ACTION_SPACE}
        return episode_of({**given, **words, "source": "a person in the studio", "attributes": attributes})

    def _held(self) -> dict[str, Any]:
        """Whether the agent holds still because nothing was retrieved."""
        found = self.agent.retrieval(SLOT)
        return {"holding": True} if found is None or not found.matches else {}

    def _describe(self, plan: Plan, found: Retrieval) -> dict[str, Any]:
        """The reasons for a plan."""
        match, given, n = found.matches[0], plan.conditioning, self.agent.n_action_steps
        body = self.agent.robot().act
        chunk = np.clip(body.out_of(given.frame, plan.chunk.actions.astype(np.float64))[:n], *body.bounds)
        shown = body.out_of(given.frame, given.actions[0].astype(np.float64))[given.valid[0]]
        view = self.agent.retriever.view_of(found)
        ref, last = source_frame(view, given.refs[0]), source_frame(view, given.last_refs[0])
        foreseen = self._foreseen(plan)
        return {
            "number": self.n_plans,
            "episode": ref.episode_id,
            "first": ref.t,
            "last": last.t,
            "distance": round(match.distance, 2),
            "costs": {name: round(cost, 2) for name, cost in match.costs.items()},
            "confidence": None if math.isnan(found.confidence) else round(found.confidence, 4),
            "retrieved": shown.round(1).tolist(),
            "executed": chunk.round(1).tolist(),
            "frames": [_frame(view, given.refs[0]), _frame(view, given.last_refs[0])],
            "foreseen": None if foreseen is None else picture(foreseen),
            "ms": {name: round(value, 3) for name, value in found.timings_ms.items()},
        }

    def _foreseen(self, plan: Plan) -> U8 | None:
        """The predicted picture drawn onto the faded board; None if the policy predicts none."""
        policy, latents = self.agent.policy, plan.chunk.predicted_latents
        if latents is None or policy is None:
            return None
        board = self.env.draw(FORESEEN_SIZE).astype(np.float64)
        faded = (255 - FADED * (255 - board)).astype(np.uint8)
        drawn = policy.decode_frames(latents[:1])[0]
        return camera_image(drawn, plan.conditioning.frame, policy.config.image, policy.aligned, faded)


class Run:
    """The same task and start with several versions of the pool, in parallel."""

    def __init__(
        self, task: Task, pool: Pool, new_agent: NewAgent, versions: Sequence[int | None] = (None,)
    ) -> None:
        self.task, self.pool = task, pool
        self.lanes: list[Lane] = []
        for version in versions:  # None follows the newest version
            source: PoolSource = pool if version is None else Pinned(pool.view_at(version))
            agent = new_agent(source, {"block": task.block})
            agent.reset(SLOT, task)
            self.lanes.append(Lane(agent, task.open(PUSHER), source))

    def point(self, lane: int, x: float, y: float) -> None:
        """A person drags the pusher of a lane, which must use the live pool."""
        if not 0 <= lane < len(self.lanes) or self.lanes[lane].pool is not self.pool:
            raise InputError("this run has the pool as it was: drag the one that follows the pool")
        self.lanes[lane].pointer = on_board(x, y)

    def hand_back(self, lane: int) -> tuple[Episode, int] | None:
        """The person lets go: returns the correction and the pool version with it, if there is one."""
        if not 0 <= lane < len(self.lanes) or self.lanes[lane].pointer is None:
            return None
        episode = self.lanes[lane].hand_back(self.task, frozenset(self.pool.view().episode_ids))
        return None if episode is None else (episode, self.pool.add([episode]))

    @property
    def goal(self) -> F64:
        """The block's target pose: (3,)."""
        return np.array(self.lanes[0].env.goal_pose)

    def views(self) -> list[PoolView]:
        """The pool as each lane currently sees it."""
        return [lane.pool.view() for lane in self.lanes]

    @property
    def is_over(self) -> bool:
        """True if every episode has ended."""
        return all(lane.is_over for lane in self.lanes)

    def advance(self) -> list[dict[str, Any]]:
        """One step of each running episode, with the number of its lane."""
        moving = [(i, lane) for i, lane in enumerate(self.lanes) if not lane.is_over]
        return [{"lane": i, **lane.advance()} for i, lane in moving]


def picture(image: U8) -> str:
    """An image as a data URL."""
    return "data:image/png;base64," + b64encode(encode_png(image)).decode()


def _frame(view: PoolView, ref: FrameRef) -> str | None:
    """A camera frame of the pool."""
    episode = view.episode(ref.episode_id)
    frames = next(iter(episode.images.values()), None)
    return None if frames is None else picture(np.asarray(frames[ref.t], np.uint8))
