"""How do the first retrieval, a control step and an append grow with the number of demonstrations?

python research/benchmarks/scale.py --json docs/results/scale.json

Made-up trajectories of 10 and of 100 frames, poses only, described by 23 numbers. A first process describes
them, lays them out and keeps the rows; a second one maps these, as a server does when it starts again. It
asks with 5, with 100 and with all candidates; what it finds among all is compared with looking at every
frame. faiss alone and Lance's index search the same rows. Demonstrations are made when they are asked for, so
that the reading of a pool is not in these numbers. Times are of the CPU, for others may use the machine.

`--live BUILD` measures the reading: a pool on the disk is filled and described, another process opens it and
retrieves, a third adds a demonstration, and the second retrieves that. To compare two builds give the
sources of each in PYTHONPATH, and each a name.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import arguments, finish, plot

from recap.cli.one_line import run_script
from recap.pool.derived import Derived, assemble
from recap.pool.files import Files
from recap.pool.store import Pool
from recap.pool.view import Describer
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.retriever import Retriever
from recap.types import Descriptors, Episode, Query
from retrieval import TERMS, WEIGHTS, episode, median_us

CONFIG = RetrievalConfig("benchmark", {"object": 1.0}, WEIGHTS)
N_STEPS = 200
N_RECALLED = 100  # moments that are also looked for in every frame
N_ADDED = 10_000  # demonstrations of a commit
MAX_LANCE = 2_000_000  # frames; more take Lance too long to index for a benchmark


class MadeView:
    """A version of a made-up pool whose episodes are made when they are asked for."""

    def __init__(self, root: Path, n_episodes: int, n_frames: int, version: int = 1) -> None:
        self.n_frames, self.version = n_frames, version
        self.episode_ids = tuple(f"{i:07d}" for i in range(n_episodes))
        self.digests = {name: sha256(name.encode()).hexdigest() for name in self.episode_ids}
        self.derived = Derived(Files(root))

    def episode(self, episode_id: str) -> Episode:
        """By its number, always the same."""
        number = int(episode_id)
        return replace(episode(number, self.n_frames, np.random.default_rng(number)), id=episode_id)

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Of some, or of all."""
        ids = self.episode_ids if ids is None else ids
        return assemble(describer, ids, [describer.describe(self.episode(name)) for name in ids])


class MadePool:
    """A source whose view is set."""

    def __init__(self, view: MadeView) -> None:
        self.newest = view

    def view(self) -> MadeView:
        """The newest version."""
        return self.newest


def spent(call: Callable[[], Any]) -> float:
    """Seconds of the CPU."""
    began = time.process_time()
    call()
    return time.process_time() - began


def memory_mb() -> tuple[int, int]:
    """What this process has for itself, and with what it has mapped from files."""
    found = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    own, all_of_it = (int(found[key].split()[0]) // 1024 for key in ("RssAnon", "VmRSS"))
    return own, all_of_it


def peak_mb() -> int:
    """The most that this process ever had, with what it has mapped from files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def build(root: Path, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """The first process."""
    retriever = Retriever(MadePool(MadeView(root, n_episodes, n_frames)), TERMS, CONFIG)
    return {"build_s": round(spent(retriever.index), 1)}


def ask(root: Path, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """The second process."""
    rng = np.random.default_rng(10**9)
    made = [episode(k, n_frames, rng) for k in range(N_STEPS)]
    asked = [query_at(one, min(8, n_frames - 1)) for one in made]
    warm_up(made)
    out: dict[str, Any] = {}
    pool = MadePool(MadeView(root, n_episodes, n_frames))
    retriever = Retriever(pool, TERMS, CONFIG)
    out["all"] = timed(retriever, asked[:N_STEPS])
    out["memory_mb"], out["memory_with_mapped_mb"] = memory_mb()
    pool.newest = MadeView(root, n_episodes + 1, n_frames, version=2)
    name = pool.newest.episode_ids[-1]
    new = query_at(pool.newest.episode(name), min(8, n_frames - 1))
    out["append_to_visible_s"] = round(spent(partial(retriever.retrieve, new)), 3)
    assert retriever.retrieve(new).matches[0].ref.episode_id == name
    out["memory_after_append_mb"] = memory_mb()[0]
    out |= compared(retriever, asked[:N_RECALLED])
    for n_candidates in (5, 100):
        retriever = Retriever(pool, TERMS, replace(CONFIG, n_candidates=n_candidates))
        out[str(n_candidates)] = timed(retriever, asked[:N_STEPS])
    return out


def timed(retriever: Retriever, asked: Sequence[Query]) -> dict[str, float]:
    """The first retrieval, and looks that follow."""
    first = spent(lambda: retriever.retrieve(asked[0]))
    found = retriever.retrieve(asked[0])
    steps = []
    for query in asked:
        began = time.process_time()
        found = retriever.retrieve(query, found)
        steps.append(1000 * (time.process_time() - began))
    return {
        "first_ms": round(1000 * first, 1),
        "step_ms_p50": round(statistics.median(steps), 3),
        "step_ms_p99": round(float(np.quantile(steps, 0.99)), 3),
    }


def warm_up(made: Any) -> None:
    """Compile, so that the first retrieval is not that."""
    from recap.pool.memory import MemoryPool

    Retriever(MemoryPool(made[:25]), TERMS, CONFIG).retrieve(query_at(made[0], 5))


def compared(retriever: Retriever, asked: Sequence[Any]) -> dict[str, Any]:
    """Recall against looking at every frame; faiss alone and Lance's index on the same rows."""
    index = retriever.index()
    exact = replace(index, coarse=None)
    queries = [retriever._describe_query(index, query, 0) for query in asked]
    truth = [exact.nearest(q, exact.everything)[1][0] for q in queries]
    found = [index.nearest(q, index.everything)[1][0] for q in queries]
    same = np.isclose(found, truth, rtol=1e-6)
    exactly, _ = median_us(lambda i: exact.nearest(queries[i % len(queries)], exact.everything), 5)
    out = {"recall_at_1": float(same.mean()), "n_recalled": len(queries), "exact_ms": exactly / 1000}
    if index.coarse is not None:
        alone, _ = median_us(lambda i: index.coarse.near(queries[i % len(queries)], 64), 200)  # type: ignore[union-attr]
        out["faiss_alone_ms"] = alone / 1000
        if len(index.frames) <= MAX_LANCE:
            out |= lance(index.frames, queries, truth)
    return out


def lance(frames: NDArray[np.float32], queries: Sequence[Any], truth: Sequence[float]) -> dict[str, Any]:
    """Lance's own IVF index over the same rows, the 64 nearest, re-scored."""
    import pyarrow as pa
    from lance import write_dataset

    with tempfile.TemporaryDirectory() as folder:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(frames.ravel()), frames.shape[1])
        data = write_dataset(pa.table({"row": flat}), f"{folder}/rows.lance")
        cells = 2 ** round(np.log2(len(frames)) / 2)
        began = time.process_time()
        data.create_index("row", "IVF_FLAT", num_partitions=cells)
        built = time.process_time() - began

        def near(i: int) -> NDArray[np.int64]:
            nearest = {"column": "row", "q": queries[i % len(queries)], "k": 64, "nprobes": 16}
            table = data.to_table(columns=["_distance"], nearest=nearest, with_row_id=True)
            return np.asarray(table["_rowid"])

        step, _ = median_us(near, 50)
        best = [np.linalg.norm(frames[near(i)] - queries[i], axis=1).min() for i in range(len(queries))]
    right = np.isclose(best, truth, rtol=1e-4)
    return {
        "lance_ms": step / 1000,
        "lance_recall_at_1": float(right.mean()),
        "lance_build_s": round(built, 1),
    }


def numbered(numbers: Sequence[int], n_frames: int) -> list[Episode]:
    """The episodes of a made-up pool."""
    made = [(k, episode(k, n_frames, np.random.default_rng(k))) for k in numbers]
    return [replace(one, id=f"{k:07d}") for k, one in made]


def fill(root: Path, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """The first process of a pool on the disk: demonstrations, descriptions, what is laid out."""
    pool = Pool.create(root / "pool")
    for first in range(0, n_episodes, N_ADDED):
        pool.add(numbered(range(first, min(first + N_ADDED, n_episodes)), n_frames))
    Retriever(pool, TERMS, CONFIG).index()
    return {}


def add(root: Path, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """The third process: one more."""
    pool = Pool.open(root / "pool")
    return {"add_s": round(spent(partial(pool.add, numbered([n_episodes], n_frames))), 3)}


def live(root: Path, n_episodes: int, n_frames: int) -> dict[str, Any]:
    """The second process: a server that starts, and another adds a demonstration."""
    made = numbered(range(n_episodes, n_episodes + 50), n_frames)
    asked = [query_at(one, min(8, n_frames - 1)) for one in made]
    warm_up(made)
    before = memory_mb()[0]
    opened: list[Pool] = []
    out: dict[str, Any] = {"open_s": spent(lambda: opened.append(Pool.open(root / "pool")))}
    out["open_s"] += spent(opened[0].view)
    out["memory_open_mb"] = memory_mb()[0] - before
    retriever = Retriever(opened[0], TERMS, CONFIG)
    out["first_retrieve_s"] = spent(partial(retriever.retrieve, asked[1]))
    out["memory_mb"] = memory_mb()[0] - before
    out |= one_process("add", root, n_episodes, n_frames)
    out["append_to_visible_s"] = spent(partial(retriever.retrieve, asked[0]))
    assert retriever.retrieve(asked[0]).matches[0].ref.episode_id == made[0].id
    view = opened[0].view()
    out["memory_append_mb"] = memory_mb()[0] - before
    names = np.random.default_rng(0).permutation(view.episode_ids)[:1000].tolist()
    out["episode_ms"] = spent(lambda: [view.episode(name) for name in names])
    found: dict[str, Any] = {name: round(value, 3) for name, value in out.items()}
    found["all"] = timed(retriever, asked)
    for n in (5, 100):
        found[str(n)] = timed(Retriever(opened[0], TERMS, replace(CONFIG, n_candidates=n)), asked)
    return found | {"memory_peak_mb": peak_mb()}


def one_process(part: str, *given: object) -> dict[str, Any]:
    """What a part of this script prints."""
    command = [sys.executable, __file__, part, *map(str, given)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(n_episodes: int, n_frames: int, parts: Sequence[str] = ("build", "ask")) -> dict[str, Any]:
    """The processes, one after the other."""
    root = Path(tempfile.mkdtemp(prefix="recap-scale-"))
    found: dict[str, Any] = {"trajectories": n_episodes, "frames": n_episodes * n_frames}
    try:
        for part in parts:
            found |= one_process(part, root, n_episodes, n_frames)
        found["disk_mb"] = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) // 2**20
    finally:
        shutil.rmtree(root)
    return found


def main() -> None:
    """Over sizes."""
    parts = {"build": build, "ask": ask, "fill": fill, "live": live, "add": add}
    if len(sys.argv) == 5 and sys.argv[1] in parts:
        part, root, n_episodes, n_frames = sys.argv[1:]
        print(json.dumps(parts[part](Path(root), int(n_episodes), int(n_frames))))
        return
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--live", metavar="BUILD", help="the reading of a pool on the disk alone, as this row"
    )
    parser.add_argument(
        "--trajectories", type=int, nargs="+", default=[10_000, 100_000], metavar="N", help="of --live"
    )
    parser.add_argument("--frames", type=int, default=10, metavar="N", help="of each trajectory of --live")
    options = parser.parse_args()
    known = json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    if options.live is not None:
        before = [row for row in known.get("live", []) if row["build"] != options.live]
        for n in options.trajectories[:1] if options.quick else options.trajectories:
            before.append({"build": options.live, **measure(n, options.frames, ("fill", "live"))})
            print(before[-1], flush=True)
        finish({"rows": known.get("rows", []), "live": before}, options.json)
        return
    sizes = [
        (1000, 10),
        (10_000, 10),
        (100_000, 10),
        (1_000_000, 10),
        (1000, 100),
        (10_000, 100),
        (100_000, 100),
    ]
    rows = []
    for n_episodes, n_frames in [(n, t) for n, t in sizes if not options.quick or n * t <= 10**6]:
        rows.append(measure(n_episodes, n_frames))
        print(rows[-1], flush=True)
        if options.json is not None:
            finish({"rows": rows, "live": known.get("live", [])}, options.json)
    if options.json is not None:
        short = [row for row in rows if row["frames"] == 10 * row["trajectories"]]
        lines = {
            f"{name} candidates": [(row["trajectories"], row[name]["step_ms_p50"]) for row in short]
            for name in ("5", "100", "all")
        }
        lines["every frame"] = [(row["trajectories"], row["exact_ms"]) for row in short]
        lines["faiss alone"] = [
            (r["trajectories"], r["faiss_alone_ms"]) for r in short if "faiss_alone_ms" in r
        ]
        lines["Lance's index"] = [(r["trajectories"], r["lance_ms"]) for r in short if "lance_ms" in r]
        axes = ("trajectories of 10 frames", "milliseconds a look, median")
        plot(options.json.with_suffix(".svg"), "A look against the size of the pool", axes, lines)


if __name__ == "__main__":
    run_script(main)
