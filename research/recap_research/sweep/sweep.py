"""A sweep as built by a script of research/sweeps: what to collect, train, evaluate and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap.assembly import AgentConfig
from recap.errors import InputError, did_you_mean
from recap.evaluation.agents import find_factory
from recap.evaluation.run_directory import INFO, read_info
from recap.evaluation.spec import EvalSpec
from recap.retrieval.presets import find_retrieval
from recap.training.config import TrainConfig
from recap.types import Scalar
from recap_research.published import ROWS
from recap_research.sweep.pools import Selection, collect_pools

if TYPE_CHECKING:
    from recap_worlds.pusht.collecting import CollectSpec

POOLS, TRAINING, EVALUATIONS = "pools", "training", "evaluations"

Log = Callable[..., None]  # the words of one line
Evaluate = Callable[[str], EvalSpec]  # the evaluation of a policy


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of one agent."""

    name: str  # of its folder
    spec: EvalSpec


@dataclass(frozen=True)
class Run:
    """One policy to train, and its evaluations."""

    name: str  # with its seed
    family: str  # without its seed
    config: TrainConfig
    evaluations: tuple[Evaluation, ...]


@dataclass(frozen=True)
class Part:
    """Families and agents that a report shows together."""

    title: str
    names: tuple[str, ...]  # a family, or one of its evaluations: `ours/ell`
    reference: str | None = None
    text: str = ""


@dataclass
class Sweep:
    """Filled by a script. Mistakes are errors before anything is collected or trained."""

    out: Path
    device: str = "cpu"  # of the evaluations
    title: str = "Sweep"
    lead: str = ""
    agents: list[Evaluation] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)  # of families and agents
    papers: dict[str, str] = field(default_factory=dict)  # the paper's rows of families and agents
    collecting: list[Callable[[int, Log], None]] = field(default_factory=list)
    _families: dict[str, list[Run]] = field(default_factory=dict)
    _pools: dict[str, CollectSpec | Selection] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """All runs; every family's first seed comes before any second seed."""
        longest = max(map(len, self._families.values()), default=0)
        return [runs[i] for i in range(longest) for runs in self._families.values() if i < len(runs)]

    def pool(self, name: str, spec: CollectSpec | Selection) -> str:
        """PushT demonstrations, collected or selected before the trainings; returns their file."""
        _check_name(name)
        self._pools[name] = spec
        return str(self.out / POOLS / f"{name}.safetensors")

    def train(
        self,
        name: str,
        config: TrainConfig,
        evaluate: Mapping[str, Evaluate],
        seeds: Sequence[int] = (0,),
        label: str | None = None,
        paper: str | None = None,
    ) -> None:
        """Train one policy per seed, and run every evaluation with each."""
        self._enter(name, label, paper)
        for seed in seeds:
            own, made = f"{name}-{seed}", replace(config, seed=seed)
            specs = {title: make(self.policy(own)) for title, make in evaluate.items()}
            rolled = tuple(self._evaluation(f"{own}-{title}", spec) for title, spec in specs.items())
            self._families.setdefault(name, []).append(Run(own, name, made, rolled))

    def roll_out(self, name: str, spec: EvalSpec, label: str | None = None, paper: str | None = None) -> None:
        """Evaluate an agent that is not trained in this sweep."""
        self._enter(name, label, paper)
        if not spec.agent.policy.startswith(str(self.out)):
            find_factory(spec.agent.policy)
        self.agents.append(self._evaluation(name, spec))

    def part(self, title: str, names: Sequence[str], reference: str | None = None, text: str = "") -> None:
        """Add a part to the report; the names must have been added before."""
        for name in [*names, *([] if reference is None else [reference])]:
            if not self.evaluations_of(name):
                known = did_you_mean(name, self.labels)
                raise InputError(f"part '{title}' names '{name}', which nothing rolls out: {known}")
        self.parts.append(Part(title, tuple(names), reference, text))

    def policy(self, run: str) -> str:
        """The path of a run's policy, such as `ours-0`."""
        return str(self.out / TRAINING / run / "last")

    def folder(self, evaluation: Evaluation) -> Path:
        """The folder of an evaluation."""
        return self.out / EVALUATIONS / evaluation.name

    def is_finished(self, evaluation: Evaluation) -> bool:
        """True if all episodes are finished, on any device and with the pool at any path."""
        folder, wanted = self.folder(evaluation), evaluation.spec
        if not (folder / INFO).exists():
            return False
        there = read_info(folder)[0].with_agent(device=wanted.agent.device)
        same_pool = Path(there.pool or "").name == Path(wanted.pool or "").name
        return same_pool and replace(there, pool=wanted.pool, pool_version=None) == wanted

    def evaluations_of(self, name: str) -> list[Evaluation]:
        """The evaluations of a family, by seed, or of an agent; `family/title` selects one title."""
        family, _, title = name.partition("/")
        found = [
            e
            for run in self._families.get(family, ())
            for e in run.evaluations
            if not title or e.name == f"{run.name}-{title}"
        ]
        return found or [e for e in self.agents if e.name == family]

    def finished_of(self, name: str) -> list[Evaluation]:
        """The finished evaluations of a family or agent."""
        return [e for e in self.evaluations_of(name) if self.is_finished(e)]

    def collect(self, workers: int, log: Log) -> None:
        """Collect the missing demonstrations."""
        for name in collect_pools(self._pools, self.out / POOLS, workers):
            log("collected", name)
        for collect in self.collecting:
            collect(workers, log)

    def select(self, names: Sequence[str]) -> None:
        """Keep only these families and agents."""
        for name in names:
            if name not in self.labels:
                raise InputError(f"the sweep has no run or agent '{name}': {did_you_mean(name, self.labels)}")
        self._families = {name: runs for name, runs in self._families.items() if name in names}
        self.agents = [agent for agent in self.agents if agent.name in names]

    def each(
        self,
        config: Callable[[TrainConfig], TrainConfig],
        spec: Callable[[EvalSpec], EvalSpec],
        pool: Callable[[CollectSpec | Selection], CollectSpec | Selection],
    ) -> None:
        """Replace every configuration, evaluation and pool by the result of a function."""
        self.agents = [Evaluation(e.name, spec(e.spec)) for e in self.agents]
        for name, runs in self._families.items():
            self._families[name] = [
                replace(
                    run,
                    config=config(run.config),
                    evaluations=tuple(Evaluation(e.name, spec(e.spec)) for e in run.evaluations),
                )
                for run in runs
            ]
        self._pools = {name: pool(one) for name, one in self._pools.items()}

    def _enter(self, name: str, label: str | None, paper: str | None) -> None:
        _check_name(name)
        if name in self.labels:
            raise InputError(f"two runs or agents are called '{name}': give one another name")
        self.labels[name] = label or name
        if paper is not None:
            if paper not in ROWS:
                raise InputError(f"'{name}' names the paper's row '{paper}': {did_you_mean(paper, ROWS)}")
            self.papers[name] = paper

    def _evaluation(self, name: str, spec: EvalSpec) -> Evaluation:
        if spec.agent.retrieval:  # an unknown name is an error before anything runs
            own = f"{spec.env}-{spec.agent.retrieval}"
            known = own in spec.suite.retrievals()
            find_retrieval(own if known else spec.agent.retrieval, spec.suite.robot(spec.options))
        return Evaluation(name, spec.with_agent(device=self.device))


def pusht(
    policy: str,
    seeds: Sequence[int],
    tasks: Sequence[str] = (),
    *,
    block: str = "tee",
    pool: str | None = None,
    objects: Any = "truth",
    pose_noise: tuple[float, float] = (0.0, 0.0),
    **agent: Any,
) -> EvalSpec:
    """An evaluation of the triangle on PushT; further settings are the agent's."""
    options: dict[str, Scalar] = {"pusher": "triangle", "block": block}
    return EvalSpec(
        AgentConfig(policy, **agent),
        "pusht",
        options,
        tasks=tuple(tasks),
        seeds=tuple(seeds),
        pool=pool,
        objects=objects,
        pose_noise=pose_noise,
    )


def _check_name(name: str) -> None:
    """Check that a name can be part of a file name and does not leave the sweep's folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"'{name}' cannot name a file: use letters, digits, '.', '_' and '-'")
