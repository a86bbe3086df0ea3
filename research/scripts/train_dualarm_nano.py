"""Two arms on one GPU: collect demonstrations of both robots, train each variant, evaluate beside it.

    python research/scripts/train_dualarm_nano.py runs/arms --dry-run
    python research/scripts/train_dualarm_nano.py runs/arms --variants ours,no-retrieval --stop-after 570
    python research/scripts/train_dualarm_nano.py runs/toy --toy
    recap report runs/arms/evaluations --out arms.html

Under OUT lie the demonstrations (pools/), what `research/scripts/train_plan.py` leaves (checkpoints/,
evaluations/, results/, ledger.jsonl) and what is needed only to go on (training/, data/). The same command
goes on where it was stopped; demonstrations are collected once, and more tasks or more of each are added to
them. Evaluation is on development seeds unless told otherwise. Neither Lance nor a video decoder is needed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from train_plan import carry_out, log


def main(arguments: list[str] | None = None) -> int:
    """Read what is wanted, then tell it or carry it out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--variants", default="ours,no-retrieval,co-training,world,supervised")
    parser.add_argument("--tasks", help="keys, separated by commas  [default: the ten of the suite]")
    parser.add_argument("--pool-tasks", help="further tasks of the pool, or all  [default: none]")
    parser.add_argument("--per-task", type=int, default=50, help="demonstrations of either robot")
    parser.add_argument("--seeds", type=int, default=1, help="of training, from 0")
    parser.add_argument("--eval-seeds", default="500:520", metavar="FIRST:LAST")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dry-run", action="store_true", help="tell what each run would take")
    parser.add_argument("--collect", action="store_true", help="only the demonstrations, which need no GPU")
    parser.add_argument("--toy", action="store_true", help="all of it in miniature, on the CPU")
    parser.add_argument("--device", help="cpu, to train there")
    parser.add_argument("--eval-device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="that collect")
    parser.add_argument("--eval-workers", type=int, default=8, help="0: roll out in this process")
    parser.add_argument("--stop-after", type=float, default=1e9, metavar="SECONDS")
    options = parser.parse_args(arguments)

    from recap.cli.ranges import parse_seeds
    from recap_research.plans.dualarm import ArmsPlan, collect, known_tasks, make_plan, toy_of
    from recap_research.plans.ledger import describe
    from recap_research.plans.running import finished_runs
    from recap_worlds.dualarm.tasks import SEEN, UNSEEN, tasks_named

    cpu = options.toy or options.device == "cpu"
    wanted = ArmsPlan(
        tasks_named(options.tasks) if options.tasks else known_tasks((*SEEN, *UNSEEN)),
        tuple(options.variants.split(",")),
        options.per_task,
        tuple(range(options.seeds)),
        parse_seeds(options.eval_seeds),
        changes=tuple(options.changes),
        device="cpu" if cpu else options.eval_device,
        pool_only=tasks_named(options.pool_tasks) if options.pool_tasks else (),
    )
    wanted = toy_of(wanted) if options.toy else wanted
    plan = make_plan(wanted, options.out)
    if options.dry_run:
        print("\n".join(describe(plan, finished_runs(plan, options.out))))
        return 0
    collect(wanted, options.out, options.workers, log)
    if options.collect:
        return 0
    return carry_out(plan, options)


if __name__ == "__main__":
    from recap.cli.one_line import run_script

    run_script(main)
