"""The Python API: an agent for one episode at a time, and commands as functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from recap.assembly import REPLAY, AgentConfig, assemble_agent, suite_of
from recap.assembly import load_policy as load_for
from recap.errors import InputError
from recap.evaluation.worlds import EnvMap, map_observation
from recap.extras import require_extra
from recap.features.estimators import estimator_of
from recap.pool.opening import open_pool
from recap.pool.view import only_task
from recap.suites import Options, PoseEstimator
from recap.types import F64, NO_CONTEXT, ActionChunk, Observation, Retrieval

if TYPE_CHECKING:
    from recap.evaluation.spec import EvalSpec
    from recap.evaluation.summary import Summary
    from recap.policies.policy import TrainedPolicy
    from recap.pool.view import PoolSource
    from recap.robot import RobotSpec
    from recap.training.config import TrainConfig

SLOT = 0


def load_policy(name: str | Path, device: str = "cpu") -> TrainedPolicy:
    """Load a trained policy by the name of an included one, or from a folder that `recap train` wrote."""
    policy = load_for(AgentConfig(str(name), device=device))
    if policy is None:
        raise InputError("replay is no policy: give None to recap.Agent to replay")
    return policy


@dataclass(frozen=True)
class Decision:
    """The last decision of an agent."""

    retrieval: Retrieval  # matches, nearest first
    chunk: ActionChunk | None  # None if the robot stays in place
    confidence: float
    kinematics: Mapping[str, float] | None = None  # error_mm, error_deg, n_unreachable of an action in joints


class Agent:
    """Acts in one episode at a time: retrieves, predicts a residual, returns one action per step.

    Args:
        policy: a policy from `load_policy`, or its name; None replays the retrieved actions.
        pool: an open pool, or a pool or dataset by name or path. Demonstrations that are added to it are used
            from the next retrieval on.
        config: further settings; its `policy` is ignored.
        robot: the robot description for replay; default: the suite's or the pool's.
        options: options of the policy's suite, such as {"block": "ell"}.
        mapping: the meaning of a gym dict's keys; the usual names need none.
    """

    def __init__(
        self,
        policy: TrainedPolicy | str | None,
        pool: PoolSource | str | Path,
        config: AgentConfig | None = None,
        *,
        robot: RobotSpec | None = None,
        options: Options | None = None,
        mapping: EnvMap | None = None,
    ) -> None:
        settings = config or AgentConfig()
        if isinstance(policy, str):
            policy = None if policy == REPLAY else load_policy(policy)
        pool_robot = robot if policy is None else policy.config.robot
        source = open_pool(str(pool), pool_robot) if isinstance(pool, (str, Path)) else pool
        name = settings.retrieval or (policy.config.retrieval_name if policy is not None else "")
        self._suite = suite_of(replace(settings, policy=REPLAY, retrieval=name)) if name else None
        self._options = dict(options or {})
        self._mapping = mapping or EnvMap()
        if self._suite is not None:
            embodiment = "" if policy is None else policy.config.embodiment
            self._options = {**self._suite.embodied(embodiment), **self._options}
            self._suite.check(self._options)
        context = NO_CONTEXT if self._suite is None else self._suite.context(self._options)
        if robot is None and policy is None and self._suite is not None:
            robot = self._suite.robot(self._options)
        self._agent = assemble_agent(
            settings, source, policy, robot=robot, context=context, suite=self._suite
        )
        self._source = source
        self._task = ""
        self._steps = 0
        self._estimator: PoseEstimator | None = None
        self.reset()

    @property
    def robot(self) -> RobotSpec:
        return self._agent.robot()

    @property
    def last(self) -> Decision | None:
        """The last decision of the running episode, or None before the first."""
        retrieval, plan = self._agent.retrieval(SLOT), self._agent.plan(SLOT)
        if retrieval is None:
            return None
        reach = self._agent.reach.get(SLOT)
        kinematics = None if reach is None else reach.summary()
        return Decision(retrieval, None if plan is None else plan.chunk, retrieval.confidence, kinematics)

    def reset(self, seed: int = 0, task: str = "") -> None:
        """Begin an episode.

        Args:
            seed: seed of the policy's noise.
            task: the instruction, if observations do not contain it. Default: the pool's, if all of its
                demonstrations have the same.
        """
        self._agent.reset(SLOT, SimpleNamespace(seed=seed))
        self._task, self._steps = task or only_task(self._source.view()), 0
        estimated = any(
            (spec := self.robot.objects.get(name)) is not None and spec.source != "recorded"
            for name in self._agent.requires.objects
        )
        self._estimator = None
        if estimated:
            own = None if self._suite is None else self._suite.estimator(self._options)
            self._estimator = own or estimator_of(self.robot)

    def act(self, observation: Observation | Mapping[str, Any], info: Mapping[str, Any] | None = None) -> F64:
        """The next action (a,) for what is observed now.

        Args:
            observation: a `recap.Observation`; a Gymnasium dict such as {"state": (p,), "images": {camera:
                (h, w, 3)}}; or a LeRobot dict with `observation.state` (p,) and `observation.images.CAMERA`.
                The state of a robot with a kinematic model may be in joints; the action is then in joints.
            info: Gymnasium's info dict, if it holds the instruction or poses.
        """
        seen = observation if isinstance(observation, Observation) else self._mapped(observation, info or {})
        self._check(seen)
        seen = seen if seen.task else replace(seen, task=self._task)
        if self._estimator is not None and seen.images:
            lacking = self._agent.requires.missing(seen.objects, seen.goal)
            seen = seen if lacking is None else self._estimator.estimate(seen)
        self._steps += 1
        action: F64 = self._agent.act([SLOT], [seen])[0]
        return action

    def _check(self, seen: Observation) -> None:
        joints = self._agent.joints
        known = [self.robot.body.size, *([] if joints is None else [joints.robot.body.size])]
        if seen.proprio.shape not in [(size,) for size in known]:
            names = ", ".join(feature.name for feature in self.robot.proprio)
            raise InputError(
                f"the observed state has shape {seen.proprio.shape} and robot '{self.robot.name}' has "
                f"{' or '.join(map(str, known))} numbers ({names}): observe these, or name them by mapping",
                code="observation.state",
            )

    def _mapped(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
        seen = map_observation(observation, info, self._mapping, self._steps / self.robot.control_hz)
        cameras = tuple(self.robot.cameras)
        images = seen.images
        if len(cameras) == len(images) == 1 and cameras[0] not in images:
            images = {cameras[0]: next(iter(images.values()))}
        return replace(seen, images=images)


def evaluate(spec: EvalSpec, out: str | Path, *, workers: int = 1, batch_size: int = 8) -> Summary:
    """Roll out an agent and count its successes, as `recap eval` does; writes the results to `out`."""
    from recap.evaluation.runner import evaluate as run

    return run(spec, Path(out), workers=workers, batch_size=batch_size)


def train(config: TrainConfig, out: str | Path, *, device: str | None = None) -> Path:
    """Train a policy, as `recap train` does; returns the folder of the best checkpoint."""
    require_extra("train", "training")
    from recap.training.trainer import train as run

    return run(config, Path(out), device=device).best
