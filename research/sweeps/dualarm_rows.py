"""Two arms on one GPU: collect demonstrations of both robots, train each variant, evaluate in parallel.

    python research/sweeps/dualarm_rows.py --out runs/arms --dry-run
    python research/sweeps/dualarm_rows.py --out runs/arms --variants ours,no-retrieval --stop-after 570
    python research/sweeps/dualarm_rows.py --out runs/toy --toy
    recap report runs/arms/evaluations --out arms.html

Demonstrations are collected once; later calls add tasks or demonstrations to them. Evaluation uses
development seeds by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.errors import InputError, one_of
from recap.evaluation.spec import EvalSpec
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed
from recap.training.config import TrainConfig
from recap.training.presets import preset
from recap.types import Episode
from recap.workers import run_in_workers
from recap_research.sweep.running import main, parser
from recap_research.sweep.sweep import POOLS, Log, Sweep
from recap_worlds.dualarm.collection import Wanted, demonstrate_all
from recap_worlds.dualarm.tasks import FIRST_COLLECTION_SEED, SEEN, UNSEEN, task_named, tasks_named

TARGET, POOL = "viperx", "ur5e"
VARIANTS = {  # recipe, label
    "ours": ("dualarm-nano", "ours"),
    "world": ("dualarm-nano-world", "residual in the world's frame"),
    "no-retrieval": ("dualarm-nano-no-retrieval", "no retrieval"),
    "co-training": ("dualarm-nano-co-training", "co-training"),
    "supervised": ("dualarm-nano-supervised", "supervised on every task"),
}


@dataclass(frozen=True)
class Arms:
    """The data, trainings and evaluations of the sweep."""

    tasks: tuple[str, ...]  # tasks seen in training, and unseen ones
    variants: tuple[str, ...] = tuple(VARIANTS)
    per_task: int = 50  # demonstrations of each robot
    seeds: tuple[int, ...] = (0,)  # of training
    eval_seeds: tuple[int, ...] = tuple(range(500, 520))
    image_size: int = 64  # of the demonstrations, if a variant has image inputs
    changes: tuple[str, ...] = ()  # to every recipe
    pool_only: tuple[str, ...] = ()  # further tasks in the pool that are not evaluated

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
        """The tasks seen in training."""
        return tuple(task for task in self.tasks if task in SEEN)

    @property
    def configs(self) -> Mapping[str, TrainConfig]:
        """The config of each variant, before the paths of the demonstrations are set."""
        return {name: preset(VARIANTS[name][0], self.changes) for name in self.variants}

    def cameras(self, embodiment: str) -> tuple[str, ...]:
        """The cameras to render; for a pool that is only retrieved from, those that a policy uses."""
        drawn: list[str] = []
        for config in self.configs.values() if self.image_size else ():
            policy = config.policy
            if policy.sees and (embodiment != POOL or config.co_training):
                drawn += policy.image.cameras
            elif policy.sees and policy.retrieval:
                drawn += policy.image.retrieved
        return tuple(dict.fromkeys(drawn))

    def file(self, out: Path, embodiment: str) -> Path:
        """The file of one robot's demonstrations."""
        sees = any(config.policy.sees for config in self.configs.values())
        return out / POOLS / f"{embodiment}{'' if sees else '-poses'}.safetensors"

    def wanted(self, embodiment: str) -> list[Wanted]:
        """The demonstrations of one robot; both robots have the same scenes."""
        tasks = self.tasks if "supervised" in self.variants else self.seen
        if embodiment == POOL:
            tasks = tuple(dict.fromkeys((*self.tasks, *self.pool_only)))
        seeds = range(FIRST_COLLECTION_SEED, FIRST_COLLECTION_SEED + self.per_task)
        return [(task, embodiment, seed) for task in tasks for seed in seeds]

    def collect(self, out: Path, workers: int, log: Log) -> None:
        """Collect the missing demonstrations of both robots, one snapshot each; failed ones are left out."""
        for embodiment in (TARGET, POOL):
            file, wanted, cameras = (
                self.file(out, embodiment),
                self.wanted(embodiment),
                self.cameras(embodiment),
            )
            there: dict[str, Episode] = {}
            if file.exists():
                there = {e.id: e for e in PackedPool.open(file) if set(cameras) <= set(e.images)}
            missing = [item for item in wanted if _name(*item) not in there]
            if not missing:
                continue
            work = partial(demonstrate_all, self.image_size if cameras else 0, cameras)
            made = {episode.id: episode for episode in run_in_workers(work, missing, workers)}
            there |= {name: episode for name, episode in made.items() if episode.success}
            write_packed(MemoryView([there[name] for name in sorted(there)]), file, films=False)
            n_failed = sum(not episode.success for episode in made.values())
            log("collected", len(there), "of", embodiment, f"({n_failed} failed and are left out)")

    def build(self, sweep: Sweep) -> None:
        """Add each variant, and replay in both frames."""
        sweep.title = "Two arms"
        sweep.collecting.append(partial(self.collect, sweep.out))
        target, pool = (str(self.file(sweep.out, embodiment)) for embodiment in (TARGET, POOL))

        def rolled(policy: str, retrieval: str = "") -> EvalSpec:
            agent = AgentConfig(policy, retrieval=retrieval)
            return EvalSpec(agent, "dualarm", tasks=self.tasks, seeds=self.eval_seeds, pool=pool)

        sweep.roll_out("replay", rolled("replay", "parts"), "retrieval only")
        sweep.roll_out("replay-world", rolled("replay", "world"), "retrieval only, in the world's frame")
        seen = tuple(f"task_key={task}" for task in self.seen)
        for name, config in self.configs.items():
            chosen = {"target_where": config.target_where and seen, "pool_where": config.pool_where and seen}
            config = replace(config, target=target, pool=pool, **chosen)
            sweep.train(name, config, {"all": rolled}, self.seeds, VARIANTS[name][1])
        sweep.part("Two arms", ["replay", "replay-world", *self.variants], "replay")


def _name(task: str, embodiment: str, seed: int) -> str:
    return f"dualarm/{task}/clean/{seed}/{embodiment}"


def start(arguments: Iterable[str] | None = None) -> int:
    """Read the options, then describe or run the sweep."""
    options = parser(__doc__)
    options.add_argument("--variants", default=",".join(VARIANTS))
    options.add_argument("--tasks", help="keys, separated by commas  [default: the ten of the suite]")
    options.add_argument("--pool-tasks", help="further tasks of the pool, or all  [default: none]")
    options.add_argument("--per-task", type=int, default=50, help="demonstrations of either robot")
    options.add_argument("--seeds", type=int, default=1, help="of training, from 0")
    options.add_argument("--eval-seeds", default="500:520", metavar="FIRST:LAST")
    options.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = options.parse_args(arguments if arguments is None else list(arguments))
    eval_seeds = parse_seeds(given.eval_seeds)
    arms = Arms(
        tasks_named(given.tasks) if given.tasks else (*SEEN, *UNSEEN),
        tuple(given.variants.split(",")),
        3 if given.toy else given.per_task,
        tuple(range(1 if given.toy else given.seeds)),
        eval_seeds[:1] if given.toy else eval_seeds,
        changes=tuple(given.changes),
        pool_only=tasks_named(given.pool_tasks) if given.pool_tasks else (),
    )
    return main(given, arms.build)


if __name__ == "__main__":
    run_script(start)
