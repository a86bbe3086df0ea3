"""A pool that grows by six levels while the policy stays frozen: at which level is each unseen task solved?

    python research/benchmarks/dualarm_levels.py --agents replay,CHECKPOINT \\
        --json docs/results/dualarm_levels.json

Level 1 has the five trained tasks; every further level adds one unseen task among five or six others
(`recap robotwin tasks`). The pool has UR5e demonstrations; the ViperX acts. Stopped runs are resumed; those
under --out are the input of `recap report`.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from report import arguments, finish

from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.cli.terminal import progress_bar
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import wilson
from recap.pool.memory import MemoryView
from recap.pool.packed import PackedPool, write_packed
from recap.types import Episode
from recap.workers import run_in_workers
from recap_worlds.dualarm.collection import demonstrate_all
from recap_worlds.dualarm.robotwin_tasks import LEVELS, UNSEEN, pool_tasks
from recap_worlds.dualarm.tasks import FIRST_COLLECTION_SEED


def main() -> None:
    """Collect, pack one pool per level, evaluate every agent on each."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--agents", default="replay", help="replay and checkpoints, separated by commas")
    parser.add_argument("--per-task", type=int, default=10, help="demonstrations")
    parser.add_argument("--seeds", type=int, nargs=2, default=(500, 520), metavar=("FIRST", "END"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/levels"))
    options = parser.parse_args()
    if options.quick:
        options.per_task, options.seeds = 1, (500, 501)
    whole = collect(options.out / "pools" / f"all-{options.per_task}.safetensors", options)
    rows: dict[str, Any] = {}
    for agent in options.agents.split(","):
        for level in range(1, len(LEVELS) + 1):
            pool = options.out / "pools" / f"level-{level}-{options.per_task}.safetensors"
            if not pool.exists():
                known = pool_tasks(level)
                kept = [episode for episode in whole if episode.attributes["task_key"] in known]
                write_packed(MemoryView(kept), pool, images=False)
            seeds = tuple(range(*options.seeds))
            spec = EvalSpec(AgentConfig(agent), "dualarm", tasks=UNSEEN, seeds=seeds, pool=str(pool))
            rows.setdefault(agent, {})[level] = run(spec, f"{Path(agent).name}-level-{level}", options)
            finish({"per_task": options.per_task, "seeds": list(options.seeds), "rows": rows}, options.json)


def run(spec: EvalSpec, name: str, options: Any) -> dict[str, Any]:
    """Successes on every task."""
    with progress_bar(name) as progress:
        evaluate(spec, options.out / name, workers=options.workers, progress=progress)
    _, results = read_info(options.out / name)
    found = {}
    for task in spec.tasks:
        own = [result for result in results if result.task == task]
        won = sum(result.outcome == "success" for result in own)
        errors = sum(result.outcome == "error" for result in own)
        found[task] = {
            "successes": won,
            "n": len(own),
            "errors": errors,
            "interval": list(wilson(won, len(own))),
        }
        print(f"  {task:24s} {won}/{len(own)}", flush=True)
    return found


def collect(file: Path, options: Any) -> list[Episode]:
    """UR5e demonstrations of every task of the levels, poses only, collected once."""
    if not file.exists():
        seeds = range(FIRST_COLLECTION_SEED, FIRST_COLLECTION_SEED + options.per_task)
        wanted = [(task, "ur5e", seed) for task in pool_tasks(len(LEVELS)) for seed in seeds]
        found = []
        with progress_bar("demonstrations") as progress:
            for episode in run_in_workers(partial(demonstrate_all, 0, ()), wanted, options.workers):
                found.append(episode)
                progress(len(found), len(wanted))
        kept = sorted((e for e in found if e.success), key=lambda e: e.id)
        print(f"{len(kept)} of {len(wanted)} demonstrations of {len(pool_tasks(len(LEVELS)))} tasks")
        write_packed(MemoryView(kept), file, images=False)
    return list(PackedPool.open(file))


if __name__ == "__main__":
    run_script(main)
