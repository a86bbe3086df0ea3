"""Search without numba finds the same rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recap.retrieval.index import nearest_frames, squared_distances
from recap.retrieval.plain_search import EACH_BEGIN, plain_nearest_frames, plain_squared_distances


@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 40),
    st.sampled_from([-1, EACH_BEGIN, 0, 7]),
    st.integers(0, 3),
)
def test_plain_search_equals_compiled_search(
    seed: int, n_episodes: int, n: int, follow_row: int, n_avoided: int
) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n_episodes)
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    frames = rng.normal(size=(int(ends[-1]), 5)).astype(np.float32)
    query = rng.normal(size=5).astype(np.float32)
    candidates = rng.permutation(n_episodes)[: rng.integers(0, n_episodes + 1)]
    added = rng.choice([0.0, 1.5], len(candidates))
    avoid_rows = rng.integers(0, len(frames), n_avoided)
    penalties = rng.uniform(-0.5, 2.0, n_avoided)
    bonus = 0.0 if follow_row == -1 else 0.7
    searched = (frames, query, firsts, ends, candidates, added, avoid_rows, penalties, 1.2)
    rows, distances = nearest_frames(*searched, n, follow_row, bonus, 0.2)
    plain_rows, plain_distances = plain_nearest_frames(*searched, n, follow_row, bonus, 0.2)
    assert plain_rows.tolist() == rows.tolist()
    np.testing.assert_allclose(plain_distances, distances, atol=1e-5)
    np.testing.assert_allclose(
        plain_squared_distances(frames, query), squared_distances(frames, query), rtol=1e-5
    )


def test_ties_keep_the_order_of_the_candidates() -> None:
    frames = np.zeros((6, 2), np.float32)
    spans = np.array([3, 0]), np.array([6, 3])
    empty = np.zeros(0, np.int64), np.zeros(0), 0.0
    searched = (frames, frames[0], *spans, np.array([0, 1]), np.zeros(2), *empty)
    for find in (nearest_frames, plain_nearest_frames):
        assert find(*searched, 4, -1, 0.0, 0.0)[0].tolist() == [3, 4, 5, 0]
