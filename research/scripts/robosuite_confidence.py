"""Is a task detected that the pool lacks? Confidence with and without it in the pool, on robosuite.

    python research/scripts/robosuite_confidence.py --demos runs/demos --json confidence.json

The queries are observations of Panda's expert in fresh scenes, one every eight steps, as an agent queries.
The pool has one arm's successful demonstrations of all tasks, or of all but the queried one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from robosuite_rows import TARGET, Demonstrations

from recap.cli.one_line import run_script
from recap.cli.ranges import parse_seeds
from recap.pool.memory import MemoryPool
from recap.retrieval.explain import query_at
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import Episode
from recap_worlds.robosuite.tasks import TASKS
from recap_worlds.robosuite.world import ARM

EVERY = 8  # steps between looks
RATE = 0.05  # share of moments like the pool's own below this confidence


def confidences(retriever: Retriever, episode: Episode) -> list[float]:
    """The confidence at each look of an episode."""
    return [retriever.retrieve(query_at(episode, t)).confidence for t in range(0, len(episode), EVERY)]


def counts(episodes: list[list[float]]) -> dict[str, Any]:
    """Episodes whose first look is below the rate, and the number of looks below it."""
    looks = np.concatenate([np.asarray(one) for one in episodes])
    return {
        "episodes": len(episodes),
        "first_below": sum(one[0] < RATE for one in episodes),
        "looks": len(looks),
        "below": int((looks < RATE).sum()),
        "median": round(float(np.median(looks)), 3),
    }


def main() -> int:
    """Query each pool with and without each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demos", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--arms", default="ur5e,iiwa,kinova3", help="of the pools")
    parser.add_argument("--seeds", default="500:506", help="scenes of the target's expert")
    parser.add_argument("--pool-seeds", default="100000:100010", help="scenes of the pool's demonstrations")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    demos = Demonstrations(options.demos)
    asked = {task: [demos.get(TARGET, task, s)[0] for s in parse_seeds(options.seeds)] for task in TASKS}
    found: dict[str, dict[str, list[list[float]]]] = {task: {"with": [], "without": []} for task in TASKS}
    for arm in options.arms.split(","):
        shown = {
            task: [demos.get(arm, task, s)[0] for s in parse_seeds(options.pool_seeds)] for task in TASKS
        }
        for task in ("", *TASKS):  # nothing left out, then each task
            left = [e for other, each in shown.items() if other != task for e in each if e.success]
            retriever = Retriever(MemoryPool(left), *find_retrieval("robosuite-parts", ARM), ARM)
            for one in [task] if task else TASKS:
                kind = "without" if task else "with"
                found[one][kind] += [confidences(retriever, episode) for episode in asked[one]]
    rows = {task: {kind: counts(each) for kind, each in kinds.items()} for task, kinds in found.items()}
    options.json.write_text(json.dumps({"rate": RATE, "rows": rows}, indent=1))
    for task, kinds in rows.items():
        print(task, kinds)
    return 0


if __name__ == "__main__":
    run_script(main)
