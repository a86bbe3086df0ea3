"""Collect evaluations into one file of rows: counts and intervals by group and threshold.

    python research/benchmarks/policy_rows.py runs/policy/* --json docs/results/policy.json
    python research/benchmarks/policy_rows.py --models runs/nano-0 runs/nano-1 runs/nano-2 \\
        --against runs/replay --json docs/results/policy_seeds.json
    python research/benchmarks/policy_rows.py --pair runs/replay runs/nano \\
        --json docs/results/pairs_of_runs.json

Each argument is a folder written by `recap eval --out`; rows of equal names are replaced. With `--models`
the runs are of one recipe trained with several seeds, and the file holds their mean. `--pair` (repeatable)
compares two runs of one setting, scene by scene.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from recap.cli.one_line import run_script
from recap.evaluation.run_directory import read_info
from recap.evaluation.spec import threshold_key
from recap.evaluation.statistics import gain_interval, rate_interval, seed_table
from recap.evaluation.summary import GROUPS, Summary, compare, succeeded, summarise
from recap.types import F64


def row_of(folder: Path) -> dict[str, Any]:
    """The row of one evaluation; settings that differ from the defaults are listed."""
    spec, results = read_info(folder)
    summary = summarise(spec, results)
    groups = {
        group.name: {key: rate.to_json() for key, rate in group.rates.items()} for group in summary.groups
    }
    errors = sum(result.outcome == "error" for result in results)
    plain = {key: value for key, value in spec.to_json().items() if key not in ("tasks", "seeds")}
    if plain["pool"] is not None and Path(plain["pool"]).is_relative_to(Path.cwd()):
        plain["pool"] = str(Path(plain["pool"]).relative_to(Path.cwd()))
    seeds = f"{min(spec.seeds)}…{max(spec.seeds)}"
    return {
        "name": folder.name,
        "spec": plain,
        "tasks": _by_task(summary),
        "seeds": seeds,
        "success": groups,
        "errors": errors,
    }


def _by_task(summary: Summary) -> dict[str, Any]:
    """Each task's rate at the first threshold."""
    return {task.name: next(iter(task.rates.values())).to_json() for task in summary.tasks}


def table_of(folder: Path, threshold: str, tasks: Collection[str]) -> F64:
    """Successes (n_seeds, n_tasks) at these tasks."""
    _, results = read_info(folder)
    return seed_table({(r.task, r.seed): float(succeeded(r, threshold)) for r in results if r.task in tasks})


def mean_over_models(folders: list[Path], against: Path) -> dict[str, Any]:
    """Means of a recipe over training seeds, alone and minus another agent's on the same starts."""
    spec, _ = read_info(folders[0])
    groups = {
        "seen": [key for key in spec.task_keys if key in spec.seen_keys],
        "unseen": [key for key in spec.task_keys if key not in spec.seen_keys],
        "all": spec.task_keys,
    }
    rows = []
    for group, tasks in groups.items():
        for threshold in map(threshold_key, spec.thresholds):
            models = np.stack([table_of(f, threshold, tasks) for f in folders])
            base = table_of(against, threshold, tasks)
            rows.append(
                {
                    "group": group,
                    "threshold": threshold,
                    "n": int(base.size),
                    "models": [float(m.mean()) for m in models],
                    "mean": float(models.mean()),
                    "interval": rate_interval(models),
                    "against": float(base.mean()),
                    "gain": float(models.mean() - base.mean()),
                    "gain_interval": gain_interval(models, base[None]),
                }
            )
    return {"folders": [f.name for f in folders], "against": against.name, "rows": rows}


def pair_of(a: Path, b: Path) -> dict[str, Any]:
    """Two agents in one setting, paired by start: B minus A by group, at the last threshold."""
    found = compare(read_info(a), read_info(b)).to_json()
    differences = [*found["b_minus_a"].values()][-1]
    groups = {group: differences[group] for group in GROUPS if group in differences}
    return {"name": b.name, "against": a.name, "seeds": row_of(b)["seeds"], "groups": groups}


def main() -> None:
    """Read the directories, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--models", nargs="+", type=Path, help="runs of one recipe with several seeds")
    parser.add_argument("--against", type=Path, help="the run of another agent on the same starts")
    parser.add_argument("--pair", nargs=2, action="append", type=Path, metavar=("A", "B"), default=[])
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.models:
        found = mean_over_models(arguments.models, arguments.against)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return
    if arguments.pair:
        found = {"rows": [pair_of(a, b) for a, b in arguments.pair]}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return
    old = json.loads(arguments.json.read_text("utf-8"))["rows"] if arguments.json.exists() else []
    rows = {row["name"]: row for row in old} | {f.name: row_of(f) for f in arguments.folders}
    arguments.json.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    run_script(main)
