"""The settings of an agent: as a record, as a command, and the settings that differ between runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap.assembly import EXPERT, HOLD, REPLAY, AgentConfig, names_checkpoint
from recap.evaluation.spec import EvalSpec

if TYPE_CHECKING:
    from recap.agent import RetrievalAgent

SETTINGS = "settings"  # key in the provenance of a run
NETWORK = "policy."  # prefix of the network's settings, which replay does not have
ABSENT = "–"
WITHOUT_EFFECT = frozenset({"device"})  # settings of an agent that do not change the results
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
SHORT = {"n_candidates": "candidates", "n_action_steps": "action-steps"}  # option names that differ


def agent_settings(agent: RetrievalAgent) -> dict[str, Any]:
    """Plain values by name: how the agent retrieves, how often it plans, and how it uses a policy."""
    from recap.retrieval.subtrajectories import SubtrajectoryPool

    policy = agent.policy
    found: dict[str, Any] = {"n_action_steps": agent.n_action_steps, "reaction": agent.reaction}
    found["min_confidence"] = agent.min_confidence
    # Newer settings are left out while they are off, so that older runs can be compared.
    if agent.gate is not None:
        found["gate"] = _plain([list(agent.gate.parts), agent.gate.patience])
    if policy is None or policy.config.retrieval:
        retriever = agent.retriever
        config = asdict(retriever.config)
        config["aligner"] = retriever.config.aligner.name
        config.pop("subtrajectories")
        if not retriever.config.reach:
            del config["reach"], config["reach_ahead"]
        found["retrieval"] = config.pop("name")
        found["retrieval.subtrajectories"] = isinstance(retriever.source, SubtrajectoryPool)
        found["retrieval.matching"] = agent.matching
        found |= {f"retrieval.{key}": _plain(value) for key, value in config.items()}
    else:
        found["retrieval"] = "none"
    if policy is not None:
        found["policy.residual"] = agent.predictor.residual
        found["policy.residual_halflife"] = agent.predictor.halflife
        found |= {f"policy.{key}": value for key, value in asdict(policy.config.sampling).items()}
    return found


def recorded_settings(provenance: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The agent's settings from the provenance of a run; None if they were not recorded."""
    found = provenance.get(SETTINGS)
    return found if isinstance(found, Mapping) else None


@dataclass(frozen=True)
class Differences:
    """Every setting that differs between runs, by name, with its value in each run."""

    settings: Mapping[str, tuple[Any, ...]]
    recorded: bool = True  # False: one of the runs has no record of its agent's settings

    @property
    def equal_but_for_the_network(self) -> bool:
        """True if pool, poses, retrieval and plan interval are equal, as a fair comparison requires."""
        return self.recorded and not self.of_the_run

    @property
    def of_the_run(self) -> list[str]:
        """Names of the settings that differ, except the agent and the settings of its network."""
        return [key for key in self.settings if key != "agent" and not key.startswith(NETWORK)]


def differences(*runs: tuple[EvalSpec, Mapping[str, Any] | None]) -> Differences:
    """Compare runs by their specs and by the agent's settings in their provenance."""
    known = all(settings is not None for _, settings in runs)
    values = [_in_force(spec, settings if known else None) for spec, settings in runs]
    found = {}
    for key in dict.fromkeys(key for each in values for key in each):
        row = tuple(each.get(key, ABSENT) for each in values)
        if any(value != row[0] for value in row):
            found[key] = row
    return Differences(found, all(settings is not None or not _retrieves(spec) for spec, settings in runs))


def _in_force(spec: EvalSpec, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings by name; without a record of the agent's settings, those of the spec."""
    asked = spec.to_json()
    agent = asked.pop("agent")
    policy = agent.pop("policy")
    asked |= asked.pop("options")
    if settings is None:
        asked |= {key: value for key, value in agent.items() if key not in WITHOUT_EFFECT}
    else:  # `None` in the spec stands for a default, and the record has its value
        asked |= {"noise_seed": agent["noise_seed"], "mask": agent["mask"], **settings}
    return {"agent": policy, **asked}


def settings_text(value: Any) -> str:
    """A value as text for a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {settings_text(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(settings_text, value))
        return text if len(text) <= 30 else f"{text[:24]}… ({len(value)})"
    if isinstance(value, str) and "/" in value and len(value) > 40:
        value = f"…/{Path(value).name}"
    text = "none" if value is None else str(value)
    return text if text.isprintable() else ascii(text)  # it may contain terminal control codes


def _retrieves(spec: EvalSpec) -> bool:
    """True if a record of settings is expected; a user's own agent has none."""
    return spec.agent.policy not in (EXPERT, HOLD) and ":" not in spec.agent.policy


def _plain(value: Any) -> Any:
    """The value as a JSON file returns it; infinity, which JSON does not have, as text."""
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return "none" if value == float("inf") else value


def command_of(spec: EvalSpec) -> str:
    """The `recap eval` command with tasks, seeds, and every setting that is not the default."""
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
    """Replay with the settings of the spec's policy, all else equal; None if that does not apply."""
    if not names_checkpoint(spec.agent.policy) or spec.agent.matching != "retrieved":
        return None
    usual = AgentConfig()
    own = {name: getattr(usual, name) for name in OF_A_NETWORK}
    return spec.with_agent(policy=REPLAY, settings_of=spec.agent.policy, retrieval="", **own)


def seeds_text(seeds: Sequence[int]) -> str:
    """`42:92` for consecutive seeds, otherwise a list."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))


def _text(value: object) -> str:
    """The shortest text that can be read back."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
