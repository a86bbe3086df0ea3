"""The test-time loop: observe, retrieve, predict, execute the chunk. It keeps the state of each episode."""

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
from recap.prediction import PolicyInput, Predictor
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import source_frame
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

RETRIEVAL_PX = 128  # size of a simulator's images if only retrieval uses them
N_SEEDS = 1_000_003  # spacing of the seeds, so that no two pairs (trial seed, noise_seed) share their noise


class RetrievalAgent:
    """Retrieves the chunk that best matches the present. A policy corrects it; without one it is replayed.

    Args:
        retriever: searches the pool.
        policy: frozen. Without one, the retrieved chunk is transformed to the current scene and executed.
        n_action_steps: actions of a chunk to execute before the next retrieval; default: the policy's.
        robot: the robot description; default: the policy's, or inferred from the pool's first demonstration.
        context: what observations do not show; `reset` can replace it.
        min_confidence: confidence below which the `reaction` applies.
        reaction: stay in place until confidence returns (hold), or until the next reset (stop), or act anyway
            (ignore). It also applies if nothing is retrieved, as from an empty pool. Then a policy with
            `ignore` acts without retrieval, and replay always stays in place.
        matching: `random` or `none` instead of the retrieved match: controls for the effect of the match.
        residual: False executes the retrieved chunk without the residual: a control for the policy's effect.
        residual_halflife: match distance at which the residual counts half; 0: it always counts fully.
        gate: repeats an action until the robot has reached it; None: the chunk advances at every step.
        noise_seed: changes the noise of the same trials.
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
        default = chunk_size if policy is None else policy.config.n_action_steps
        self.n_action_steps = default if n_action_steps is None else n_action_steps
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
        self.reach: dict[int, Reach] = {}  # slot -> tool error of its last action in joints
        if policy is not None:
            check_retriever(policy, retriever)
            self.image_size = policy.config.image.camera_size if policy.config.sees else None
        if self.image_size is None and retriever.requires.cameras:
            self.image_size = RETRIEVAL_PX
        first_only = policy is None and bool(retriever.requires.cameras) and retriever.sees_first_only
        self._needs_images = not first_only
        self._episodes: dict[int, RunningEpisode | None] = {}
        self._generators: dict[int, torch.Generator] = {}
        self._contexts: dict[int, TaskContext] = {}
        self._excluded: dict[int, frozenset[str]] = {}
        self.timings_ms: Mapping[str, float] = {}  # of the last planning call, over all slots
        self._checked_view: PoolView | None = None
        self.on_use: Callable[[int, Retrieval], None] = lambda slot, retrieval: None  # called per chunk

    def reset(
        self,
        slot: int,
        trial: object,
        context: TaskContext | None = None,
        exclude: frozenset[str] = frozenset(),
    ) -> None:
        """Begin a new episode in that slot.

        Args:
            trial: its `seed` attribute seeds the noise.
            exclude: ids of episodes or scenes that must not be retrieved.
        """
        self._episodes[slot], self._excluded[slot] = None, exclude
        self._contexts[slot] = self.context if context is None else context
        if self.policy is not None or self.matching == "random":
            import torch

            seed = int(getattr(trial, "seed", 0)) + N_SEEDS * self.noise_seed
            self._generators[slot] = torch.Generator().manual_seed(seed)

    @property
    def policy(self) -> TrainedPolicy | None:
        """The frozen policy, or None for replay."""
        return self.predictor.policy

    @property
    def requires(self) -> Requires:
        """The objects, goal and cameras that retrieval and the policy need."""
        needs = self.retriever.requires
        if self.policy is not None and self.policy.config.sees:
            needs |= Requires(cameras=self.policy.config.image.cameras)
        return needs

    def robot(self) -> RobotSpec:
        """The robot description, inferred from the pool if none was given."""
        if self._robot is None:
            self._robot = robot_of(self.retriever.source.view())
            if self._robot is None:
                raise InputError("the pool is empty and there is no policy: nothing says what an action is")
            self.retriever.config.aligner.refuse(self._robot, self.context.embodiment)
        return self._robot

    def release(self, slot: int) -> None:
        """Free the state of a slot that will not be used again."""
        for states in (self._episodes, self._generators, self._contexts, self._excluded, self.reach):
            states.pop(slot, None)

    def retrieval(self, slot: int) -> Retrieval | None:
        """The last retrieval of that slot's episode."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.retrieval

    def match(self, slot: int) -> FrameRef | None:
        """The frame of its best match, in the demonstration as recorded (not in a sub-trajectory)."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.match

    def plan(self, slot: int) -> Plan | None:
        """The last chunk of that slot's episode, with its retrieval and conditioning."""
        episode = self._episodes.get(slot)
        return None if episode is None else episode.plan

    def needs_images(self, slot: int) -> bool:
        """True if the slot's next observation needs images, because a chunk will be planned from it."""
        episode = self._episodes.get(slot)
        if episode is None or self.requires.objects:
            return True  # object poses may be estimated from images
        if not self._needs_images or not episode.queue:
            return self._needs_images
        return episode.retrieval is not None and self.retriever.is_stale(episode.retrieval)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """One action per slot: (n, a). Slots that need a new chunk share one call of the policy.

        If a robot with a kinematic model is observed in joints, its actions are in joints too.
        """
        waiting: list[tuple[int, RunningEpisode]] = []
        held: dict[int, F64] = {}
        converted = [self.in_tool_space(observation) for observation in observations]
        for slot, observation in zip(slots, converted, strict=True):
            episode = self.observe(slot, observation)
            running = self._episodes.get(slot)
            repeated = None if running is None else running.progress.again(observation.proprio)
            if repeated is not None:
                held[slot] = repeated
            elif episode is not None and not episode.queue and not episode.stopped:
                waiting.append((slot, episode))
        self._plan(waiting)
        actions = [held[s] if s in held else self._next(s, o) for s, o in zip(slots, converted, strict=True)]
        each = zip(slots, actions, observations, converted, strict=True)
        return np.array([self._to_robot(*one) for one in each], np.float64)

    def in_tool_space(self, observation: Observation) -> Observation:
        """The observation with tool poses, if a robot with a kinematic model sent joints."""
        if self.joints is None or not self.joints.holds_joints(observation.proprio):
            return observation
        return replace(observation, proprio=self.joints.tool(observation.proprio))

    def _to_robot(self, slot: int, action: F64, observation: Observation, converted: Observation) -> F64:
        """The action as the robot takes it: in joints if it was observed in joints."""
        if self.joints is None or converted is observation:
            return action
        if np.array_equal(action, self.robot().hold(converted.proprio)):
            return self.joints.robot.hold(observation.proprio)  # exactly the joints that were observed
        sent, self.reach[slot] = self.joints.command(action[None], observation.proprio)
        return np.asarray(sent[0])

    def replan(
        self, slots: Sequence[int], observations: Sequence[Observation], executed: Sequence[int] | None = None
    ) -> list[F64 | None]:
        """Plan a chunk (H, a) for each slot now; None if a required object is missing or confidence is low.

        Args:
            executed: how many actions of each slot's last chunk were executed; default: n_action_steps. The
                fewer, the smaller the penalty that its match keeps.
        """
        steps = executed or [self.n_action_steps] * len(slots)
        waiting: list[tuple[int, RunningEpisode]] = []
        planned: list[RunningEpisode | None] = []
        for slot, observation, n in zip(slots, observations, steps, strict=True):
            episode = self.observe(slot, observation)
            planned.append(episode)
            if episode is not None:
                episode.drop()
                episode.chunk = None
                episode.used.take_back(1 - min(n / self.n_action_steps, 1.0))
                if episode.expected_frame is not None and episode.plan is not None:
                    start = episode.plan.conditioning.refs[0]
                    episode.expected_frame = FrameRef(start.episode_id, start.t + n)
                if not episode.stopped:
                    waiting.append((slot, episode))
        self._plan(waiting)
        return [None if episode is None else episode.chunk for episode in planned]

    def watch(self, slot: int, observation: Observation) -> None:
        """Record an observation while someone else acts, and drop the planned actions."""
        episode = self.observe(slot, self.in_tool_space(observation))
        if episode is not None:
            episode.drop()
            episode.expected_frame = None

    def observe(self, slot: int, observation: Observation) -> RunningEpisode | None:
        """Add an observation to the slot's episode; None if an object or goal that it needs is missing."""
        episode = self._episodes.get(slot)
        if self.requires.missing(observation.objects, observation.goal) is not None:
            return None
        if episode is None:
            used, progress = UsedMatches(self.retriever.config), Progress(self.gate)
            episode = self._episodes[slot] = RunningEpisode(observation, used, progress)
        if not self._needs_images and not observation.images:
            observation = replace(observation, images=episode.first.images)
        episode.window.append(observation)
        if episode.retrieval is not None and self.retriever.is_stale(episode.retrieval):
            episode.drop()  # the pool has changed: a new demonstration may match better
        return episode

    def n_held(self, slot: int) -> int:
        """The number of steps of the slot's episode in which the gate held the chunk."""
        episode = self._episodes.get(slot)
        return 0 if episode is None else episode.progress.n_held

    def _next(self, slot: int, observation: Observation) -> F64:
        """The next action of the chunk, or the action that stays in place if there is no chunk."""
        episode = self._episodes.get(slot)
        action = episode.queue.popleft() if episode is not None and episode.queue else None
        if episode is not None:
            episode.progress.send(action)
        return self.robot().hold(observation.proprio) if action is None else action

    def _plan(self, waiting: Sequence[tuple[int, RunningEpisode]]) -> None:
        """Retrieve for each slot, predict for all in one batch, and queue the actions in the world frame."""
        inputs: list[PolicyInput] = []
        planned: list[tuple[int, RunningEpisode]] = []
        started = time.perf_counter()
        retrieves = self.policy is None or (self.policy.config.retrieval and self.matching != "none")
        if waiting:
            self._check_pool()
        for slot, episode in waiting:
            retrieval = self._retrieve(slot, episode)
            # `not >=` instead of `<`: the confidence of a pool that is too small is nan, which counts as low.
            uncertain = self.min_confidence > 0 and not retrieval.confidence >= self.min_confidence
            unsure = retrieves and (uncertain or not retrieval.matches)
            episode.stopped = unsure and self.reaction == "stop"
            no_chunk = not retrieval.matches and self.policy is None
            if not (no_chunk or (unsure and self.reaction != "ignore")):
                inputs.append(self._condition(slot, episode, retrieval))
                planned.append((slot, episode))
        retrieved = time.perf_counter()
        inputs = self.predictor.with_latents(inputs)
        chunks = self.predictor.predict(inputs)
        predicted = time.perf_counter()
        self.timings_ms = {
            "retrieval": 1000 * (retrieved - started),
            "policy": 1000 * (predicted - retrieved),
        }
        for (slot, episode), item, chunk in zip(planned, inputs, chunks, strict=True):
            retrieval, conditioning = item.retrieval, item.conditioning
            episode.plan = Plan(retrieval, conditioning, chunk)
            n = self.n_action_steps
            if self.predictor.replays(conditioning):
                n = min(n, int(conditioning.valid[0].sum()))  # a demonstration has no actions past its end
            episode.chunk = self.to_world(conditioning, chunk.actions)
            episode.queue.extend(episode.chunk[:n])
            episode.expected_frame = None
            for match in retrieval.matches[:1]:
                episode.expected_frame = FrameRef(match.ref.episode_id, match.ref.t + n)
                episode.used.charge(match.ref)
                self.on_use(slot, retrieval)

    def to_world(self, conditioning: Conditioning, actions: F32) -> F64:
        """A chunk (H, a) in the canonical frame, transformed to the world and clipped to the limits."""
        body, chunk = self.robot().act, actions.astype(np.float64)
        if not self.retriever.config.aligner.in_world:
            chunk = body.out_of(conditioning.frame, chunk)
        if not np.isfinite(chunk).all():
            raise InputError("the policy predicts a number that is not finite: nothing is sent")
        return np.asarray(np.clip(chunk, *body.bounds))

    def _retrieve(self, slot: int, episode: RunningEpisode) -> Retrieval:
        if self.policy is not None and not self.policy.config.retrieval:
            episode.retrieval = Retrieval((), self.retriever.index().version, (), 0.0, {})  # unused
            return episode.retrieval
        query = Query(
            tuple(episode.window),
            episode.first,
            self._contexts.get(slot, self.context),
            self._excluded.get(slot, frozenset()),
            avoid=tuple(episode.used.penalties.items()),
            follow=episode.expected_frame,
        )
        retrieval = self.retriever.retrieve(query, episode.retrieval)
        if self.matching != "retrieved":
            retrieval = replace(retrieval, matches=self._control_match(slot, retrieval))
        episode.retrieval, episode.match = retrieval, None
        if retrieval.matches:  # now, because a later slot may see a changed pool
            episode.match = source_frame(self.retriever.view_of(retrieval), retrieval.matches[0].ref)
        return retrieval

    def _control_match(self, slot: int, retrieval: Retrieval) -> tuple[Match, ...]:
        """A random frame of the pool, or no match."""
        index = self.retriever.index()
        if self.matching == "none" or not index.episode_ids:
            return ()
        import torch

        generator = self._generators.get(slot)
        number, t = index.any_moment(lambda n: int(torch.randint(n, (1,), generator=generator)))
        ref = FrameRef(index.episode_ids[number], t)
        return (Match(ref, np.inf, {}),)

    def _condition(self, slot: int, episode: RunningEpisode, retrieval: Retrieval) -> PolicyInput:
        config = self.retriever.config
        number = retrieval.matches[0].symmetry_index if retrieval.matches else 0
        observations = [episode.window[-1]]
        if config.aligner.from_start:
            kept = config.aligner.requires.cameras
            observations = [o.seen_by(kept) for o in (episode.first, episode.window[-1])]
        moment = Moment.of(observations, self._contexts.get(slot, self.context), number)
        view = self.retriever.view_of(retrieval)
        refs = [match.ref for match in retrieval.matches[:1]]
        conditioning = build_conditioning(view, refs, moment, len(observations) - 1, config, self.robot())
        return PolicyInput(episode.window[-1], retrieval, conditioning, view, self._generators.get(slot))

    def _check_pool(self) -> None:
        """Refuse a pool of another robot before the robot moves."""
        view = self.retriever.source.view()
        if self.policy is None or view is self._checked_view or not view.episode_ids:
            return
        refuse_other_robot(self.policy.config.robot, view)
        self._checked_view = view
