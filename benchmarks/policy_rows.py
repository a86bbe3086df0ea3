"""Gather evaluations into one file of rows: counts and intervals by group and threshold.

    python benchmarks/policy_rows.py runs/policy/* --json docs/results/policy.json

Each argument is a directory that `recap eval --out` wrote; rows of equal names are replaced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from recap.evaluation.run_directory import read_info
from recap.evaluation.summary import summarise


def row_of(folder: Path) -> dict[str, Any]:
    """One evaluation's row; what differs from the defaults of the spec is named."""
    spec, results = read_info(folder)
    summary = summarise(spec, results)
    groups = {
        group.name: {key: rate.to_json() for key, rate in group.rates.items()} for group in summary.groups
    }
    errors = sum(result.outcome == "error" for result in results)
    plain = {key: value for key, value in spec.to_json().items() if key not in ("angles", "seeds")}
    seeds = f"{min(spec.seeds)}…{max(spec.seeds)}"
    return {
        "name": folder.name,
        "spec": plain,
        "angles": list(spec.angles),
        "seeds": seeds,
        "success": groups,
        "errors": errors,
    }


def main() -> None:
    """Read the directories, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    old = json.loads(arguments.json.read_text("utf-8"))["rows"] if arguments.json.exists() else []
    rows = {row["name"]: row for row in old} | {f.name: row_of(f) for f in arguments.folders}
    arguments.json.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
