"""How fast are the two stages, compared with the published rule and with faiss in the same run?

    python research/benchmarks/retrieval.py --json docs/results/retrieval.json

The published rule: the 100 demonstrations with the nearest initial block, then squared L2 over their 10-D
subframe features, in numpy. faiss is compared for stage 1 if it is installed (`pip install faiss-cpu`).
"""

from __future__ import annotations

import importlib.util
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from report import arguments, finish, plot

from recap.cli.one_line import run_script
from recap.features.describer import TermDescriber
from recap.features.terms import Proprio, Time
from recap.pool.memory import MemoryPool
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.index import squared_distances
from recap.retrieval.retriever import Retriever
from recap.types import Episode
from recap_worlds.pusht.terms import ObjectPosition, ObjectTurn, Position

TERMS = TermDescriber(
    {
        "proprio": Position(frame="block"),
        "object": ObjectPosition("block", in_goal_frame=True),
        "turn": ObjectTurn("block", from_goal=True),
        "history": Proprio("XY", n_steps=8),
        "time": Time(),
    }
)
WEIGHTS = {"proprio": 1.0, "object": 1.0, "turn": 1.0, "history": 0.05, "time": 0.01}


def median_us(call: Callable[[int], Any], n: int) -> tuple[float, float]:
    """Median and 99th percentile of n calls, in microseconds."""
    call(0)
    times = []
    for i in range(n):
        started = time.perf_counter()
        call(i)
        times.append(1e6 * (time.perf_counter() - started))
    return statistics.median(times), float(np.quantile(times, 0.99))


def episode(i: int, n: int, rng: np.random.Generator) -> Episode:
    """An episode of n frames with a random walk."""
    walk = np.cumsum(rng.normal(0, 3, (n, 5)), axis=0)
    pose = np.column_stack([rng.uniform(100, 400, 2) + walk[:, 2:4], rng.uniform(-3, 3) + 0.01 * walk[:, 4]])
    return Episode(
        id=str(i),
        scene_id=str(i),
        task="",
        embodiment="disc",
        fps=10.0,
        timestamps=np.arange(n) / 10,
        proprio=(rng.uniform(50, 450, 2) + walk[:, :2]).astype(np.float32),
        actions=np.zeros((n, 2), np.float32),
        objects={"block": pose.astype(np.float32)},
        goal=np.array([256, 256, 0.5], np.float32),
    )


def _published_features(e: Episode) -> np.ndarray:
    """Block, pusher, direction and velocities of every frame: (t, 10)."""
    block = e.objects["block"].astype(np.float64)
    moves = [np.diff(xy, axis=0, prepend=xy[:1]) for xy in (block[:, :2], e.proprio.astype(np.float64))]
    turn = np.stack([np.sin(block[:, 2]), np.cos(block[:, 2])], axis=1)
    return np.concatenate(
        [block[:, :2] / 256, e.proprio / 204.8, 1.5 * turn, *(m / 512 for m in moves)], axis=1
    )


def stage_2(n_episodes: int, n_frames: int, n_calls: int) -> dict[str, Any]:
    """Our search at 5, 100 and all candidates, and the published rule, on the same episodes."""
    rng = np.random.default_rng(0)
    episodes = [episode(i, n_frames, rng) for i in range(n_episodes)]
    config = RetrievalConfig("benchmark", {"object": 1.0}, WEIGHTS)
    index = Retriever(MemoryPool(episodes), TERMS, config).index()
    queries = index.frames[rng.integers(0, len(index.frames), 64)] + 1.0

    def ours(n_candidates: int) -> Callable[[int], Any]:
        candidates = index.candidates(np.arange(min(n_candidates, n_episodes)))
        return lambda i: index.nearest(queries[i % 64], candidates)

    # The published rule: 10 numbers per subframe, the same demonstrations in one array.
    features = np.array([_published_features(e) for e in episodes])
    starts_xy = features[:, 0, :2].copy()

    def published(i: int) -> Any:
        query = features[i % n_episodes, i % n_frames] + 0.1
        near = np.argsort(((starts_xy - query[:2]) ** 2).sum(axis=1))[:100]
        cost = ((features[near] - query) ** 2).sum(axis=2)
        return np.unravel_index(cost.argmin(), cost.shape)

    def whole(n_candidates: int) -> Callable[[int], Any]:
        """The calls of an agent at every step: describe, search, costs by term, confidence."""
        chosen = replace(config, n_candidates=n_candidates)
        retriever = Retriever(MemoryPool(episodes), TERMS, chosen)
        asked = [query_at(episode(k, 9, rng), 8) for k in range(16)]
        first = retriever.retrieve(asked[0])
        return lambda i: retriever.retrieve(asked[i % 16], first)

    rows = {
        "published rule, 100 candidates": median_us(published, n_calls),
        "ours, 5 candidates": median_us(ours(5), n_calls),
        "ours, 100 candidates": median_us(ours(100), n_calls),
        "ours, all candidates": median_us(ours(n_episodes), n_calls),
        "ours, the whole call, 5 candidates": median_us(whole(5), n_calls),
        "ours, the whole call, 100 candidates": median_us(whole(100), n_calls),
    }
    return {
        "episodes": n_episodes,
        "frames": n_frames,
        "us": {k: {"p50": a, "p99": b} for k, (a, b) in rows.items()},
    }


def scenes(n: int, seed: int) -> np.ndarray:
    """Clustered first scenes: 1000 tasks, each with its words (64-D) and a spread of layouts (16-D)."""
    task = np.random.default_rng(7).normal(size=(1000, 80)).astype(np.float32)
    task[:, :64] /= np.linalg.norm(task[:, :64], axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    spread = np.concatenate([np.full(64, 0.02), np.full(16, 0.35)]).astype(np.float32)
    return task[rng.integers(0, 1000, n)] + spread * rng.normal(size=(n, 80)).astype(np.float32)


def stage_1(n: int, n_calls: int) -> dict[str, Any]:
    """Exact search over n scenes, compared with faiss."""
    rows, queries = scenes(n, 0), scenes(64, 1)
    out: dict[str, Any] = {"n": n}
    exact = [np.argsort(squared_distances(rows, q), kind="stable")[:5] for q in queries[:32]]

    def recall(find: Callable[[np.ndarray], np.ndarray]) -> float:
        return float(np.mean([len(set(find(q)) & set(e)) / 5 for q, e in zip(queries, exact, strict=False)]))

    def exactly(i: int) -> Any:
        return np.argpartition(squared_distances(rows, queries[i % 64]), 5)[:5]

    out["exact"] = {"ms_p50": median_us(exactly, n_calls)[0] / 1000}
    if importlib.util.find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatL2(80)
        flat.add(rows)
        out["faiss flat"] = {
            "ms_p50": median_us(lambda i: flat.search(queries[i % 64][None], 5), n_calls)[0] / 1000
        }
        if n >= 10_000:
            cells = round(n**0.5)
            ivf = faiss.IndexIVFFlat(flat, 80, cells)
            started = time.perf_counter()
            ivf.train(rows[: 40 * cells])
            ivf.add(rows)
            ivf.nprobe = 8
            out["faiss ivf"] = {
                "ms_p50": median_us(lambda i: ivf.search(queries[i % 64][None], 5), n_calls)[0] / 1000,
                "recall_at_5": recall(lambda q: ivf.search(q[None], 5)[1][0]),
                "build_s": time.perf_counter() - started,
            }
    return out


def main() -> None:
    """Both stages for several sizes; ratios last."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    n_calls = 100 if options.quick else 400
    small = stage_2(130, 100, n_calls)
    large = stage_2(100, 300, n_calls)
    for name, part in (("13,000 subframes", small), ("30,000 subframes (300 an episode)", large)):
        print(name)
        for row, figures in part["us"].items():
            print(f"  {row:<32} p50 {figures['p50']:8.1f} µs   p99 {figures['p99']:8.1f} µs")
    sizes = [100, 1000, 10_000, 100_000] + ([] if options.quick else [1_000_000])
    firsts = []
    for n in sizes:
        firsts.append(stage_1(n, 50))
        words = [
            f"{k} {v['ms_p50']:.2f} ms" + (f" (recall {v['recall_at_5']:.3f})" if "recall_at_5" in v else "")
            for k, v in firsts[-1].items()
            if isinstance(v, dict)
        ]
        print(f"stage 1, {n:>9,} scenes of 80-D: {', '.join(words)}")
    bytes_per_frame = 4 * sum(TERMS.dims.values()) + 4 * (2 + 2 + 3)
    published = large["us"]["published rule, 100 candidates"]["p50"]
    ratios = {
        "equal candidates": published / large["us"]["ours, the whole call, 100 candidates"]["p50"],
        "five candidates": published / large["us"]["ours, the whole call, 5 candidates"]["p50"],
    }
    result = {
        "stage_2": [small, large],
        "stage_1": firsts,
        "ratios": ratios,
        "mb_per_million_frames": bytes_per_frame,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    finish(result, options.json)
    if options.json is not None:
        names = [key for key in firsts[-1] if isinstance(firsts[-1][key], dict)]
        lines = {name: [(f["n"], f[name]["ms_p50"]) for f in firsts if name in f] for name in names}
        axes = ("trajectories in the pool", "milliseconds, median")
        plot(options.json.with_suffix(".svg"), "Stage 1: cost against pool size", axes, lines)
    print(f"memory: {bytes_per_frame} MB per million frames (descriptors and trajectories)")
    print(f"published rule over ours: {ratios['equal candidates']:.1f} at equal candidates, "
          f"{ratios['five candidates']:.1f} at five")  # fmt: skip


if __name__ == "__main__":
    run_script(main)
