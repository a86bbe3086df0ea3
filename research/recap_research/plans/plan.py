"""A plan: which policies to train and which agents to roll out; what cannot be run is refused at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap.assembly import AgentConfig
from recap.errors import InputError, RecapError, did_you_mean
from recap.evaluation.agents import find_factory
from recap.evaluation.spec import EvalSpec
from recap.policies.config import PolicyConfig
from recap.retrieval.presets import find_retrieval
from recap.run_directory import read_json
from recap.training.config import TrainConfig
from recap.training.presets import preset
from recap_research.plans.pools import Selection
from recap_research.published import ROWS

if TYPE_CHECKING:
    from recap_worlds.pusht.collecting import CollectSpec

PLAN_KEYS = ("title", "lead", "autoencoder", "pools", "evaluate", "runs", "agents", "parts")
RUN_KEYS = ("name", "preset", "set", "seeds", "evaluate", "label", "paper")
PART_KEYS = ("title", "runs", "reference", "text")
SPEC_KEYS = tuple(f.name for f in fields(EvalSpec) if f.name != "agent")
AGENT_KEYS = tuple(f.name for f in fields(AgentConfig) if f.name not in ("policy", "device"))
ENV, OPTIONS = "pusht", {"pusher": "triangle"}  # where nothing else is said
OUT = "{out}"  # in a plan: the directory that it is run into
CHECKPOINTS, EVALUATIONS, POOLS = "checkpoints", "evaluations", "pools"

Log = Callable[..., None]  # words of one line


@dataclass(frozen=True)
class Evaluation:
    """Episodes of one agent."""

    name: str  # of its directory
    spec: EvalSpec


@dataclass(frozen=True)
class Run:
    """One policy to train, and what to roll out with it."""

    name: str  # with its seed
    family: str  # without
    config: TrainConfig
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class Part:
    """Families and agents that a report tells together."""

    title: str
    names: tuple[str, ...]  # `ours`, or of its evaluations one: `ours/ell`
    reference: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Plan:
    """All of it; every first seed comes before any second one."""

    title: str
    lead: str
    runs: tuple[Run, ...]
    agents: tuple[Evaluation, ...]
    pools: Mapping[str, CollectSpec | Selection]  # demonstrations to collect or choose first
    parts: tuple[Part, ...]
    labels: Mapping[str, str]  # of families and agents
    papers: Mapping[str, str]  # likewise: the row of the paper

    def evaluations_of(self, name: str) -> list[Evaluation]:
        """Of a family, seed by seed, or of an agent; `family/title` only those of that title."""
        family, _, title = name.partition("/")
        found = [
            e
            for run in self.runs
            if run.family == family
            for e in run.evaluations
            if not title or e.name == f"{run.name}-{title}"
        ]
        return found or [e for e in self.agents if e.name == family]


def select(plan: Plan, names: Sequence[str]) -> Plan:
    """Only the runs of these families and the agents of these names, and what its parts tell of them."""
    known = (*dict.fromkeys(run.family for run in plan.runs), *(agent.name for agent in plan.agents))
    for name in names:
        if name not in known:
            raise InputError(f"the plan has no run or agent '{name}': {did_you_mean(name, known)}")
    return replace(
        plan,
        runs=tuple(run for run in plan.runs if run.family in names),
        agents=tuple(agent for agent in plan.agents if agent.name in names),
        parts=tuple(part for part in map(partial(_within, names), plan.parts) if part.names),
    )


def _within(names: Sequence[str], part: Part) -> Part:
    """What is left of a part."""
    left = tuple(name for name in part.names if name.partition("/")[0] in names)
    reference = part.reference if str(part.reference).partition("/")[0] in names else None
    return replace(part, names=left, reference=reference)


def checkpoint_of(out: Path, name: str) -> Path:
    """Where the policy of a run is kept."""
    return out / CHECKPOINTS / name


def frame_of(config: PolicyConfig) -> str:
    """What its images are drawn in: an autoencoder of one frame does not serve the other."""
    if config.image.view == "camera":
        return "camera"
    return "block" if config.canonical else "world"


def read_plan(file: Path, out: Path, device: str = "cpu") -> Plan:
    """The plan of a JSON file, run into `out`; whatever is wrong with it is said in one line.

    Args:
        device: where policies are rolled out.
    """
    if not file.is_file():
        raise InputError(
            f"there is no plan {file}: give a JSON file, such as research/scripts/plans/baselines.json"
        )
    body = read_json(file)
    try:
        return _plan(_filled(body, str(out)), out, device)
    except RecapError as error:
        raise InputError(f"plan {file}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"plan {file} lacks a value, or has one of another kind ({why})") from error


def _plan(body: Any, out: Path, device: str) -> Plan:
    _check("plan", body, PLAN_KEYS)
    pools = {str(name): _collection(name, spec) for name, spec in body.get("pools", {}).items()}
    usual = body.get("evaluate", {})
    for name in (*pools, *(str(run["name"]) for run in body.get("runs", [])), *body.get("agents", {})):
        _check_name(name)
    labels: dict[str, str] = {}
    papers: dict[str, str] = {}
    families: dict[str, list[Run]] = {}
    for entry in body.get("runs", []):
        _check("run", entry, RUN_KEYS)
        name = str(entry["name"])
        if name in families:
            raise InputError(f"two runs are called '{name}': give each another name")
        families[name] = _seeds(name, entry, body.get("autoencoder"), usual, out, device)
        _tell(name, entry, labels, papers)
    agents = []
    for name, entry in body.get("agents", {}).items():
        chosen = {key: value for key, value in entry.items() if key not in ("agent", "label", "paper")}
        spec = _evaluation(str(entry.get("agent", name)), chosen, device)
        find_factory(spec.agent.policy)
        agents.append(Evaluation(str(name), spec))
        _tell(str(name), entry, labels, papers)
    longest = max((len(runs) for runs in families.values()), default=0)
    ordered = [runs[i] for i in range(longest) for runs in families.values() if i < len(runs)]
    parts = tuple(_part(part, labels) for part in body.get("parts", []))
    if not ordered and not agents:
        raise InputError("it trains nothing and rolls nothing out: give runs or agents")
    plan = Plan(
        str(body.get("title", "")),
        str(body.get("lead", "")),
        tuple(ordered),
        tuple(agents),
        pools,
        parts,
        labels,
        papers,
    )
    _check_files(plan, out)
    for part in parts:
        for name in [*part.names, *([] if part.reference is None else [part.reference])]:
            if not plan.evaluations_of(name):
                raise InputError(f"part '{part.title}' names '{name}', and there is no evaluation '{name}'")
    return plan


def _seeds(
    name: str, entry: Mapping[str, Any], autoencoder: Any, usual: Mapping[str, Any], out: Path, device: str
) -> list[Run]:
    """One run a seed."""
    config = preset(str(entry["preset"]), entry.get("set", []))
    latent = config.policy.sees and not config.policy.network.sees_pixels
    if latent and config.init is None and config.autoencoder is None:
        frame = frame_of(config.policy)
        given = autoencoder.get(frame) if isinstance(autoencoder, dict) else autoencoder
        config = replace(config, autoencoder=str(given or out / "autoencoders" / frame))
    runs = []
    for seed in entry.get("seeds", [0]):
        own = f"{name}-{seed}"
        agent = str(checkpoint_of(out, own))
        evaluations = tuple(
            Evaluation(f"{own}-{title}", _evaluation(agent, changes, device))
            for title, changes in entry.get("evaluate", usual).items()
        )
        runs.append(Run(own, name, replace(config, seed=int(seed)), evaluations))
    return runs


def _evaluation(policy: str, changes: Mapping[str, Any], device: str) -> EvalSpec:
    """Of the agent and of the world, side by side; seeds from the first of two up to the second."""
    _check("evaluation", changes, (*SPEC_KEYS, *AGENT_KEYS))
    first, last = changes["seeds"]
    values = {"env": ENV, **{key: changes[key] for key in SPEC_KEYS if key in changes}}
    values["options"] = {**(OPTIONS if values["env"] == ENV else {}), **changes.get("options", {})}
    values["agent"] = {key: changes[key] for key in AGENT_KEYS if key in changes}
    values["agent"] |= {"policy": policy, "device": device}
    spec = EvalSpec.from_json({**values, "seeds": [*range(first, last)]})
    if spec.agent.retrieval:  # a misspelt one costs nothing yet
        own = f"{spec.env}-{spec.agent.retrieval}"
        known = own in spec.suite.retrievals()
        find_retrieval(own if known else spec.agent.retrieval, spec.suite.robot(spec.options))
    return spec


def _collection(name: str, values: Mapping[str, Any]) -> CollectSpec | Selection:
    if "of" in values:
        _check(f"pool '{name}'", values, [f.name for f in fields(Selection)])
        return Selection(**{**values, "where": tuple(map(str, values.get("where", ())))})
    from recap_worlds.pusht.collecting import CollectSpec

    _check(f"pool '{name}'", values, [f.name for f in fields(CollectSpec)])
    angles = tuple(float(angle) for angle in values["angles"])
    return CollectSpec(**{**values, "angles": angles, "image_size": 0})


def _part(entry: Mapping[str, Any], known: Iterable[str]) -> Part:
    _check("part", entry, PART_KEYS)
    names = tuple(map(str, entry["runs"]))
    reference = entry.get("reference")
    for name in [*names, *([] if reference is None else [reference])]:
        if name.partition("/")[0] not in known:
            raise InputError(f"part '{entry['title']}' names '{name}': {did_you_mean(name, known)}")
    return Part(str(entry["title"]), names, reference, str(entry.get("text", "")))


def _tell(name: str, entry: Mapping[str, Any], labels: dict[str, str], papers: dict[str, str]) -> None:
    if name in labels:
        raise InputError(f"'{name}' is both a run and an agent: give one another name")
    labels[name] = str(entry.get("label", name))
    if "paper" in entry:
        if entry["paper"] not in ROWS:
            raise InputError(
                f"'{name}' names the paper's row '{entry['paper']}': "
                f"{did_you_mean(str(entry['paper']), ROWS)}"
            )
        papers[name] = str(entry["paper"])


def _check_name(name: str) -> None:
    """It names files and folders under the plan's directory, and must not lead out of it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"'{name}' cannot name a file: use letters, digits, '.', '_' and '-'")


def _check(what: str, values: Any, known: Sequence[str]) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"a {what} is an object, not {values!r}")
    for key in values:
        if key not in known:
            raise InputError(f"{what} has an unknown key '{key}': {did_you_mean(str(key), known)}")


def _check_files(plan: Plan, out: Path) -> None:
    """What it says it makes, it makes."""
    made = {str(checkpoint_of(out, run.name)) for run in plan.runs}
    collected = {str(out / POOLS / f"{name}.safetensors") for name in plan.pools}
    for run in plan.runs:
        begun = run.config.init
        if begun is not None and begun.startswith(str(out)) and begun not in made:
            raise InputError(f"run '{run.name}' goes on from {begun}, which no run of the plan makes")
        for names in (run.config.target, run.config.pool):
            _check_pools(names.split(","), out, collected)
        for evaluation in run.evaluations:
            _check_pools([evaluation.spec.pool or ""], out, collected)
    for evaluation in plan.agents:
        _check_pools([evaluation.spec.pool or ""], out, collected)


def _check_pools(names: Sequence[str], out: Path, collected: set[str]) -> None:
    for name in names:
        if name.startswith(str(out)) and name not in collected:
            raise InputError(f"it uses {name} and does not collect it: add it to its pools")


def _filled(value: Any, out: str) -> Any:
    """With the directory in place of `{out}`, wherever it stands."""
    if isinstance(value, str):
        return value.replace(OUT, out)
    if isinstance(value, list):
        return [_filled(item, out) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, out) for key, item in value.items()}
    return value
