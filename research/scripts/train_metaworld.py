"""Meta-World ML45 from pixels on one GPU: collect, train on seen tasks, evaluate on unseen ones.

    python research/scripts/train_metaworld.py runs/metaworld --collect
    python research/scripts/train_metaworld.py runs/metaworld --only ours replay-5 --stop-after 570
    python research/scripts/train_metaworld.py runs/toy --toy

Policies learn from `--per-task` demonstrations of each seen task; a pool holds n of each unseen task.
Under OUT lie what `research/scripts/train_plan.py` leaves; the same command goes on where it was stopped.
Neither Lance nor a video decoder is needed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from train_plan import carry_out, log


def main(arguments: list[str] | None = None) -> int:
    """Read what is wanted and carry it out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the runs and agents, only these")
    parser.add_argument("--per-task", type=int, default=10, help="demonstrations of a seen task")
    parser.add_argument("--seeds", type=int, default=3, help="of training, from 0")
    parser.add_argument("--tasks", default="unseen", help="that are evaluated")
    parser.add_argument("--eval-seeds", default="10000:10050", metavar="FIRST:LAST")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--collect", action="store_true", help="only the demonstrations, which need no GPU")
    parser.add_argument("--toy", action="store_true", help="all of it in miniature, on the CPU")
    parser.add_argument("--device", help="cpu, to train there")
    parser.add_argument("--eval-device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="that collect")
    parser.add_argument("--eval-workers", type=int, default=12, help="0: roll out in this process")
    parser.add_argument("--stop-after", type=float, default=1e9, metavar="SECONDS")
    options = parser.parse_args(arguments)

    from recap.cli.ranges import parse_seeds
    from recap_research.plans.metaworld import TablePlan, collect, make_plan, toy_of
    from recap_research.plans.plan import select
    from recap_worlds.metaworld.tasks import SEEN, tasks_named

    wanted = TablePlan(
        SEEN,
        tasks_named(options.tasks),
        options.per_task,
        tuple(range(options.seeds)),
        parse_seeds(options.eval_seeds),
        tuple(options.changes),
        device="cpu" if options.toy or options.device == "cpu" else options.eval_device,
    )
    wanted = toy_of(wanted) if options.toy else wanted
    plan = make_plan(wanted, options.out)
    plan = select(plan, options.only) if options.only else plan
    collect(wanted, options.out, options.workers, log)
    return 0 if options.collect else carry_out(plan, options)


if __name__ == "__main__":
    from recap.cli.one_line import run_script

    run_script(main)
