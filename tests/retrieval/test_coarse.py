"""Searching in groups: nearly all that an exact search finds, also while the pool grows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recap.retrieval.coarse import build_coarse
from recap.retrieval.index import squared_distances


def clustered(n: int, seed: int, n_tasks: int = 50, dim: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    tasks = np.random.default_rng(99).normal(size=(n_tasks, dim))
    return (tasks[rng.integers(0, n_tasks, n)] + 0.2 * rng.normal(size=(n, dim))).astype(np.float32)


def recall(rows: np.ndarray, grown: np.ndarray | None = None) -> float:
    index = build_coarse(rows)
    if grown is not None:
        rows, index = grown, index.grown_to(grown)
    queries = clustered(40, seed=1)
    hits = [
        len(set(index.search(q, 5)[0]) & set(np.argsort(squared_distances(rows, q))[:5])) for q in queries
    ]
    return sum(hits) / (5 * len(queries))


def test_recall_is_high_on_clustered_scenes() -> None:
    assert recall(clustered(20_000, seed=0)) >= 0.95


def test_rows_that_came_later_are_found_too() -> None:
    rows = clustered(10_000, seed=0)
    later = np.concatenate([rows, clustered(1_000, seed=2)])
    assert recall(rows, later) >= 0.95
    index = build_coarse(rows).grown_to(later)
    assert index.search(later[10_500], 1)[0][0] == 10_500
    assert index.n_grouped == 10_000
    many = np.concatenate([rows, clustered(5_000, seed=3)])
    assert index.grown_to(many).n_grouped == 15_000


@given(st.integers(1, 60), st.integers(0, 5))
def test_small_pools_are_searched_whole(n: int, seed: int) -> None:
    rows = clustered(n, seed)
    found, distances = build_coarse(rows).search(rows[n // 2], min(3, n), n_probes=100)
    assert distances[0] == 0
    exact = np.sort(squared_distances(rows, rows[n // 2]))[: len(found)]
    assert np.allclose(distances, exact)
