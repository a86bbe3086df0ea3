"""Two arms as a plan: demonstrations of both robots, then each variant trained and evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recap.assembly import AgentConfig
from recap.errors import InputError, one_of
from recap.evaluation.spec import EvalSpec
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed
from recap.training.config import TrainConfig
from recap.training.presets import preset
from recap.types import Episode
from recap.workers import run_in_workers
from recap_research.plans.plan import POOLS, Evaluation, Log, Part, Plan, Run, checkpoint_of
from recap_research.plans.shrinking import shrunk
from recap_worlds.dualarm.collection import Wanted, demonstrate_all
from recap_worlds.dualarm.tasks import FIRST_COLLECTION_SEED, SEEN, TASKS, task_named

TARGET, POOL = "viperx", "ur5e"
VARIANTS = {
    "ours": "dualarm-nano",
    "world": "dualarm-nano-world",
    "no-retrieval": "dualarm-nano-no-retrieval",
    "co-training": "dualarm-nano-co-training",
    "supervised": "dualarm-nano-supervised",
}
LABELS = {
    "ours": "ours",
    "world": "residual in the world's frame",
    "no-retrieval": "no retrieval",
    "co-training": "co-training",
    "supervised": "supervised on every task",
    "replay": "retrieval only",
    "replay-world": "retrieval only, in the world's frame",
}


@dataclass(frozen=True)
class ArmsPlan:
    """What to collect, to train and to evaluate."""

    tasks: tuple[str, ...]  # those that are seen in training, and those that are not
    variants: tuple[str, ...] = tuple(VARIANTS)
    per_task: int = 50  # demonstrations, of either robot
    seeds: tuple[int, ...] = (0,)  # of training
    eval_seeds: tuple[int, ...] = tuple(range(500, 520))
    image_size: int = 64  # of the demonstrations, where a variant looks at them
    changes: tuple[str, ...] = ()  # of every preset
    toy: bool = False
    device: str = "cpu"  # of evaluations
    pool_only: tuple[str, ...] = ()  # further tasks that the pool shows and nobody is asked for

    def __post_init__(self) -> None:
        for variant in self.variants:
            one_of("variant", variant, tuple(VARIANTS))
        for task in (*self.tasks, *self.pool_only):
            task_named(task)
        if not self.seen:
            raise InputError(f"none of the tasks is one to train on: give some of {', '.join(SEEN)}")
        if self.per_task < 2:
            raise InputError(f"{self.per_task} demonstrations a task leave none to judge by: give 2 or more")

    @property
    def seen(self) -> tuple[str, ...]:
        """The tasks that are trained on."""
        return tuple(task for task in self.tasks if task in SEEN)

    @property
    def looks(self) -> bool:
        """Whether any variant needs pictures."""
        return any(preset(VARIANTS[name], self.changes).policy.sees for name in self.variants)

    def cameras(self, embodiment: str) -> tuple[str, ...]:
        """Whose pictures are drawn: of a pool that is only retrieved from, those that are shown of it."""
        drawn: list[str] = []
        for name in self.variants if self.image_size else ():
            config = preset(VARIANTS[name], self.changes)
            image = config.policy.image
            if config.policy.sees and (embodiment != POOL or config.co_training):
                drawn += image.cameras
            elif config.policy.sees and config.policy.retrieval:
                drawn += image.retrieved
        return tuple(dict.fromkeys(drawn))

    def file(self, out: Path, embodiment: str) -> Path:
        """The demonstrations of one robot."""
        return out / POOLS / f"{embodiment}{'' if self.looks else '-poses'}.safetensors"

    def wanted(self, embodiment: str) -> list[Wanted]:
        """The demonstrations of one robot; the other's begin in the same scenes."""
        tasks = self.tasks if "supervised" in self.variants else self.seen
        if embodiment == POOL:
            tasks = tuple(dict.fromkeys((*self.tasks, *self.pool_only)))
        seeds = range(FIRST_COLLECTION_SEED, FIRST_COLLECTION_SEED + self.per_task)
        return [(task, embodiment, seed) for task in tasks for seed in seeds]


def collect(plan: ArmsPlan, out: Path, workers: int, log: Log) -> None:
    """Collect what is missing of both robots, into one snapshot each; failures are left out and told."""
    for embodiment in (TARGET, POOL):
        file, wanted, cameras = plan.file(out, embodiment), plan.wanted(embodiment), plan.cameras(embodiment)
        there: dict[str, Episode] = {}
        if file.exists():
            there = {e.id: e for e in PackedPool.open(file) if set(cameras) <= set(e.images)}
        tried = {_name(*item) for item in wanted}
        missing = [item for item in wanted if _name(*item) not in there]
        if not missing:
            continue
        n_failed = 0
        image_size = plan.image_size if cameras else 0
        for episode in run_in_workers(partial(demonstrate_all, image_size, cameras), missing, workers):
            there[episode.id] = episode
            n_failed += not episode.success
        kept = [there[name] for name in sorted(there) if there[name].success or name not in tried]
        write_packed(MemoryView(kept), file, films=False)
        log("collected", len(kept), "of", embodiment, f"({n_failed} failed and are left out)")


def _name(task: str, embodiment: str, seed: int) -> str:
    return f"dualarm/{task}/clean/{seed}/{embodiment}"


def make_plan(plan: ArmsPlan, out: Path) -> Plan:
    """The plan that trains every variant with its first seed before any with its second."""
    families = {name: _config(plan, name, out) for name in plan.variants}
    runs = []
    for seed in plan.seeds:
        for name, config in families.items():
            own = f"{name}-{seed}"
            spec = _spec(plan, out, AgentConfig(str(checkpoint_of(out, own))))
            evaluations = (Evaluation(f"{own}-all", spec),)
            runs.append(Run(own, name, replace(config, seed=seed), evaluations))
    agents = (
        Evaluation("replay", _spec(plan, out, AgentConfig(retrieval="parts"))),
        Evaluation("replay-world", _spec(plan, out, AgentConfig(retrieval="world"))),
    )
    names = ("replay", "replay-world", *families)
    part = Part("Two arms", names, "replay")
    return Plan("Two arms", "", tuple(runs), agents, {}, (part,), {name: LABELS[name] for name in names}, {})


def _config(plan: ArmsPlan, variant: str, out: Path) -> TrainConfig:
    config = preset(VARIANTS[variant], plan.changes)
    encoder = str(out / "autoencoders" / "camera") if config.policy.sees else None
    seen = tuple(f"task_key={task}" for task in plan.seen)
    config = replace(
        config,
        target=str(plan.file(out, TARGET)),
        pool=str(plan.file(out, POOL)),
        target_where=config.target_where and seen,
        pool_where=config.pool_where and seen,
        autoencoder=config.autoencoder or encoder,
    )
    return shrunk(config) if plan.toy else config


def _spec(plan: ArmsPlan, out: Path, agent: AgentConfig) -> EvalSpec:
    return EvalSpec(
        replace(agent, device=plan.device),
        "dualarm",
        tasks=plan.tasks,
        seeds=plan.eval_seeds,
        pool=str(plan.file(out, POOL)),
    )


def toy_of(plan: ArmsPlan) -> ArmsPlan:
    """Every step of it in a few minutes on a CPU."""
    return replace(plan, per_task=3, eval_seeds=plan.eval_seeds[:1], seeds=plan.seeds[:1], toy=True)


def known_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Those that this version of the suite has."""
    return tuple(name for name in names if name in TASKS)
