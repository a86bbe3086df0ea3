"""Is confidence calibrated? Alarms on held-out demonstrations at chosen rates, and on shifted ones.

    python research/benchmarks/confidence.py --json docs/results/confidence.json

Pool: 700 of the included pool's 900 demonstrations. Held out: one random frame of each of the other 200.
Shifted: the same frames with the pusher moved, the block rotated, or of another block (40 demonstrations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb

import numpy as np
from pairs import collected
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.pool.memory import MemoryPool
from recap.pool.opening import open_pool
from recap.retrieval.explain import query_at
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import Episode
from recap_worlds.pusht.collecting import CollectSpec

RATES = (0.02, 0.05, 0.1, 0.2)


def binomial_interval(n: int, p: float) -> tuple[int, int]:
    """The counts between the 2.5th and 97.5th percentile of n draws at rate p."""
    below = np.cumsum([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    return int(np.searchsorted(below, 0.025)), int(np.searchsorted(below, 0.975))


def moved(dx: float) -> Callable[[Episode], Episode]:
    """A function that shifts the pusher sideways."""
    return lambda e: replace(e, proprio=e.proprio + np.float32(dx))


def turned(degrees: float) -> Callable[[Episode], Episode]:
    """A function that rotates the block in place."""
    turn = np.array([0, 0, np.radians(degrees)], np.float32)
    return lambda e: replace(e, objects={"block": e.objects["block"] + turn})


def main() -> None:
    """Calibrate on the pool, count alarms on the held-out demonstrations."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    view = open_pool("pusht-9x100").view()
    episodes = [replace(view.episode(i), images={}) for i in view.episode_ids]
    order = np.random.default_rng(0).permutation(len(episodes))
    pool, held_out = ([episodes[i] for i in part] for part in (order[:700], order[700:]))
    retriever = Retriever(MemoryPool(pool), *find_retrieval("pusht-object"))
    plus = CollectSpec("disc", (-45.0, 45.0), 3 if options.quick else 20, block="plus", image_size=0)
    other = collected(plus).view()
    others = [other.episode(i) for i in other.episode_ids]
    groups = {
        "held out": held_out,
        "pusher moved 30 px": [moved(30)(e) for e in held_out],
        "pusher moved 100 px": [moved(100)(e) for e in held_out],
        "block turned 90°": [turned(90)(e) for e in held_out],
        "another block (plus)": [replace(e, attributes={**e.attributes, "symmetry": 1}) for e in others],
    }
    rows = []
    for name, members in groups.items():
        rng = np.random.default_rng(1)
        ts = [int(rng.integers(0, max(1, len(e) - retriever.config.trim))) for e in members]
        values = [retriever.retrieve(query_at(e, t)).confidence for e, t in zip(members, ts, strict=True)]
        alarms = {str(rate): int(sum(v < rate for v in values)) for rate in RATES}
        bounds = {str(rate): binomial_interval(len(members), rate) for rate in RATES}
        rows.append({"name": name, "n": len(members), "alarms": alarms, "binomial_95": bounds})
        told = ", ".join(f"{rate}: {alarms[str(rate)]} {bounds[str(rate)]}" for rate in RATES)
        print(f"{name:<22} n {len(members):>3}   alarms at rate (expected if nothing had shifted)   {told}")
    finish({"pool": len(pool), "rates": RATES, "rows": rows}, options.json)


if __name__ == "__main__":
    run_script(main)
