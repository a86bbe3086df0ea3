"""Who acts in an evaluation: one batched interface, and how an agent is found by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from recap.assembly import REPLAY, AgentSpec, assemble_agent, load_policy, names_checkpoint
from recap.envs.pusht.gaze import Gaze
from recap.errors import InputError, RecapError, did_you_mean
from recap.geometry3 import turn_poses
from recap.plugins import import_factory
from recap.policies.config import SHIPPED
from recap.types import F64, Observation

if TYPE_CHECKING:
    from recap.envs.dualarm.expert import Expert
    from recap.evaluation.spec import EvalSpec

AGENTS = ("expert", "replay", "still")


@dataclass(frozen=True, slots=True)
class Trial:
    """One episode to run: a goal or a task, and a start."""

    task: str  # its key as results write it: "+45" for a goal angle, "lift_pot"
    goal_angle: float  # degrees, of PushT
    seed: int


class Agent(Protocol):
    """Acts in many episodes at once, so that a policy can serve them in one call."""

    image_size: int | None  # the camera size it wants; None: no images are drawn

    def reset(self, slot: int, trial: Trial) -> None:
        """A new episode begins in that slot."""
        ...

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """One action a slot: (n, a)."""
        ...


class EpisodeAgent(Protocol):
    """Acts in one episode at a time; an `image_size` attribute asks for camera images."""

    def reset(self, seed: int) -> None:
        """A new episode begins."""
        ...

    def act(self, observation: Observation) -> F64:
        """The action: (a,)."""
        ...


Factory: TypeAlias = Callable[["EvalSpec"], Agent | EpisodeAgent]


class PerEpisode:
    """Serves a batch with one single-episode agent a slot."""

    def __init__(self, make: Callable[[], EpisodeAgent]) -> None:
        self._make = make
        self._agents = {0: make()}
        self.image_size: int | None = getattr(self._agents[0], "image_size", None)

    def reset(self, slot: int, trial: Trial) -> None:
        """Begin an episode, with a new agent if the slot never had one."""
        if slot not in self._agents:
            self._agents[slot] = self._make()
        self._agents[slot].reset(trial.seed)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Ask the agents in turn."""
        pairs = zip(slots, observations, strict=True)
        return np.array([self._agents[slot].act(seen) for slot, seen in pairs], np.float64)


class StillAgent:
    """Keeps pusher or arms where they are: what success costs nothing."""

    image_size: int | None = None

    def reset(self, slot: int, trial: Trial) -> None:
        """Nothing to remember."""

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Where each is already."""
        return np.array([o.proprio for o in observations], np.float64)


class Eyes:
    """Finds block and goal in the camera image and passes them on: the agent inside is told no pose."""

    def __init__(self, agent: Agent, block: str, pusher: str, image_size: int = 128) -> None:
        self.agent = agent
        self.image_size: int | None = agent.image_size or image_size
        self._block, self._pusher = block, pusher
        self._gazes: dict[int, Gaze] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Forget what was seen in that slot."""
        self._gazes[slot] = Gaze(self._block, self._pusher)
        self.agent.reset(slot, replace(trial, task="", goal_angle=math.nan))  # the seed is for its dice only

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Look, then let the agent act on what is seen."""
        pairs = zip(slots, observations, strict=True)
        return self.agent.act(slots, [self._gazes[slot].look(seen) for slot, seen in pairs])


class Blur:
    """Adds noise to the pose of every object, anew at each look, from the trial's seed."""

    def __init__(self, agent: Agent, deviation: float, deviation_deg: float) -> None:
        self.agent = agent
        self.image_size: int | None = agent.image_size
        self._place, self._turn = deviation, math.radians(deviation_deg)  # px on a board, metres on a table
        self._dice: dict[int, np.random.Generator] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """New noise for a new episode."""
        self._dice[slot] = np.random.default_rng([trial.seed, 1])
        self.agent.reset(slot, trial)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Let the agent act on what it is told."""
        told = []
        for slot, observation in zip(slots, observations, strict=True):
            poses = observation.objects.items()
            told.append(
                replace(observation, objects={name: self._blurred(slot, pose) for name, pose in poses})
            )
        return self.agent.act(slots, told)

    def _blurred(self, slot: int, pose: F64) -> F64:
        """A pose in the plane (3,), or in space (7,)."""
        noise = self._dice[slot].normal(size=len(pose) - len(pose) % 3)
        if len(pose) == 3:
            return pose + noise * [self._place, self._place, self._turn]
        moved = turn_poses(pose, self._turn * noise[3:])
        moved[:3] += self._place * noise[:3]
        return moved


class ArmsExperts:
    """The scripted expert of each slot's task."""

    image_size: int | None = None

    def __init__(self) -> None:
        self._experts: dict[int, Expert] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Begin the trial's task."""
        from recap.envs.dualarm.expert import Expert

        self._experts[slot] = Expert(trial.task)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Ask the experts in turn."""
        pairs = zip(slots, observations, strict=True)
        return np.array([self._experts[slot].act(seen) for slot, seen in pairs], np.float64)


def inner_agent(agent: Agent) -> Agent:
    """The one that decides, inside whatever tells it where things are."""
    while isinstance(agent, (Eyes, Blur)):
        agent = agent.agent
    return agent


def find_factory(name: str) -> Factory:
    """The function that makes the agent of that name, or an InputError that helps; makes nothing yet."""
    if name == "still":
        return lambda spec: StillAgent()
    if name == "expert":
        return _expert
    if name == REPLAY or (name not in AGENTS and names_checkpoint(name)):
        return _retrieving
    if ":" in name:
        return import_factory(name, "agent")
    raise InputError(
        f"unknown agent '{name}': {did_you_mean(name, (*AGENTS, *SHIPPED))} "
        "(a policy is named by its path, your own agent package.module:factory)"
    )


def make_agent(name: str, spec: EvalSpec) -> Agent:
    """Make the agent of that name: `expert`, `replay`, `still`, a policy, or `package.module:factory`.

    A factory is called with the spec and returns an `Agent`, or an `EpisodeAgent` (whose `act` takes one
    observation), of which one is then made for each slot.
    """
    factory = find_factory(name)

    def make() -> Any:
        try:
            return factory(spec)
        except RecapError:
            raise
        except Exception as error:
            raise InputError(
                f"agent '{name}' could not be made ({type(error).__name__}: {error}): see the traceback with "
                "--workers 1 --debug"
            ) from error

    agent = make()
    if spec.objects == "pixels":
        return Eyes(_batched(name, agent, make), spec.block, spec.pusher)
    batched = _batched(name, agent, make)
    if spec.pose_noise_px or spec.pose_noise_mm or spec.pose_noise_deg:
        return Blur(batched, spec.pose_noise_px or spec.pose_noise_mm / 1000, spec.pose_noise_deg)
    return batched


def _n_required(function: Callable[..., Any]) -> int:
    """How many arguments must be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _batched(name: str, agent: Any, make: Callable[[], Any]) -> Agent:
    """The agent itself, or one of its kind a slot."""
    if not (callable(getattr(agent, "reset", None)) and callable(getattr(agent, "act", None))):
        raise InputError(f"agent '{name}' is a {type(agent).__name__} without reset and act: return an agent")
    if _n_required(agent.act) == 1:
        unused = [agent]  # it was made to see its kind; the first slot takes it
        return PerEpisode(lambda: unused.pop() if unused else make())
    if not hasattr(agent, "image_size"):
        raise InputError(f"agent '{name}' has no image_size: set it to None if it needs no images")
    return agent  # type: ignore[no-any-return]


def _retrieving(spec: EvalSpec) -> Agent:
    """Replay, or a policy, over the spec's pool."""
    from recap.standard_pools import open_pool

    if spec.env == "dualarm" and spec.pool is None:
        raise InputError("two arms have no standard pool: give --pool, made with recap collect dualarm")
    reaction: Any = spec.reaction
    matching: Any = spec.matching
    wanted = AgentSpec(
        name=spec.agent,
        settings_of=spec.settings_of,
        env=spec.env,
        mode=spec.mode,
        block=spec.block,
        pusher=spec.pusher,
        n_candidates=spec.n_candidates,
        n_action_steps=spec.n_action_steps,
        reaction=reaction,
        min_confidence=spec.min_confidence,
        matching=matching,
        hindsight=spec.hindsight,
        residual=spec.residual,
        half_at=spec.half_at,
        denoising_steps=spec.denoising_steps,
        temperature=spec.temperature,
        sampler=spec.sampler,
        device=spec.device,
        mask=spec.mask,
        noise_seed=spec.noise_seed,
    )
    policy = load_policy(wanted)
    return assemble_agent(wanted, open_pool(spec.pool), policy)


def _expert(spec: EvalSpec) -> Agent | EpisodeAgent:
    if spec.env == "dualarm":
        return ArmsExperts()
    from recap.envs.pusht.expert import Expert

    return Expert(spec.pusher, spec.block)
