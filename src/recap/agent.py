"""The test-time loop: observe, retrieve, predict, execute the chunk; the only part with a state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from recap.assembly import Matching, Reaction
from recap.compatible import check_retriever, refuse_other_robot
from recap.errors import InputError
from recap.kinematics import Reach, joint_space
from recap.pool.view import PoolView, robot_of
from recap.prediction import Given, Predictor
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import in_demonstration
from recap.retrieval.used import UsedMatches
from recap.robot import RobotSpec
from recap.running_episode import Plan, RunningEpisode
from recap.types import (
    F32,
    F64,
    NO_CONTEXT,
    Conditioning,
    FrameRef,
    Match,
    Moment,
    Observation,
    Query,
    Requires,
    Retrieval,
    TaskContext,
)
from recap_client.gate import Gate, Progress

if TYPE_CHECKING:
    import torch

    from recap.policies.policy import TrainedPolicy

RETRIEVAL_PX = 128  # of a simulator's images where retrieval alone looks at them
N_SEEDS = 1_000_003  # apart: noise of one `noise_seed` is never that of another trial


class RetrievalAgent:
    """Retrieves a chunk of the pool for the moment and acts on it: through a policy, or as it is (replay).

    Args:
        retriever: finds the chunk.
        policy: frozen; without one the chunk is moved into the frame of now and acted out.
        n_action_steps: how much of a chunk is executed before the next look; the policy's own by default.
        robot: what the numbers mean; the policy's, or as the pool's first demonstration suggests.
        context: what observations do not show, where `reset` does not say otherwise.
        min_confidence: below it the `reaction` is taken.
        reaction: stay until it is sure again (hold), for good (stop), or act all the same (ignore). With
            nothing retrieved, as from an empty pool, the reaction is taken too; a policy that ignores it acts
            on its weights alone, and replay always stays.
        matching: `random` or `none` in place of the retrieved match, to see what the match is worth.
        residual: False acts out what was retrieved whatever the policy says, to see what the policy is worth.
        residual_halflife: distance of a match at which the residual counts half; 0: it always counts whole.
        gate: holds an action until the robot has come to it; None: a chunk advances with every step.
        noise_seed: another one gives the same trials other noise.
    """

    def __init__(
        self,
        retriever: Retriever,
        policy: TrainedPolicy | None = None,
        *,
        n_action_steps: int | None = None,
        robot: RobotSpec | None = None,
        context: TaskContext = NO_CONTEXT,
        reaction: Reaction = "hold",
        min_confidence: float = 0.0,
        matching: Matching = "retrieved",
        residual: bool = True,
        residual_halflife: float = 0.0,
        gate: Gate | None = None,
        noise_seed: int = 0,
    ) -> None:
        chunk_size = retriever.config.chunk_size
        own = chunk_size if policy is None else policy.config.n_action_steps
        self.n_action_steps = own if n_action_steps is None else n_action_steps
        if not 1 <= self.n_action_steps <= chunk_size:
            raise InputError(f"n_action_steps {self.n_action_steps} is not within 1…{chunk_size}")
        self._robot = robot if policy is None or robot is not None else policy.config.robot
        if self._robot is not None:
            retriever.config.aligner.refuse(self._robot, context.embodiment)  # before anything moves
        self.retriever = retriever
        self.context = context
        self.reaction, self.min_confidence = reaction, min_confidence
        self.matching = matching
        self.predictor = Predictor(policy, residual, residual_halflife)
        self.gate = gate
        self.noise_seed = noise_seed
        self.image_size: int | None = None
        self.joints = joint_space(self._robot)
        self.reach: dict[int, Reach] = {}  # slot -> how near the joints of its last action bring the tools
        if policy is not None:
            check_retriever(policy, retriever)
            self.image_size = policy.config.image.camera_size if policy.config.sees else None
        if self.image_size is None and retriever.requires.cameras:
            self.image_size = RETRIEVAL_PX
        first_only = policy is None and bool(retriever.requires.cameras) and retriever.sees_first_only
        self._looks = not first_only
        self._episodes: dict[int, RunningEpisode | None] = {}
        self._dice: dict[int, torch.Generator] = {}
        self._contexts: dict[int, TaskContext] = {}
        self._excluded: dict[int, frozenset[str]] = {}
        self.timings_ms: Mapping[str, float] = {}  # of the last planning, all slots together
        self._checked: PoolView | None = None
        self.on_use: Callable[[int, Retrieval], None] = lambda slot, found: None  # what a chunk is made from

    def reset(
        self,
        slot: int,
        trial: object,
        context: TaskContext | None = None,
        exclude: frozenset[str] = frozenset(),
    ) -> None:
        """A new episode begins in that slot.

        Args:
            trial: its seed is the seed of the noise.
            exclude: ids of episodes or scenes that are not retrieved.
        """
        self._episodes[slot], self._excluded[slot] = None, exclude
        self._contexts[slot] = self.context if context is None else context
        if self.policy is not None or self.matching == "random":
            import torch

            seed = int(getattr(trial, "seed", 0)) + N_SEEDS * self.noise_seed
            self._dice[slot] = torch.Generator().manual_seed(seed)

    @property
    def policy(self) -> TrainedPolicy | None:
        """Frozen; None: replay."""
        return self.predictor.policy

    @property
    def requires(self) -> Requires:
        """What must be seen before it acts: by retrieval, and by the policy."""
        found = self.retriever.requires
        if self.policy is not None and self.policy.config.sees:
            found |= Requires(cameras=self.policy.config.image.cameras)
        return found

    def robot(self) -> RobotSpec:
        """What the numbers mean."""
        if self._robot is None:
            self._robot = robot_of(self.retriever.source.view())
            if self._robot is None:
                raise InputError("the pool is empty and there is no policy: nothing says what an action is")
            self.retriever.config.aligner.refuse(self._robot, self.context.embodiment)
        return self._robot

    def release(self, slot: int) -> None:
        """Forget a slot that will not be used again."""
        for kept in (self._episodes, self._dice, self._contexts, self._excluded, self.reach):
            kept.pop(slot, None)

    def retrieval(self, slot: int) -> Retrieval | None:
        """The last one of that slot's episode."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.retrieval

    def match(self, slot: int) -> FrameRef | None:
        """The moment that it chose, in the demonstration as it was recorded."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.match

    def plan(self, slot: int) -> Plan | None:
        """The last chunk of that slot's episode, and what it was made from."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.plan

    def wants_pictures(self, slot: int) -> bool:
        """Whether the slot's next observation needs its pictures: when a chunk is to be planned."""
        episode = self._episodes.get(slot)
        if episode is None or self.requires.objects:
            return True  # images may be where an object's pose comes from
        if not self._looks or not episode.queue:
            return self._looks
        return episode.retrieval is not None and self.retriever.is_stale(episode.retrieval)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """One action a slot: (n, a). All that need a new chunk are served by one call of the policy.

        A robot with a kinematic model may be observed in joints; its actions are then in joints.
        """
        waiting: list[tuple[int, RunningEpisode]] = []
        held: dict[int, F64] = {}
        seen = [self.in_tool_space(observation) for observation in observations]
        for slot, observation in zip(slots, seen, strict=True):
            episode = self.see(slot, observation)
            known = self._episodes.get(slot)
            again = None if known is None else known.progress.again(observation.proprio)
            if again is not None:
                held[slot] = again
            elif episode is not None and not episode.queue and not episode.stopped:
                waiting.append((slot, episode))
        self._plan(waiting)
        actions = [held[s] if s in held else self._next(s, o) for s, o in zip(slots, seen, strict=True)]
        each = zip(slots, actions, observations, seen, strict=True)
        return np.array([self._sent(*one) for one in each], np.float64)

    def in_tool_space(self, observation: Observation) -> Observation:
        """With the tool poses of the joints that a robot with a kinematic model sends."""
        if self.joints is None or not self.joints.holds_joints(observation.proprio):
            return observation
        return replace(observation, proprio=self.joints.tool(observation.proprio))

    def _sent(self, slot: int, action: F64, observation: Observation, seen: Observation) -> F64:
        """As the robot takes it: in joints, where it sends joints."""
        if self.joints is None or seen is observation:
            return action
        if np.array_equal(action, self.robot().hold(seen.proprio)):
            return self.joints.robot.hold(observation.proprio)  # to the bit
        sent, self.reach[slot] = self.joints.command(action[None], observation.proprio)
        return np.asarray(sent[0])

    def replan(
        self, slots: Sequence[int], observations: Sequence[Observation], executed: Sequence[int] | None = None
    ) -> list[F64 | None]:
        """A whole chunk a slot, planned now: (H, a); None where nothing is seen or it is too unsure to move.

        Args:
            executed: how many actions of the slot's last chunk were carried out since; n_action_steps if not
                given. A chunk that was hardly begun is hardly a reason to avoid its match.
        """
        steps = executed or [self.n_action_steps] * len(slots)
        waiting: list[tuple[int, RunningEpisode]] = []
        planned: list[RunningEpisode | None] = []
        for slot, observation, n in zip(slots, observations, steps, strict=True):
            episode = self.see(slot, observation)
            planned.append(episode)
            if episode is not None:
                episode.drop()
                episode.chunk = None
                episode.used.take_back(1 - min(n / self.n_action_steps, 1.0))
                if episode.led_to is not None and episode.plan is not None:
                    begun = episode.plan.given.refs[0]
                    episode.led_to = FrameRef(begun.episode_id, begun.t + n)
                if not episode.stopped:
                    waiting.append((slot, episode))
        self._plan(waiting)
        return [None if episode is None else episode.chunk for episode in planned]

    def watch(self, slot: int, observation: Observation) -> None:
        """Someone else acts: remember what is seen, and drop what was planned."""
        episode = self.see(slot, self.in_tool_space(observation))
        if episode is not None:
            episode.drop()
            episode.led_to = None

    def see(self, slot: int, observation: Observation) -> RunningEpisode | None:
        """The slot's episode with what is seen now; None while what retrieval needs is not seen."""
        episode = self._episodes.get(slot)
        if self.requires.missing(observation.objects, observation.goal) is not None:
            return None
        if episode is None:
            used, progress = UsedMatches(self.retriever.config), Progress(self.gate)
            episode = self._episodes[slot] = RunningEpisode(observation, used, progress)
        if not self._looks and not observation.images:
            observation = replace(observation, images=episode.first.images)
        episode.window.append(observation)
        if episode.retrieval is not None and self.retriever.is_stale(episode.retrieval):
            episode.drop()  # the pool has changed: what came in may fit better
        return episode

    def n_held(self, slot: int) -> int:
        """In how many steps of its episode the gate held the chunk."""
        episode = self._episodes.get(slot)
        return 0 if episode is None else episode.progress.n_held

    def _next(self, slot: int, observation: Observation) -> F64:
        """The next action of the chunk; without one, because nothing was seen or it is too unsure, stay."""
        episode = self._episodes.get(slot)
        action = episode.queue.popleft() if episode is not None and episode.queue else None
        if episode is not None:
            episode.progress.send(action)
        return self.robot().hold(observation.proprio) if action is None else action

    def _plan(self, waiting: Sequence[tuple[int, RunningEpisode]]) -> None:
        """Retrieve for each, predict for all together, and queue the actions in the world."""
        ready: list[Given] = []
        planned: list[tuple[int, RunningEpisode]] = []
        started = time.perf_counter()
        retrieves = self.policy is None or (self.policy.config.retrieval and self.matching != "none")
        if waiting:
            self._check_pool()
        for slot, episode in waiting:
            found = self._retrieve(slot, episode)
            # Written so that nan, a pool too small to tell, is unsure.
            doubtful = self.min_confidence > 0 and not found.confidence >= self.min_confidence
            unsure = retrieves and (doubtful or not found.matches)
            episode.stopped = unsure and self.reaction == "stop"
            nothing = not found.matches and self.policy is None
            if not (nothing or (unsure and self.reaction != "ignore")):
                ready.append(self._condition(slot, episode, found))
                planned.append((slot, episode))
        retrieved = time.perf_counter()
        ready = self.predictor.with_latents(ready)
        chunks = self.predictor.predict(ready)
        predicted = time.perf_counter()
        self.timings_ms = {
            "retrieval": 1000 * (retrieved - started),
            "policy": 1000 * (predicted - retrieved),
        }
        for (slot, episode), one, chunk in zip(planned, ready, chunks, strict=True):
            found, given = one.found, one.given
            episode.plan = Plan(found, given, chunk)
            n = self.n_action_steps
            if self.predictor.acts_out(given):
                n = min(n, int(given.valid[0].sum()))  # past its end a demonstration shows nothing
            episode.chunk = self.executed(given, chunk.actions)
            episode.queue.extend(episode.chunk[:n])
            episode.led_to = None
            for match in found.matches[:1]:
                episode.led_to = FrameRef(match.ref.episode_id, match.ref.t + n)
                episode.used.charge(match.ref)
                self.on_use(slot, found)

    def executed(self, given: Conditioning, actions: F32) -> F64:
        """A chunk (H, a) of the given frame as it is sent: in the world, within limits."""
        body, chunk = self.robot().act, actions.astype(np.float64)
        if not self.retriever.config.aligner.in_world:
            chunk = body.out_of(given.frame, chunk)
        if not np.isfinite(chunk).all():
            raise InputError("the policy predicts a number that is not finite: nothing is sent")
        return np.asarray(np.clip(chunk, *body.bounds))

    def _retrieve(self, slot: int, episode: RunningEpisode) -> Retrieval:
        if self.policy is not None and not self.policy.config.retrieval:
            episode.retrieval = Retrieval((), self.retriever.index().version, (), 0.0, {})  # it does not look
            return episode.retrieval
        query = Query(
            tuple(episode.window),
            episode.first,
            self._contexts.get(slot, self.context),
            self._excluded.get(slot, frozenset()),
            avoid=tuple(episode.used.penalties.items()),
            follow=episode.led_to,
        )
        found = self.retriever.retrieve(query, episode.retrieval)
        if self.matching != "retrieved":
            found = replace(found, matches=self._other_match(slot, found))
        episode.retrieval, episode.match = found, None
        if found.matches:  # looked up now: another slot may find the pool changed
            episode.match = in_demonstration(self.retriever.view_of(found), found.matches[0].ref)
        return found

    def _other_match(self, slot: int, found: Retrieval) -> tuple[Match, ...]:
        """Any moment of the pool, or none."""
        index = self.retriever.index()
        if self.matching == "none" or not index.episode_ids:
            return ()
        import torch

        dice = self._dice.get(slot)
        number, t = index.any_moment(lambda n: int(torch.randint(n, (1,), generator=dice)))
        ref = FrameRef(index.episode_ids[number], t)
        return (Match(ref, np.inf, {}),)

    def _condition(self, slot: int, episode: RunningEpisode, found: Retrieval) -> Given:
        config = self.retriever.config
        number = found.matches[0].symmetry_index if found.matches else 0
        seen = [episode.window[-1]]
        if config.aligner.from_start:
            kept = config.aligner.requires.cameras
            seen = [o.seen_by(kept) for o in (episode.first, episode.window[-1])]
        moment = Moment.of(seen, self._contexts.get(slot, self.context), number)
        view = self.retriever.view_of(found)
        refs = [match.ref for match in found.matches[:1]]
        given = build_conditioning(view, refs, moment, len(seen) - 1, config, self.robot())
        return Given(episode.window[-1], found, given, view, self._dice.get(slot))

    def _check_pool(self) -> None:
        """A pool of another robot is refused before anything moves."""
        view = self.retriever.source.view()
        if self.policy is None or view is self._checked or not view.episode_ids:
            return
        refuse_other_robot(self.policy.config.robot, view)
        self._checked = view
