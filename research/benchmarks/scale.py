"""How do the first retrieval and a control step grow with the number of demonstrations?

python research/benchmarks/scale.py --json docs/results/scale.json

Trajectories of 10 frames, all of them candidates as in PushT's presets, and 5 and 100 candidates. The first
retrieval lays out the pool and calibrates the confidence; descriptors are there already. Times are those of
this process on the CPU, which others on the machine do not change much.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.pool.memory import MemoryPool
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.retriever import Retriever
from retrieval import TERMS, WEIGHTS, episode


def measure(n_episodes: int, n_calls: int) -> dict[str, Any]:
    """Milliseconds of the first retrieval and of one step."""
    rng = np.random.default_rng(0)
    pool = MemoryPool([episode(i, 10, rng) for i in range(n_episodes)])
    pool.view().descriptors(TERMS)
    config = RetrievalConfig("benchmark", {"object": 1.0}, WEIGHTS)
    asked = [query_at(episode(k, 9, rng), 8) for k in range(16)]
    out: dict[str, Any] = {"trajectories": n_episodes, "frames": 10 * n_episodes}
    for n_candidates in (5, 100, None):
        retriever = Retriever(pool, TERMS, replace(config, n_candidates=n_candidates))
        began = time.process_time()
        found = retriever.retrieve(asked[0])
        first = 1000 * (time.process_time() - began)
        steps = []
        for i in range(n_calls):
            began = time.process_time()
            found = retriever.retrieve(asked[i % 16], found)
            steps.append(1000 * (time.process_time() - began))
        out[str(n_candidates or "all")] = {
            "first_ms": round(first, 1),
            "step_ms_p50": round(statistics.median(steps), 3),
            "step_ms_p99": round(float(np.quantile(steps, 0.99)), 3),
        }
    return out


def main() -> None:
    """Over sizes."""
    options = arguments(__doc__ or "").parse_args()
    measure(100, 3)  # compiles
    rows = []
    for n in (1000, 10_000) if options.quick else (1000, 10_000, 100_000):
        rows.append(measure(n, 50))
        print(rows[-1], flush=True)
    finish({"rows": rows}, options.json)


if __name__ == "__main__":
    run_script(main)
