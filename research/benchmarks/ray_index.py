"""Is describing a pool on two Ray nodes of one core each faster than on one?

python research/benchmarks/ray_index.py --dataset data/arm --copies 8 --json docs/results/ray_index.json

The nodes are processes on this machine, on 127.0.0.2 and 127.0.0.3, with one core each: on a machine of two
cores nothing else should run. The pool has each demonstration of the dataset several times, under new names.
`recap pool index --policy world --ray` describes a fresh copy of it on one node and on two, by turns, three
times each. The time is that of the whole command. A first, short command starts Ray's workers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.pool.opening import open_demonstrations
from recap.pool.store import Pool

SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "only-for-this-benchmark-0123456789",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


def fill(folder: Path, dataset: str, copies: int) -> int:
    """A pool of the dataset's demonstrations, each several times with a little noise; how many."""
    pool, rng = Pool.create(folder), np.random.default_rng(0)
    view = open_demonstrations(dataset)
    for copy in range(copies):
        for episode in map(view.episode, view.episode_ids):
            noise = rng.normal(0, 1e-4, episode.proprio.shape).astype(np.float32)
            pool.add([replace(episode, id=f"{episode.id}/{copy}", proprio=episode.proprio + noise)])
    return len(pool)


def seconds(pool: Path, address: str) -> float:
    """One run of the command on a fresh copy of the pool."""
    with tempfile.TemporaryDirectory(dir=pool.parent) as place:
        shutil.copytree(pool, Path(place) / "pool")
        words = ["pool", "index", f"{place}/pool", "--policy", "world", "--ray", address]
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "recap", *words], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began


def main() -> None:
    """Run it."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.update(SETTINGS)  # before Ray is imported
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        fill(small, options.dataset, 1)
        n = fill(large, options.dataset, 1 if options.quick else options.copies)
        taken: dict[str, list[float]] = {"one": [], "two": []}
        for number in range(1 if options.quick else options.rounds):
            for name, times in taken.items():
                head = {**node, "node_ip_address": "127.0.0.2", "include_dashboard": False}
                cluster = Cluster(initialize_head=True, head_node_args=head)
                try:
                    if name == "two":
                        cluster.add_node(**node, node_ip_address="127.0.0.3")
                    seconds(small, cluster.address)
                    times.append(round(seconds(large, cluster.address), 1))
                    print(f"round {number + 1}, {name}: {times[-1]} s for {n} demonstrations", flush=True)
                finally:
                    cluster.shutdown()
        ratio = statistics.median(taken["one"]) / statistics.median(taken["two"])
        print(f"two nodes are {ratio:.2f} times as fast as one")
        finish({"demonstrations": n, "seconds": taken, "ratio_of_medians": round(ratio, 3)}, options.json)


if __name__ == "__main__":
    run_script(main)
