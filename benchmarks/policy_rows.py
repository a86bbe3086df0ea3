"""Gather evaluations into one file of rows: counts and intervals by group and threshold.

    python benchmarks/policy_rows.py runs/policy/* --json docs/results/policy.json
    python benchmarks/policy_rows.py --models runs/nano-0 runs/nano-1 runs/nano-2 --against runs/replay \\
        --json docs/results/policy_seeds.json

Each argument is a directory that `recap eval --out` wrote; rows of equal names are replaced. With `--models`
the runs are of one recipe trained with several seeds, and the file holds their mean.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from recap.envs.pusht.tasks import SEEN_ANGLES, angle_key
from recap.evaluation.run_directory import read_info
from recap.evaluation.statistics import bootstrap_models, seed_table
from recap.evaluation.summary import Summary, succeeded, summarise
from recap.types import F64


def row_of(folder: Path) -> dict[str, Any]:
    """One evaluation's row; what differs from the defaults of the spec is named."""
    spec, results = read_info(folder)
    summary = summarise(spec, results)
    groups = {
        group.name: {key: rate.to_json() for key, rate in group.rates.items()} for group in summary.groups
    }
    errors = sum(result.outcome == "error" for result in results)
    plain = {key: value for key, value in spec.to_json().items() if key not in ("angles", "tasks", "seeds")}
    if plain["pool"] is not None and Path(plain["pool"]).is_relative_to(Path.cwd()):
        plain["pool"] = str(Path(plain["pool"]).relative_to(Path.cwd()))
    seeds = f"{min(spec.seeds)}…{max(spec.seeds)}"
    return {
        "name": folder.name,
        "spec": plain,
        **({"tasks": _by_task(summary)} if spec.tasks else {"angles": list(spec.angles)}),
        "seeds": seeds,
        "success": groups,
        "errors": errors,
    }


def _by_task(summary: Summary) -> dict[str, Any]:
    """Of two arms, each task's rate."""
    return {task.name: next(iter(task.rates.values())).to_json() for task in summary.angles}


def table_of(folder: Path, threshold: str, angles: Collection[float]) -> F64:
    """Successes (n_seeds, n_angles) at these goals."""
    _, results = read_info(folder)
    wanted = {angle_key(a) for a in angles}
    return seed_table({(r.task, r.seed): float(succeeded(r, threshold)) for r in results if r.task in wanted})


def mean_over_models(folders: list[Path], against: Path) -> dict[str, Any]:
    """Means of a recipe over training seeds, alone and less another agent's on the same starts."""
    spec, _ = read_info(folders[0])
    unseen = [a for a in spec.angles if a not in SEEN_ANGLES]
    groups = {"seen": SEEN_ANGLES, "unseen": unseen, "all": spec.angles}
    rows = []
    for group, angles in groups.items():
        for threshold in ("0.85", "0.95"):
            models = np.stack([table_of(f, threshold, angles) for f in folders])
            base = table_of(against, threshold, angles)
            gain = models - base
            rows.append(
                {
                    "group": group,
                    "threshold": threshold,
                    "n": int(base.size),
                    "models": [float(m.mean()) for m in models],
                    "mean": float(models.mean()),
                    "interval": bootstrap_models(models),
                    "against": float(base.mean()),
                    "gain": float(gain.mean()),
                    "gain_interval": bootstrap_models(gain),
                }
            )
    return {"folders": [f.name for f in folders], "against": against.name, "rows": rows}


def main() -> None:
    """Read the directories, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--models", nargs="+", type=Path, help="runs of one recipe with several seeds")
    parser.add_argument("--against", type=Path, help="the run of another agent on the same starts")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.models:
        found = mean_over_models(arguments.models, arguments.against)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return
    old = json.loads(arguments.json.read_text("utf-8"))["rows"] if arguments.json.exists() else []
    rows = {row["name"]: row for row in old} | {f.name: row_of(f) for f in arguments.folders}
    arguments.json.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
