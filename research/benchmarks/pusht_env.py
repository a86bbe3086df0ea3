"""How fast is a step of `recap/PushT-v0`, compared with gym-pusht in the same run?

python research/benchmarks/pusht_env.py --json docs/results/pusht_env.json
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
from gym_pusht.envs.pusht import PushTEnv as StockPushTEnv
from report import arguments, finish

from recap.cli.one_line import run_script
from recap_worlds.pusht.env import PushTEnv

STATE, PIXELS = "state", "pixels"


def targets(n: int) -> np.ndarray:
    """Targets that wander over the board and reach the block: (n, 2)."""
    corners = np.random.default_rng(0).uniform(100, 400, (n // 20 + 2, 2))
    at = np.arange(n) / 20
    return np.stack([np.interp(at, np.arange(len(corners)), corners[:, k]) for k in (0, 1)], axis=1)


def steps_per_second(env: Any, n: int) -> float:
    """The rate of one pass of n steps."""
    env.reset(seed=500)
    path = targets(n)
    env.step(path[0])
    started = time.perf_counter()
    for target in path:
        env.step(target)
    return n / (time.perf_counter() - started)


def main() -> None:
    """Measure both alternately, several times, and report medians."""
    parser = arguments(__doc__.splitlines()[0])
    options = parser.parse_args()
    n, rounds = (300, 3) if options.quick else (1000, 9)
    environments: dict[str, Any] = {}
    for size in (96, 128):
        for kind in (STATE, PIXELS):
            if kind == STATE and size != 96:
                continue
            stock = StockPushTEnv(obs_type=kind, observation_width=size, observation_height=size)
            name = kind if kind == STATE else f"{kind} {size}"
            environments[name] = {"stock": stock, "ours": PushTEnv(obs_type=kind, observation_size=size)}
    rows: dict[str, Any] = {}
    for name, pair in environments.items():
        speeds: dict[str, list[float]] = {"stock": [], "ours": []}
        for _ in range(rounds):  # alternately, so that a busy machine slows both
            for who, env in pair.items():
                speeds[who].append(steps_per_second(env, n))
        ratios = [b / a for a, b in zip(speeds["stock"], speeds["ours"], strict=True)]
        rows[name] = {
            "stock_steps_per_s": statistics.median(speeds["stock"]),
            "ours_steps_per_s": statistics.median(speeds["ours"]),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
        }
        row = rows[name]
        print(
            f"{name:<11} stock {row['stock_steps_per_s']:7.0f}/s   ours {row['ours_steps_per_s']:7.0f}/s   "
            f"ratio {row['ratio']:.1f} (worst of {rounds}: {row['ratio_min']:.1f})"
        )
    ratio = min(rows["pixels 96"]["ratio"], rows["pixels 128"]["ratio"])
    finish({"steps": n, "rounds": rounds, "rows": rows, "pixel_ratio": ratio}, options.json)
    print(f"pixel stepping, ours over stock: {ratio:.1f}")
    sys.exit(0 if ratio >= 5 else 1)


if __name__ == "__main__":
    run_script(main)
