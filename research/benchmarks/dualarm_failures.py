"""Where do two-arm episodes fail: reaching, grasping, transport, hand-over, or by following the wrong task?

    python research/benchmarks/dualarm_failures.py replay=replay ours=runs/arms-small-world/last \\
        --seeds 42:52 --retrieval world --pool runs/arms/pools/ur5e-poses.safetensors \\
        --json docs/results/dualarm_failures.json

The ten tasks in every scene of `--seeds`, one episode after the other, as run by `recap eval`; the
thresholds are in `recap_research.analysis.arm_failures`. The file names episodes, so that examples of a class
can be drawn with research/benchmarks/dualarm_strip.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recap.agent import RetrievalAgent
from recap.assembly import REPLAY, AgentConfig
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap_research.analysis import arm_failures
from recap_research.analysis.arm_failures import Account, Witness, account_of, tally
from recap_worlds.dualarm.tasks import SEEN, UNSEEN, task_named


def sort_episodes(spec: EvalSpec) -> list[Account]:
    """Run every trial and classify it."""
    agent = make_agent(spec)
    if not isinstance(agent, RetrievalAgent):
        raise SystemExit(f"{spec.agent.policy} retrieves nothing: give replay or a policy")
    found = []
    for trial in spec.trials():
        witness = Witness(agent)
        (result,) = run_trials(agent, spec, [trial], 1, witness)
        if result.outcome == "error":
            raise SystemExit(f"{trial.task}, seed {trial.seed}: {result.error}")
        found.append(account_of(task_named(trial.task), result, witness))
        print(f"{trial.task:24} {trial.seed}  {found[-1].kind}", flush=True)
    return found


def row(name: str, accounts: Sequence[Account]) -> dict[str, Any]:
    """The counts of one agent and its failures."""
    failures = [
        {
            "task": a.task,
            "seed": a.seed,
            "kind": a.kind,
            "let_go": a.let_go,
            "looks": a.n_looks,
            "others": list(a.others),
        }
        for a in accounts
        if a.kind != "success"
    ]
    return {"name": name, "tasks": tally(accounts), "failures": failures}


def main() -> None:
    """Run every agent in the same scenes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="+", metavar="LABEL=NAME", help="replay, or a checkpoint")
    parser.add_argument("--retrieval", default="world", help="of replay; a policy has its own")
    parser.add_argument("--seeds", type=parse_seeds, default=(500,), help="such as 42:47")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for text in options.agents:
        label, _, name = text.partition("=")
        agent = AgentConfig(name, retrieval=options.retrieval if name == REPLAY else "")
        seeds = tuple(options.seeds)
        spec = EvalSpec(agent, "dualarm", tasks=(*SEEN, *UNSEEN), seeds=seeds, pool=options.pool)
        rows.append(row(label, sort_episodes(spec)))
        print(json.dumps(rows[-1]["tasks"]["all"]))
    thresholds = {
        "moved_m": arm_failures.MOVED_M,
        "held_steps": arm_failures.HELD_STEPS,
        "confused_share": arm_failures.CONFUSED,
    }
    told = f"{min(options.seeds)}…{max(options.seeds)}"
    if options.json:
        body = {"retrieval": options.retrieval, "seeds": told, "thresholds": thresholds, "rows": rows}
        options.json.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    run_script(main)
