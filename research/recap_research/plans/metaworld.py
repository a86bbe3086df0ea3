"""Meta-World as a plan: policies of the seen tasks, and rows of all agents on the unseen ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recap.assembly import AgentConfig
from recap.evaluation.spec import EvalSpec
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.suites import suites
from recap.training.config import TrainConfig
from recap.training.presets import preset
from recap.types import Episode
from recap.workers import run_in_workers
from recap_research.plans.plan import POOLS, Evaluation, Log, Part, Plan, Run, checkpoint_of
from recap_research.plans.shrinking import shrunk
from recap_worlds.collecting import COLLECTION_SEEDS, Demo, SuiteSpec, successful

SHOTS = (1, 5, 25)  # demonstrations of an unseen task
SEEN_FILE = "seen"
OTHERS = ("no-retrieval", "co-training", "fine-tune")
REPLAYS = {"replay": "image", "nearest": "metaworld-nearest", "state": "metaworld-objects", "world": "world"}
DEVELOPMENT = range(500, 502)
LABELS = {
    "ours": "ours",
    "no-retrieval": "no retrieval, language-conditioned",
    "co-training": "co-training on the new demonstrations",
    "fine-tune": "fine-tuned on the new demonstrations",
    "replay": "ours without residual: replay, shifted by images",
    "nearest": "replay of the nearest scene, unshifted",
    "world": "replay of the nearest moment, by pixels, hand and words",
    "state": "replay, moved by true poses",
    "expert": "expert, by true poses",
}


@dataclass(frozen=True)
class TablePlan:
    """What to collect, to train and to evaluate."""

    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    per_task: int
    seeds: tuple[int, ...]
    eval_seeds: tuple[int, ...]
    changes: tuple[str, ...] = ()
    shots: tuple[int, ...] = SHOTS
    image_size: int = 128
    toy: bool = False
    device: str = "cpu"

    def spec(self) -> SuiteSpec:
        """How demonstrations are made."""
        return SuiteSpec("metaworld", (*self.seen, *self.unseen), 1, "sawyer", image_size=self.image_size)

    def files(self) -> dict[str, list[tuple[str, int]]]:
        """Pools by name: the demonstrations of each."""
        found = {SEEN_FILE: _scenes(self.seen, self.per_task)}
        return found | {f"unseen-{n}": _scenes(self.unseen, n) for n in self.shots}


def _scenes(tasks: tuple[str, ...], n: int) -> list[tuple[str, int]]:
    return [(task, COLLECTION_SEEDS + i) for task in tasks for i in range(n)]


def file_of(out: Path, name: str) -> Path:
    """Demonstrations of that name."""
    return out / POOLS / f"{name}.safetensors"


def collect(plan: TablePlan, out: Path, workers: int, log: Log) -> None:
    """Collect what is missing; where the expert fails, of another scene."""
    files = plan.files()
    missing = sorted(
        {one for name, demos in files.items() if not file_of(out, name).exists() for one in demos}
    )
    if not missing:
        return
    there: dict[tuple[str, int], Episode] = {}
    for key, episode in run_in_workers(partial(_demonstrations, plan.spec()), missing, workers):
        there[key] = episode
    for name, demos in files.items():
        if not file_of(out, name).exists():
            write_packed(MemoryView([there[key] for key in demos]), file_of(out, name), films=False)
            log("collected", len(demos), "for", name)


def _demonstrations(
    spec: SuiteSpec, scenes: Iterator[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], Episode]]:
    suite = suites()[spec.env]
    options = suite.check(spec.options)
    world, expert = suite.make(options), suite.expert(options)
    for task, seed in scenes:
        yield (task, seed), successful(spec, suite, world, expert, Demo(0, task, seed))


def make_plan(plan: TablePlan, out: Path) -> Plan:
    """Replay first, then the policies, the most decisive first."""
    runs = []
    ours = [("ours", seed) for seed in plan.seeds]
    for family, seed in [*ours[:1], (OTHERS[0], 0), *ours[1:], *((name, 0) for name in OTHERS[1:])]:
        own = f"{family}-{seed}"
        policy = AgentConfig(str(checkpoint_of(out, own)))
        shots = plan.shots if own == "ours-0" else (5,)
        evaluations = [Evaluation(f"{own}-{n}", _spec(plan, out, policy, n)) for n in shots]
        if own == "ours-0":
            evaluations.append(Evaluation(f"{own}-{SEEN_FILE}", _development(plan, out, policy)))
        runs.append(Run(own, family, replace(_config(plan, family, out), seed=seed), tuple(evaluations)))
    agents = [Evaluation("expert", _spec(plan, out, AgentConfig("expert"), None))]
    for name, retrieval in REPLAYS.items():
        replay = AgentConfig(retrieval=retrieval)
        agents += [Evaluation(f"{name}-{n}", _spec(plan, out, replay, n)) for n in plan.shots]
        agents.append(Evaluation(f"{name}-{SEEN_FILE}", _development(plan, out, replay)))
    names = (*(agent.name for agent in agents), *dict.fromkeys(run.family for run in runs))
    labels = {name: LABELS.get(name) or LABELS[name.rpartition("-")[0]] for name in names}
    return Plan("Meta-World", "", tuple(runs), tuple(agents), {}, (Part("Unseen tasks", names),), labels, {})


def _config(plan: TablePlan, family: str, out: Path) -> TrainConfig:
    name = "metaworld-nano" if family == "ours" else "metaworld-nano-no-retrieval"
    seen, new = str(file_of(out, SEEN_FILE)), str(file_of(out, "unseen-5"))
    target = {"co-training": f"{seen},{new}", "fine-tune": new}.get(family, seen)
    config = replace(
        preset(name, plan.changes),
        target=target,
        pool=target if family == "ours" else seen,
        autoencoder=str(out / "autoencoders" / "camera"),
    )
    if family == "fine-tune":
        init = str(checkpoint_of(out, "no-retrieval-0"))
        config = replace(
            config, init=init, autoencoder=None, n_iterations=300, warm_up=50, learning_rate=1e-4
        )
    return shrunk(config) if plan.toy else config


def _spec(plan: TablePlan, out: Path, agent: AgentConfig, n: int | None) -> EvalSpec:
    agent = replace(agent, device=plan.device)
    pool = None if n is None else str(file_of(out, f"unseen-{n}"))
    return EvalSpec(agent, "metaworld", tasks=plan.unseen, seeds=plan.eval_seeds, pool=pool)


def _development(plan: TablePlan, out: Path, agent: AgentConfig) -> EvalSpec:
    """The seen tasks, in scenes that nobody has demonstrated."""
    spec = _spec(plan, out, agent, None)
    return replace(spec, tasks=plan.seen, seeds=tuple(DEVELOPMENT), pool=str(file_of(out, SEEN_FILE)))


def toy_of(plan: TablePlan) -> TablePlan:
    """Every step of it in a few minutes on a CPU."""
    return replace(
        plan,
        seen=plan.seen[:2],
        unseen=plan.unseen[:2],
        per_task=3,
        eval_seeds=(500,),
        seeds=plan.seeds[:1],
        shots=(1, 5),
        toy=True,
    )
