"""Agents of an evaluation: one batched interface, and how an agent is found by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from recap.assembly import EXPERT, HOLD, REPLAY, assemble_agent, load_policy, names_checkpoint, policy_config
from recap.errors import InputError, RecapError, did_you_mean
from recap.geometry3 import turn_poses
from recap.suites import PoseEstimator, shipped_policies
from recap.types import F64, Observation
from recap_client.plugins import import_factory

if TYPE_CHECKING:
    from recap.evaluation.spec import EvalSpec
    from recap.robot import RobotSpec

AGENTS = (EXPERT, REPLAY, HOLD)


@dataclass(frozen=True, slots=True)
class Trial:
    """One episode to run: a task and a seed."""

    task: str  # its key in results
    seed: int


class Agent(Protocol):
    """Acts in many episodes at once, so that a policy can process them in one batch."""

    image_size: int | None  # the camera size it needs; None: no images are rendered

    def reset(self, slot: int, trial: Trial) -> None:
        """Start a new episode in the slot."""

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """One action per slot: (n, a)."""


class EpisodeAgent(Protocol):
    """Acts in one episode at a time; an `image_size` attribute asks for camera images."""

    def reset(self, seed: int) -> None:
        """Start a new episode."""

    def act(self, observation: Observation) -> F64:
        """The action: (a,)."""


Factory: TypeAlias = Callable[["EvalSpec"], Agent | EpisodeAgent]


class PerEpisode:
    """A batched agent that consists of one single-episode agent per slot."""

    def __init__(self, make: Callable[[], EpisodeAgent]) -> None:
        self._make = make
        self._agents = {0: make()}
        self.image_size: int | None = getattr(self._agents[0], "image_size", None)

    def reset(self, slot: int, trial: Trial) -> None:
        """Start an episode; a new slot gets a new agent."""
        if slot not in self._agents:
            self._agents[slot] = self._make()
        self._agents[slot].reset(trial.seed)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Call the agents one by one."""
        pairs = zip(slots, observations, strict=True)
        return np.array([self._agents[slot].act(seen) for slot, seen in pairs], np.float64)


class HoldAgent:
    """Keeps the robot where it is, as a baseline.

    Args:
        robot: the meaning of its numbers; without it the action is the proprioception.
    """

    image_size: int | None = None
    robot: RobotSpec | None = None

    def __init__(self, robot: RobotSpec | None = None) -> None:
        self.robot = robot

    def reset(self, slot: int, trial: Trial) -> None:
        """Does nothing: there is no state."""

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """The action that keeps each robot where it is."""
        here = [o.proprio if self.robot is None else self.robot.hold(o.proprio) for o in observations]
        return np.array(here, np.float64)


class PixelPoses:
    """Estimates objects and goal from the camera image; the inner agent gets no true poses."""

    def __init__(self, agent: Agent, make: Callable[[], PoseEstimator], image_size: int = 128) -> None:
        self.agent, self._make = agent, make
        self.image_size: int | None = agent.image_size or image_size
        self._estimators: dict[int, PoseEstimator] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start an episode with a new estimator."""
        self._estimators[slot] = self._make()
        self.agent.reset(slot, replace(trial, task=""))  # the seed is only for the agent's noise

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Estimate poses and let the agent act on them."""
        bare = [replace(seen, objects={}, goal=None) for seen in observations]
        pairs = zip(slots, bare, strict=True)
        return self.agent.act(slots, [self._estimators[slot].estimate(seen) for slot, seen in pairs])


class PoseNoise:
    """Adds noise to every object pose at every observation; the trial's seed determines it."""

    def __init__(self, agent: Agent, deviation: float, deviation_deg: float) -> None:
        self.agent = agent
        self.image_size: int | None = agent.image_size
        self._place, self._turn = deviation, math.radians(deviation_deg)
        self._dice: dict[int, np.random.Generator] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start an episode with new noise."""
        self._dice[slot] = np.random.default_rng([trial.seed, 1])
        self.agent.reset(slot, trial)

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Let the agent act on noisy poses."""
        noisy = [
            replace(seen, objects={name: self._noisy(slot, pose) for name, pose in seen.objects.items()})
            for slot, seen in zip(slots, observations, strict=True)
        ]
        return self.agent.act(slots, noisy)

    def _noisy(self, slot: int, pose: F64) -> F64:
        """A pose in the plane (3,) or in space (7,), with noise."""
        noise = self._dice[slot].normal(size=len(pose) - len(pose) % 3)
        if len(pose) == 3:
            return pose + noise * [self._place, self._place, self._turn]
        moved = turn_poses(pose, self._turn * noise[3:])
        moved[:3] += self._place * noise[:3]
        return moved


def inner_agent(agent: Agent) -> Agent:
    """The agent inside all wrappers that change its observations."""
    while isinstance(agent, (PixelPoses, PoseNoise)):
        agent = agent.agent
    return agent


def find_factory(name: str) -> Factory:
    """The function that makes the agent of that name; an unknown name is an error."""
    if name == HOLD:
        return lambda spec: HoldAgent(_robot_of(spec))
    if name == EXPERT:
        return lambda spec: spec.suite.expert(spec.options)
    if name == REPLAY or (name not in AGENTS and names_checkpoint(name)):
        return _retrieving
    if ":" in name:
        return import_factory(name, "agent")
    raise InputError(
        f"unknown agent '{name}': {did_you_mean(name, (*AGENTS, *shipped_policies()))} "
        "(a policy is named by its path, your own agent package.module:factory)"
    )


def make_agent(spec: EvalSpec) -> Agent:
    """Make the spec's agent: `expert`, `replay`, `hold`, a policy, or `package.module:factory`.

    A factory is called with the spec. It returns an `Agent`, or an `EpisodeAgent` (its `act` takes one
    observation); then one is made for each slot.
    """
    name = spec.agent.policy
    factory = find_factory(name)

    def make() -> Any:
        try:
            return factory(spec)
        except RecapError:
            raise
        except Exception as error:
            raise InputError(
                f"agent '{name}' could not be created ({type(error).__name__}: {error}): see it with "
                "--workers 1 --debug"
            ) from error

    agent = make()
    batched = _batched(name, agent, make)
    if spec.objects == "pixels":
        return PixelPoses(batched, lambda: spec.suite.estimator(spec.options))
    return PoseNoise(batched, *spec.pose_noise) if any(spec.pose_noise) else batched


def _n_required(function: Callable[..., Any]) -> int:
    """Number of required positional arguments."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _batched(name: str, agent: Any, make: Callable[[], Any]) -> Agent:
    """The agent itself, or a batch of such agents if it acts in one episode."""
    if not (callable(getattr(agent, "reset", None)) and callable(getattr(agent, "act", None))):
        raise InputError(f"agent '{name}' is a {type(agent).__name__} without reset and act: return an agent")
    if _n_required(agent.act) == 1:
        unused = [agent]  # made to determine its kind; used for the first slot
        return PerEpisode(lambda: unused.pop() if unused else make())
    if not hasattr(agent, "image_size"):
        raise InputError(f"agent '{name}' has no image_size: set it to None if it needs no images")
    return agent  # type: ignore[no-any-return]


def _robot_of(spec: EvalSpec) -> RobotSpec | None:
    """The robot of the spec's env; None if a foreign environment does not describe it."""
    with suppress(InputError):
        return spec.suite.robot(spec.options)
    return None


def _retrieving(spec: EvalSpec) -> Agent:
    """Replay or a policy, with the spec's pool."""
    from recap.compatible import refuse_other_robot
    from recap.pool.opening import open_pool
    from recap.robot import difference

    suite = spec.suite
    place = spec.pool or suite.default_pool
    if place is None:
        raise InputError(f"env '{spec.env}' has no pool of its own: give --pool")
    robot, own = _robot_of(spec), policy_config(spec.agent)
    pool = open_pool(place, robot if own is None else own.robot)
    why = None if own is None or robot is None else difference(own.robot, robot)
    if why is not None:
        name = spec.agent.settings_of or spec.agent.policy
        raise InputError(f"policy '{name}' does not act in env '{spec.env}': {why}")
    who, view = robot if own is None else own.robot, pool.view()
    if who is not None and view.episode_ids:
        refuse_other_robot(who, view)  # otherwise nothing could be retrieved, as if the policy had failed
    policy = load_policy(spec.agent)
    return assemble_agent(
        spec.agent, pool, policy, robot=robot, context=suite.context(spec.options), suite=suite
    )
