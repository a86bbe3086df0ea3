"""Assembles a retrieval agent from a pool, a retrieval and, unless it replays, a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recap.agent_config import EXPERT as EXPERT
from recap.agent_config import HOLD as HOLD
from recap.agent_config import MATCHINGS as MATCHINGS
from recap.agent_config import REACTIONS as REACTIONS
from recap.agent_config import REPLAY as REPLAY
from recap.agent_config import AgentConfig as AgentConfig
from recap.agent_config import Matching as Matching
from recap.agent_config import Reaction as Reaction
from recap.errors import InputError, did_you_mean
from recap.extras import load_torch, require_extra
from recap.suites import Suite, plugins, shipped_policies, suite_of_retrieval, suites
from recap.types import NO_CONTEXT, TaskContext

if TYPE_CHECKING:
    from recap.agent import RetrievalAgent
    from recap.features.describer import TermDescriber
    from recap.policies.config import PolicyConfig
    from recap.policies.policy import TrainedPolicy
    from recap.pool.view import PoolSource
    from recap.retrieval.config import RetrievalConfig
    from recap.robot import RobotSpec
    from recap_client.gate import Gate


def names_checkpoint(name: str) -> bool:
    """True if the name is that of a policy. It checks files only: loading a policy needs torch."""
    if ":" in name or name in (REPLAY, EXPERT, HOLD):
        return False
    return name in shipped_policies() or "/" in name or (Path(name) / "config.json").is_file()


def refuse_unknown_policy(name: str) -> None:
    """Raise an InputError with a hint if there is no policy of that name."""
    if name != REPLAY and not names_checkpoint(name):
        hint = did_you_mean(name, (REPLAY, *shipped_policies()))
        raise InputError(f"unknown policy '{name}': {hint} (your own is named by its path)")


def policy_config(config: AgentConfig) -> PolicyConfig | None:
    """The config of the agent's policy, or of the policy that replay takes its settings from; no weights."""
    name = config.settings_of or config.policy
    if not names_checkpoint(name):
        return None
    require_extra("policy", f"policy '{name}'")
    from recap.policies.checkpoint import read_config

    return read_config(name)


def retrieval_name(config: AgentConfig, suite: Suite | None = None, own: PolicyConfig | None = None) -> str:
    """The name of the retrieval: as configured, as the policy was trained, or the suite's default.

    A retrieval of the suite can be named without the suite's prefix.

    Args:
        own: the policy's config, if it was read already.
    """
    from recap.retrieval.presets import full_name, short_name

    own = own or policy_config(config)
    trained = None if own is None else own.retrieval_name
    name = full_name(config.retrieval, suite)
    if not name:
        usual = "world" if suite is None else suite.default_retrieval
        return trained or usual
    if trained is not None and name != trained:
        raise InputError(
            f"policy '{config.settings_of or config.policy}' was trained with retrieval "
            f"{short_name(trained)}, not {short_name(name)}: leave --retrieval out"
        )
    return name


def suite_of(config: AgentConfig) -> Suite | None:
    """The suite that an agent's policy or retrieval comes from."""
    name = config.settings_of or config.policy
    shipping = next((suite for suite in suites().values() if name in suite.policies()), None)
    return shipping or suite_of_retrieval(retrieval_name(config))


def load_policy(config: AgentConfig) -> TrainedPolicy | None:
    """The policy with the config's sampling settings, or None for replay."""
    if config.policy == REPLAY:
        return None
    require_extra("policy", f"policy '{config.policy}'")
    load_torch()
    from recap.policies.checkpoint import from_pretrained

    policy = from_pretrained(config.policy, config.device)
    changes = {
        "n_steps": config.denoising_steps,
        "temperature": config.temperature,
        "sampler": config.sampler,
    }
    policy = policy.with_sampling(**{key: value for key, value in changes.items() if value is not None})
    if config.mask is None:
        return policy
    try:
        mask = plugins("recap.masks")["attention"].load()
    except (KeyError, ModuleNotFoundError):  # the wheel declares the entry point without the module
        raise InputError("--mask is an experiment of recap_research, in the repository alone") from None
    masked: TrainedPolicy = mask(policy, config.mask)
    return masked


def assemble_agent(
    config: AgentConfig,
    source: PoolSource,
    policy: TrainedPolicy | None = None,
    *,
    robot: RobotSpec | None = None,
    context: TaskContext = NO_CONTEXT,
    suite: Suite | None = None,
) -> RetrievalAgent:
    """The agent that retrieves from that pool.

    Args:
        policy: a policy from `load_policy`.
        robot: the robot description for replay; default: the pool's.
        context: what observations do not show.
        suite: the suite of the default retrieval.
    """
    from recap.agent import RetrievalAgent
    from recap.retrieval.config import scale_for_replan_interval
    from recap.retrieval.retriever import Retriever
    from recap.retrieval.subtrajectories import SubtrajectoryPool

    own = policy_config(config) if policy is None else policy.config
    robot = own.robot if own is not None else robot or getattr(source.view(), "robot", None)
    describer, retrieval = _retrieval(config, source, policy, robot, suite)
    if own is not None:
        retrieval = replace(retrieval, chunk_size=own.chunk_size)
        context = context if context.embodiment else replace(context, embodiment=own.embodiment)
    wanted = own is not None and own.subtrajectories
    if wanted if config.subtrajectories is None else config.subtrajectories:
        if retrieval.subtrajectories is None:
            raise InputError(
                f"retrieval '{retrieval.name}' says nothing of sub-trajectories: leave --subtrajectories out"
            )
        source = SubtrajectoryPool(source, retrieval.subtrajectories)
    usual = own.n_action_steps if own is not None else retrieval.n_action_steps
    n_action_steps = config.n_action_steps or usual
    cameras = policy.config.image.retrieved if policy is not None and policy.config.sees else ()
    scaled = scale_for_replan_interval(retrieval, n_action_steps)
    retriever = Retriever(source, describer, scaled, robot, cameras)
    return RetrievalAgent(
        retriever,
        policy,
        n_action_steps=n_action_steps,
        robot=robot,
        context=context,
        reaction=config.reaction,
        min_confidence=config.min_confidence,
        matching=config.matching,
        residual=config.residual,
        residual_halflife=config.residual_halflife,
        gate=_gate(config, source, robot),
        noise_seed=config.noise_seed,
    )


def _gate(config: AgentConfig, source: PoolSource, robot: RobotSpec | None) -> Gate | None:
    """The progress gate, or None if the config has it off."""
    if not config.gate:
        return None
    from recap.gate import gate_of
    from recap.pool.view import robot_of

    robot = robot or robot_of(source.view())
    if robot is None:
        raise InputError("the pool is empty and nothing says what the robot is: leave --gate out")
    return gate_of(robot, config.gate_tolerance, config.gate_patience)


def _retrieval(
    config: AgentConfig,
    source: PoolSource,
    policy: TrainedPolicy | None,
    robot: RobotSpec | None,
    suite: Suite | None,
) -> tuple[TermDescriber, RetrievalConfig]:
    """Describer and config, with the scales of the policy's training; else the retriever fits scales."""
    from recap.pool.view import robot_of
    from recap.retrieval.presets import find_retrieval

    name = retrieval_name(config, suite, None if policy is None else policy.config)
    describer, retrieval = find_retrieval(name, robot or robot_of(source.view()), config.n_candidates)
    reach = retrieval.reach if config.reach is None else config.reach
    ahead = retrieval.reach_ahead if config.reach_ahead is None else config.reach_ahead
    if reach and robot is None:
        raise InputError("reach is weighed and nothing says where the robot can go: give its robot.yaml")
    retrieval = replace(retrieval, reach=reach, reach_ahead=ahead)
    stamp = None if policy is None else policy.stamp
    if stamp is None and config.settings_of is not None:
        from recap.policies.checkpoint import read_stamp

        stamp = read_stamp(config.settings_of)
    if retrieval.auto_scale and stamp is not None:
        retrieval = replace(retrieval, scales=stamp.scales, auto_scale=False)
    return describer, retrieval
