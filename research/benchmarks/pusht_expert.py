"""How often, how fast and how smoothly does the scripted expert solve PushT, in the real environment?

    python research/benchmarks/pusht_expert.py --json docs/results/pusht_expert.json

9 angles × 100 fresh starts × 2 pushers with the T, and 3 angles × 20 starts × 2 pushers with each other
block (`--quick`: a tenth of it). The seeds are used for nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.evaluation.statistics import rate_interval, seed_table
from recap.workers import run_in_workers
from recap_worlds.pusht.blocks import BLOCKS
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.pushers import PUSHERS
from recap_worlds.pusht.tasks import ANGLES, MAX_STEPS

FIRST_SEED = 20_000
Item = tuple[str, str, float, int]  # pusher, block, angle, seed


def solve(items: Iterator[Item]) -> Iterator[tuple[Item, dict[str, float]]]:
    """Run each item's episode and measure it."""
    experts: dict[tuple[str, str], tuple[Expert, PushTEnv]] = {}
    for pusher, block, angle, seed in items:
        if (pusher, block) not in experts:
            expert, env = Expert(pusher, block), PushTEnv(pusher=pusher, block=block)
            env.reset(seed=FIRST_SEED - 1)
            expert.act(env.observe())  # compiled before the clock starts
            experts[pusher, block] = expert, env
        expert, env = experts[pusher, block]
        env.reset(seed=seed, options={"goal_angle": angle})
        expert.reset(seed)
        actions: list[np.ndarray] = []
        cpu_s, success = 0.0, False
        while not success and len(actions) < MAX_STEPS:
            observation = env.observe()
            started = time.process_time()
            actions.append(expert.act(observation))
            cpu_s += time.process_time() - started
            success = env.step(actions[-1])[2]
        path = np.array(actions)
        speed = np.linalg.norm(np.diff(path, axis=0), axis=1)
        bend = np.linalg.norm(np.diff(path, n=2, axis=0), axis=1)
        yield (
            (pusher, block, angle, seed),
            {
                "success": float(success),
                "steps": float(len(path)),
                "cpu_s": cpu_s,
                "speed": float(speed.mean()) if len(speed) else 0.0,
                "bend": float(bend.mean()) if len(bend) else 0.0,
            },
        )


def summary(results: dict[Item, dict[str, float]]) -> dict[str, Any]:
    """Counts, means, and an interval over starts, which repeat across angles, pushers and blocks."""
    measured = list(results.values())
    n, k = len(measured), int(sum(m["success"] for m in measured))
    table = seed_table({("/".join(map(str, item[:3])), item[3]): m["success"] for item, m in results.items()})
    low, high = rate_interval(table[None])
    means = {key: float(np.mean([m[key] for m in measured])) for key in ("steps", "cpu_s", "speed", "bend")}
    return {"successes": k, "n": n, "low": low, "high": high, **means}


def main() -> None:
    """Run everything, print a row for each pusher and block."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    n_tee, n_other = (10, 2) if options.quick else (100, 20)
    items: list[Item] = []
    for pusher in PUSHERS:
        for block in BLOCKS:
            angles, n = (ANGLES, n_tee) if block == "tee" else ((-60.0, 0.0, 45.0), n_other)
            items += [(pusher, block, a, FIRST_SEED + i) for a in angles for i in range(n)]
    results: dict[Item, dict[str, float]] = {}
    for item, measured in run_in_workers(partial(solve), items, os.cpu_count() or 1):
        results[item] = measured
        print(f"\r{len(results)}/{len(items)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    rows = {}
    print("pusher    block  solved at 0.95 [95 %]          steps  CPU-s  px/step  px/step²")
    for pusher in PUSHERS:
        for block in BLOCKS:
            row = rows[f"{pusher} {block}"] = summary(
                {item: m for item, m in results.items() if item[:2] == (pusher, block)}
            )
            rate, low, high = (
                100 * value for value in (row["successes"] / row["n"], row["low"], row["high"])
            )
            counts = f"{row['successes']:>4}/{row['n']:<4} {rate:5.1f} % [{low:.1f}, {high:.1f}]"
            figures = f"{row['steps']:7.0f}  {row['cpu_s']:.2f}  {row['speed']:7.2f}  {row['bend']:7.2f}"
            print(f"{pusher:<9} {block:<6} {counts}  {figures}")
    failed = [list(item) for item, m in results.items() if not m["success"]]
    tee = summary({item: m for item, m in results.items() if item[1] == "tee"})
    others = summary({item: m for item, m in results.items() if item[1] != "tee"})
    finish(
        {"seeds_from": FIRST_SEED, "rows": rows, "tee": tee, "others": others, "failed": failed}, options.json
    )
    for name, pooled in (("T, both pushers", tee), ("other blocks", others)):
        print(
            f"{name}: {pooled['successes']}/{pooled['n']}, {pooled['cpu_s']:.2f} CPU-seconds an episode, "
            f"{pooled['steps']:.0f} steps"
        )
    good = tee["successes"] >= 0.995 * tee["n"] and others["successes"] >= 0.98 * others["n"]
    sys.exit(0 if good and tee["cpu_s"] <= 0.5 else 1)


if __name__ == "__main__":
    run_script(main)
