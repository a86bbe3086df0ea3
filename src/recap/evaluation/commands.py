"""An evaluation's spec as the command that runs it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields

from recap.assembly import REPLAY, AgentConfig, names_checkpoint
from recap.evaluation.spec import EvalSpec

OF_A_NETWORK = (
    "denoising_steps",
    "temperature",
    "sampler",
    "residual",
    "residual_halflife",
    "mask",
    "noise_seed",
    "device",
)
SHORT = {"n_candidates": "candidates", "n_action_steps": "action-steps"}  # options named otherwise


def command_of(spec: EvalSpec) -> str:
    """`recap eval` with every setting that is not the default; tasks and seeds always."""
    usual = EvalSpec(AgentConfig(), spec.env, env_map=spec.env_map)
    words = ["recap", "eval", spec.agent.policy, "--env", spec.env]
    words += [] if spec.env_map is None else ["--map", spec.env_map]
    for name, value in spec.options.items():
        if value != usual.options[name]:
            words += [f"--env.{name}", _text(value)]
    for field in fields(AgentConfig):
        value, name = getattr(spec.agent, field.name), SHORT.get(field.name, field.name.replace("_", "-"))
        if field.name == "policy" or value == getattr(usual.agent, field.name):
            continue
        if isinstance(value, Mapping):
            words += [word for key, most in value.items() for word in (f"--{name}", f"{key}={_text(most)}")]
        elif isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", _text(value)]
    words += [] if spec.pool is None else ["--pool", spec.pool]
    words += [] if spec.objects == usual.objects else ["--objects", spec.objects]
    words += ["--pose-noise", ",".join(map(_text, spec.pose_noise))] if any(spec.pose_noise) else []
    if spec.thresholds != usual.thresholds:
        words += ["--thresholds", ",".join(map(_text, spec.thresholds))]
    words += [] if spec.max_steps is None else ["--max-steps", str(spec.max_steps)]
    return shlex.join([*words, f"--tasks={','.join(spec.tasks)}", "--seeds", seeds_text(spec.seeds)])


def control_of(spec: EvalSpec) -> EvalSpec | None:
    """Replay at the settings of the spec's policy, all else equal; None where it is not about a policy."""
    if not names_checkpoint(spec.agent.policy) or spec.agent.matching != "retrieved":
        return None
    usual = AgentConfig()
    own = {name: getattr(usual, name) for name in OF_A_NETWORK}
    return spec.with_agent(policy=REPLAY, settings_of=spec.agent.policy, retrieval="", **own)


def seeds_text(seeds: Sequence[int]) -> str:
    """`42:92` where they follow each other, else one by one."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))


def _text(value: object) -> str:
    """As short as it can be read back."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
