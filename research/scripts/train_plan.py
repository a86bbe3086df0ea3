"""Train and evaluate the policies of a plan on one GPU: data once, run after run, evaluations beside it.

    python research/scripts/train_plan.py research/scripts/plans/baselines.json --out runs/evidence --dry-run
    python research/scripts/train_plan.py research/scripts/plans/baselines.json --out runs/evidence \\
        --stop-after 570
    recap report runs/evidence/evaluations --out evidence.html

A plan is a JSON file:

    {"title": "Baselines", "autoencoder": {"block": "pusht-nano"},
     "pools": {"ell": {"pusher": "triangle", "block": "ell", "angles": [0], "per_angle": 100}},
     "evaluate": {"all": {"seeds": [42, 92]}},
     "runs": [{"name": "ours", "preset": "pusht-nano", "set": ["n_iterations=1800"], "seeds": [0, 1, 2],
               "label": "ours", "paper": "ours"}],
     "agents": {"replay": {"seeds": [42, 92], "label": "retrieval only", "paper": "retrieval-only"}},
     "parts": [{"title": "Baselines", "runs": ["replay", "ours"], "reference": "replay", "text": "…"}]}

`{out}` stands for the directory of `--out` wherever it is written: `target={out}/pools/ell.safetensors`,
`init={out}/checkpoints/ours-0`. Every run is trained with its first seed before any is with its second. Seeds
of evaluations go from the first of two up to the second. Several plans may share one directory; runs that
are in two of them are trained once. With --only, parts of a plan run side by side, each into a directory of
its own; what they leave is put together by copying one into the other. The same command goes on where it was
stopped: whatever is evaluated is not trained again. An autoencoder that is not named is trained once a frame.
A pool may be chosen from one that is there: {"of": "pusht-9x100", "n": 50}. An evaluation has settings of the
world and of the agent side by side: {"seeds": [42, 62], "tasks": ["0"], "options": {"block": "ell"},
"retrieval": "contact"}; where it says nothing else it is PushT with the triangle. Under --out lie

    autoencoders/ evaluations/ configs/ pools/ results/ ledger.jsonl   small: to bring home, and back
    checkpoints/                                                      of every policy
    training/ data/                                                   large; needed only to go on

Demonstrations come from packed snapshots: neither Lance nor a video decoder is needed.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recap_research.plans.plan import Plan

BEGAN = time.time()


def log(*words: object) -> None:
    """A line with the time since the start."""
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Read the plan, then tell it or carry it out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true", help="check it, and tell what each run would take")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of its runs and agents, only these")
    parser.add_argument("--collect", action="store_true", help="only its demonstrations, which need no GPU")
    parser.add_argument("--toy", action="store_true", help="the whole plan in miniature, on the CPU")
    parser.add_argument("--device", help="cpu, to train there")
    parser.add_argument("--eval-device", default="cuda")
    parser.add_argument("--eval-workers", type=int, default=8, help="0: roll out in this process")
    parser.add_argument("--stop-after", type=float, default=1e9, metavar="SECONDS")
    options = parser.parse_args(arguments)

    from recap_research.plans.ledger import describe
    from recap_research.plans.plan import POOLS, read_plan, select
    from recap_research.plans.pools import collect_pools
    from recap_research.plans.running import finished_runs
    from recap_research.plans.toy import shrink

    cpu = options.toy or options.device == "cpu"
    plan = read_plan(options.plan, options.out, "cpu" if cpu else options.eval_device)
    if options.only:
        plan = select(plan, options.only)
    if options.dry_run:
        print("\n".join(describe(plan, finished_runs(plan, options.out))))
        return 0
    if options.collect:
        log("collected", *collect_pools(plan.pools, options.out / POOLS, os.cpu_count() or 1))
        return 0
    if options.toy:
        plan = shrink(plan, options.out)
    return carry_out(plan, options)


def carry_out(plan: Plan, options: argparse.Namespace) -> int:
    """Train and evaluate; 1 when something is left to do."""
    from recap_research.plans.running import run_plan

    cpu = options.toy or options.device == "cpu"
    _prepare(cpu)
    whole = run_plan(
        plan,
        options.out,
        workers=options.eval_workers,
        stop_after=options.stop_after - (time.time() - BEGAN),
        log=log,
        device="cpu" if cpu else options.device,
    )
    return 0 if whole else 1


def _prepare(cpu: bool) -> None:
    import torch

    if cpu:
        torch.set_num_threads(1)
        return
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 32  # one a table of slots; past it nothing is compiled


if __name__ == "__main__":
    from recap.cli.one_line import run_script

    run_script(main)
