"""How soon can a robot use new demonstrations, and what does a growing pool cost?

python research/benchmarks/pool_live.py --json docs/results/pool_live.json
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.store import Pool
from recap.types import F32, Episode, Frames
from recap_worlds.pusht.collecting import CollectSpec, collect

N_FRAMES = 100  # frames of a synthetic episode


class Toy:
    """A describer that returns the numbers of a frame."""

    fingerprint = "toy"

    def __init__(self) -> None:
        self.dims: Mapping[str, int] = {"proprio": 2, "block": 3}

    def describe(self, episode: Frames) -> dict[str, F32]:
        """Two terms."""
        return {"proprio": episode.proprio, "block": episode.objects["block"]}


def episode(i: int) -> Episode:
    """A synthetic episode with the dimensions of PushT."""
    rng = np.random.default_rng(i)
    return Episode(
        id=f"episode {i}",
        scene_id=f"scene {i}",
        task="push the block onto the green goal",
        embodiment="disc",
        fps=10.0,
        timestamps=np.arange(N_FRAMES) / 10,
        proprio=rng.normal(size=(N_FRAMES, 2)).astype(np.float32),
        actions=rng.normal(size=(N_FRAMES, 2)).astype(np.float32),
        objects={"block": rng.normal(size=(N_FRAMES, 3)).astype(np.float32)},
        goal=np.zeros(3, np.float32),
    )


def watch(uri: str, n: int, ready: Any, out: Any) -> None:
    """The reader process: wait until n episodes are visible, then use them."""
    pool = Pool.open(uri)
    pool.view().descriptors(Toy())
    ready.set()
    while len(pool.view()) < n:
        time.sleep(0.001)
    seen = time.monotonic()
    described = pool.view().descriptors(Toy())
    out.put((seen, time.monotonic(), len(described.terms["block"])))


def from_disk_to_reader(scratch: Path, context: Any) -> dict[str, float]:
    """Ten demonstrations on disk -> validated, committed, described and visible to another process."""
    demos = scratch / "demos"
    collect(CollectSpec("disc", (-45.0,), 10), demos, workers=os.cpu_count() or 1)
    pool = Pool.create(scratch / "live")
    pool.add([episode(i) for i in range(200)])
    ready, out = context.Event(), context.Queue()
    reader = context.Process(target=watch, args=(pool.uri, 210, ready, out))
    reader.start()
    ready.wait(60)
    t0 = time.monotonic()
    source = open_source(demos)
    new = list(source)
    findings = check_dataset(new)
    if any(finding.severity == "error" for finding in findings):
        raise SystemExit(f"the demonstrations do not pass: {findings[0]}")
    t1 = time.monotonic()
    pool.add(new)
    t2 = time.monotonic()
    pool.view()
    t3 = time.monotonic()
    pool.view().descriptors(Toy())
    t4 = time.monotonic()
    seen, used, n_frames = out.get(timeout=60)
    reader.join()
    parts = {
        "read_and_validate_ms": 1e3 * (t1 - t0),
        "films_and_commit_ms": 1e3 * (t2 - t1),
        "own_view_ms": 1e3 * (t3 - t2),
        "describe_ms": 1e3 * (t4 - t3),
        "seen_by_other_process_ms": 1e3 * (seen - t0),
        "described_in_other_process_ms": 1e3 * (used - t0),
        "described_frames": n_frames,
    }
    for name, value in parts.items():
        print(f"{name:<32} {value:9.1f}")
    return parts


def _memory(uri: str, out: Any) -> None:
    pool = Pool.open(uri)
    before = _resident()
    started = time.perf_counter()
    view = pool.view()
    seconds = time.perf_counter() - started
    out.put((seconds, _resident() - before, sum(map(len, view))))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(scratch: Path, n: int, context: Any) -> dict[str, float]:
    """The cost of building, opening and adding to a pool of n episodes."""
    uri = scratch / f"pool-{n}"
    pool = Pool.create(uri)
    started = time.perf_counter()
    for first in range(0, n, 1000):
        pool.add([episode(i) for i in range(first, min(n, first + 1000))])
    built = time.perf_counter() - started
    other = Pool.open(uri)
    other.view()
    one, ten, seen = [], [], []
    for k in range(10):
        started = time.perf_counter()
        pool.add([episode(n + 100 * k)])
        one.append(time.perf_counter() - started)
        started = time.perf_counter()
        other.view()
        seen.append(time.perf_counter() - started)
        batch = [episode(n + 100 * k + 1 + i) for i in range(10)]
        started = time.perf_counter()
        pool.add(batch)
        ten.append(time.perf_counter() - started)
        other.view()
    started = time.perf_counter()
    for _ in range(1000):
        other.view()
    idle = (time.perf_counter() - started) / 1000
    out = context.Queue()
    process = context.Process(target=_memory, args=(str(uri), out))
    process.start()
    load_s, n_bytes, n_frames = out.get(timeout=120)
    process.join()
    row = {
        "episodes": n,
        "bulk_episodes_per_s": n / built,
        "add_1_ms": 1e3 * statistics.median(one),
        "add_10_ms": 1e3 * statistics.median(ten),
        "view_after_append_ms": 1e3 * statistics.median(seen),
        "view_unchanged_ms": 1e3 * idle,
        "cold_view_ms": 1e3 * load_s,
        "view_mb": n_bytes / 1e6,
        "frames": n_frames,
    }
    print(
        f"{n:>6} episodes: bulk {row['bulk_episodes_per_s']:6.0f}/s, add 1 in {row['add_1_ms']:.1f} ms, "
        f"10 in {row['add_10_ms']:.1f} ms, view after append {row['view_after_append_ms']:.1f} ms, "
        f"unchanged {row['view_unchanged_ms']:.3f} ms, cold {row['cold_view_ms']:.0f} ms, "
        f"{row['view_mb']:.0f} MB for {row['frames']} frames"
    )
    return row


def main() -> None:
    """Measure both."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore:lance is not fork-safe"  # the fork server runs no Lance code
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["recap.pool.store"])
    scratch = Path(tempfile.mkdtemp(prefix="pool-live-"))
    try:
        parts = from_disk_to_reader(scratch, context)
        rows = [growth(scratch, n, context) for n in ((100, 1000) if options.quick else (100, 1000, 10000))]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    # The difference of the two largest pools cancels the memory that every process needs.
    small, large = rows[-2:]
    per_million = (large["view_mb"] - small["view_mb"]) / (large["frames"] - small["frames"]) * 1e6
    print(f"memory: {per_million:.0f} MB for a million frames more")
    finish({"ten_demonstrations": parts, "growth": rows, "mb_per_million_frames": per_million}, options.json)


if __name__ == "__main__":
    run_script(main)
