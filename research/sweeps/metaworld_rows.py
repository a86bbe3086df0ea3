"""Meta-World ML45 from pixels on one GPU: collect, train on seen tasks, evaluate on unseen ones.

    python research/sweeps/metaworld_rows.py --out runs/metaworld --collect
    python research/sweeps/metaworld_rows.py --out runs/metaworld --only ours replay-5 --stop-after 570
    python research/sweeps/metaworld_rows.py --out runs/toy --toy

Policies learn from `--per-task` demonstrations of each seen task; a pool holds n of each unseen task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.spec import EvalSpec
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.suites import suites
from recap.training.config import TrainConfig
from recap.training.presets import preset
from recap.types import Episode
from recap.workers import run_in_workers
from recap_research.sweep.running import main, parser
from recap_research.sweep.sweep import POOLS, Log, Sweep
from recap_worlds.collecting import COLLECTION_SEEDS, Demo, SuiteSpec, successful
from recap_worlds.metaworld.tasks import SEEN, tasks_named

SHOTS = (1, 5, 25)  # demonstrations of an unseen task
SEEN_FILE = "seen"
DEVELOPMENT = (500, 501)
REPLAYS = {  # retrieval, label
    "replay": ("image", "ours without residual: replay, shifted by images"),
    "nearest": ("metaworld-nearest", "replay of the nearest scene, unshifted"),
    "state": ("metaworld-objects", "replay, moved by true poses"),
    "world": ("world", "replay of the nearest moment, by pixels, hand and words"),
}
POLICIES = {
    "ours": "ours",
    "no-retrieval": "no retrieval, language-conditioned",
    "co-training": "co-training on the new demonstrations",
    "fine-tune": "fine-tuned on the new demonstrations",
}


@dataclass(frozen=True)
class Rows:
    """The data, trainings and evaluations of the sweep."""

    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    per_task: int
    seeds: tuple[int, ...]  # training seeds of our policy; the others are trained once
    eval_seeds: tuple[int, ...]
    changes: tuple[str, ...] = ()
    shots: tuple[int, ...] = SHOTS

    def files(self) -> dict[str, list[tuple[str, int]]]:
        """Pools by name, with the demonstrations of each."""
        found = {SEEN_FILE: _scenes(self.seen, self.per_task)}
        return found | {f"unseen-{n}": _scenes(self.unseen, n) for n in self.shots}

    def collect(self, out: Path, workers: int, log: Log) -> None:
        """Collect the missing demonstrations; where the expert fails, another scene is used."""
        files = {name: demos for name, demos in self.files().items() if not file_of(out, name).exists()}
        missing = sorted({one for demos in files.values() for one in demos})
        spec = SuiteSpec("metaworld", (*self.seen, *self.unseen), 1, "sawyer", image_size=128)
        there: dict[tuple[str, int], Episode] = {}
        for key, episode in run_in_workers(partial(_demonstrations, spec), missing, workers):
            there[key] = episode
        for name, demos in files.items():
            write_packed(MemoryView([there[key] for key in demos]), file_of(out, name), films=False)
            log("collected", len(demos), "for", name)

    def build(self, sweep: Sweep) -> None:
        """Add replay first, then the policies, the most important first."""
        sweep.title = "Meta-World"
        sweep.collecting.append(partial(self.collect, sweep.out))

        def rolled(n: int | str | None, policy: str, retrieval: str = "") -> EvalSpec:
            agent = AgentConfig(policy, retrieval=retrieval)
            if n == SEEN_FILE:  # seen tasks, in scenes without demonstrations
                tasks, seeds, pool = self.seen, DEVELOPMENT, str(file_of(sweep.out, SEEN_FILE))
            else:
                pool = None if n is None else str(file_of(sweep.out, f"unseen-{n}"))
                tasks, seeds = self.unseen, self.eval_seeds
            return EvalSpec(agent, "metaworld", tasks=tasks, seeds=seeds, pool=pool)

        names = ["expert"]
        sweep.roll_out("expert", rolled(None, "expert"), "expert, by true poses")
        for name, (retrieval, label) in REPLAYS.items():
            for n in (*self.shots, SEEN_FILE):
                names.append(f"{name}-{n}")
                sweep.roll_out(names[-1], rolled(n, "replay", retrieval), label)
        for name, label in POLICIES.items():
            shots = (*self.shots, SEEN_FILE) if name == "ours" else (5,)
            evaluate = {str(n): partial(rolled, n) for n in shots}
            seeds = self.seeds if name == "ours" else (0,)
            sweep.train(name, self.config(name, sweep), evaluate, seeds, label)
        sweep.part("Unseen tasks", [*names, *POLICIES])

    def config(self, name: str, sweep: Sweep) -> TrainConfig:
        """The training config of a policy."""
        recipe = "metaworld-nano" if name == "ours" else "metaworld-nano-no-retrieval"
        seen, new = (str(file_of(sweep.out, file)) for file in (SEEN_FILE, "unseen-5"))
        target = {"co-training": f"{seen},{new}", "fine-tune": new}.get(name, seen)
        config = replace(preset(recipe, self.changes), target=target, pool=target if name == "ours" else seen)
        if name != "fine-tune":
            return config
        init = sweep.policy("no-retrieval-0")
        return replace(config, init=init, n_iterations=300, warm_up=50, learning_rate=1e-4)


def file_of(out: Path, name: str) -> Path:
    """The file of demonstrations with this name."""
    return out / POOLS / f"{name}.safetensors"


def _scenes(tasks: tuple[str, ...], n: int) -> list[tuple[str, int]]:
    return [(task, COLLECTION_SEEDS + i) for task in tasks for i in range(n)]


def _demonstrations(
    spec: SuiteSpec, scenes: Iterator[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], Episode]]:
    suite = suites()[spec.env]
    options = suite.check(spec.options)
    world, expert = suite.make(options), suite.expert(options)
    for task, seed in scenes:
        yield (task, seed), successful(spec, suite, world, expert, Demo(0, task, seed))


def start(arguments: Iterable[str] | None = None) -> int:
    """Read the options and run the sweep."""
    options = parser(__doc__)
    options.add_argument("--per-task", type=int, default=10, help="demonstrations of a seen task")
    options.add_argument("--seeds", type=int, default=3, help="of training, from 0")
    options.add_argument("--tasks", default="unseen", help="that are evaluated")
    options.add_argument("--eval-seeds", default="10000:10050", metavar="FIRST:LAST")
    options.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = options.parse_args(arguments if arguments is None else list(arguments))
    unseen, seeds = tasks_named(given.tasks), tuple(range(given.seeds))
    rows = Rows(SEEN, unseen, given.per_task, seeds, parse_seeds(given.eval_seeds), tuple(given.changes))
    if given.toy:
        rows = replace(
            rows,
            seen=SEEN[:2],
            unseen=unseen[:2],
            per_task=3,
            seeds=seeds[:1],
            eval_seeds=(500,),
            shots=(1, 5),
        )
    return main(given, rows.build)


if __name__ == "__main__":
    run_script(start)
