"""Search of a large pool by faiss cells: the same matches as exhaustive search."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from episodes import observation_of, random_episode
from recap.features.describer import TermDescriber
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.store import Pool
from recap.retrieval import coarse
from recap.retrieval.pairs import find_pairs
from recap.retrieval.paths import PATH
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import F32, Episode, FrameRef, Frames, Query, Retrieval

pytestmark = pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss is not installed")

EPISODES = [random_episode(f"demo-{i}", i, n=20 + i, goal_angle=0.3 * (i % 3)) for i in range(30)]
DESCRIBER, CONFIG = find_retrieval("pusht-object")
MANY = 100  # frames; a larger pool is searched by cells in these tests


@pytest.fixture(scope="module", autouse=True)
def _few_frames_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "N_EXACT", MANY)
        patch.setattr(coarse, "N_PROBED", 10**6)  # every cell but those that are too far
        yield


def exact(pool: MemoryPool, config: object = CONFIG) -> Retriever:
    """A retriever of the same pool that compares every frame."""
    retriever = Retriever(pool, DESCRIBER, config)  # type: ignore[arg-type]
    retriever._index = replace(retriever.index(), coarse=None)
    return retriever


def ask(seed: int, t: int, **fields: object) -> Query:
    episode = random_episode("query", seed)
    window = tuple(observation_of(episode, k) for k in range(max(0, t - 7), t + 1))
    return Query(window, observation_of(episode, 0), episode.context, **fields)  # type: ignore[arg-type]


def found_by(retriever: Retriever, query: Query, n: int = 3) -> list[tuple[FrameRef, float]]:
    return [(match.ref, round(match.distance, 4)) for match in retriever.retrieve(query, None, n).matches]


moments = st.tuples(st.integers(100, 400), st.integers(0, 19))
refs = st.builds(lambda i, t: FrameRef(f"demo-{i}", t), st.integers(0, 29), st.integers(0, 19))
SPACIOUS = replace(CONFIG, stall_radius=60.0, follow_bonus=15.0, follow_fade=2.0)


@pytest.mark.parametrize(
    "config",
    [
        SPACIOUS,
        replace(SPACIOUS, follow_fade=0.0),
        replace(SPACIOUS, n_candidates=20),
        replace(SPACIOUS, same_goal=True),
        replace(SPACIOUS, weights={**CONFIG.weights, PATH: 50.0}),
    ],
    ids=["all", "whole episodes followed", "some candidates", "same goal", "paths"],
)
@settings(max_examples=25, deadline=None)
@given(
    moments,
    st.lists(st.tuples(refs, st.floats(0, 100)), max_size=4),
    st.none() | refs,
    st.sets(st.sampled_from([e.id for e in EPISODES]), max_size=20),
    st.integers(1, 8),
)
def test_cell_search_equals_exhaustive_search(
    config: object,
    moment: tuple[int, int],
    avoid: list[tuple[FrameRef, float]],
    follow: FrameRef | None,
    hidden: set[str],
    n: int,
) -> None:
    pool = MemoryPool(EPISODES)
    fields = {"avoid": tuple(avoid), "follow": follow, "exclude": frozenset(hidden)}
    large = Retriever(pool, DESCRIBER, config)  # type: ignore[arg-type]
    assert large.index().coarse is not None
    expected = found_by(exact(pool, config), ask(*moment, **fields), n)
    assert found_by(large, ask(*moment, **fields), n) == expected
    assert not hidden & {ref.episode_id for ref, _ in expected}


@given(moments)
def test_penalties_of_avoided_matches_are_applied(moment: tuple[int, int]) -> None:
    retriever = Retriever(MemoryPool(EPISODES), DESCRIBER, replace(CONFIG, stall_radius=1e-3))
    (first, away), (second, _) = found_by(retriever, ask(*moment), 2)
    assert found_by(retriever, ask(*moment, avoid=((first, 1e6),)), 1)[0][0] == second
    assert found_by(retriever, ask(*moment, avoid=((first, 0.0),)), 1)[0] == (first, away)


@given(moments, st.lists(st.integers(1, 29), max_size=4))
def test_a_pool_grown_in_parts_gives_the_same_matches(moment: tuple[int, int], cuts: list[int]) -> None:
    at_once = Retriever(MemoryPool(EPISODES), DESCRIBER, CONFIG)
    pool = MemoryPool()
    grown = Retriever(pool, DESCRIBER, CONFIG)
    ends = [*sorted(set(cuts)), len(EPISODES)]
    for first, end in zip([0, *ends], ends, strict=False):
        pool.add(*EPISODES[first:end])
        grown.index()
    assert found_by(grown, ask(*moment), 5) == found_by(at_once, ask(*moment), 5)


def test_added_episodes_are_found_at_once_and_removed_ones_are_not(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([replace(e, images={}) for e in EPISODES[:20]])
    retriever = Retriever(pool, DESCRIBER, CONFIG)
    new = replace(EPISODES[25], images={})
    look = Query((observation_of(new, 7),), observation_of(new, 0), new.context)

    def best() -> str:
        return retriever.retrieve(look).matches[0].ref.episode_id

    assert best() != new.id
    pool.add([new])
    assert best() == new.id
    pool.quarantine([new.id])
    assert best() != new.id
    pool.quarantine([new.id], undo=True)
    assert best() == new.id
    pool.remove([new.id])
    assert best() != new.id
    pool.rollback(2)
    assert best() != new.id
    pool.rollback(3)
    assert best() == new.id
    assert retriever.index().coarse is not None


def test_pairs_equal_those_of_exhaustive_search() -> None:
    target = MemoryPool([random_episode("target", 77)]).view()
    pool = MemoryPool(EPISODES)
    a, b = (find_pairs(target, one) for one in (exact(pool), Retriever(pool, DESCRIBER, CONFIG)))
    assert a.match.tolist() == b.match.tolist()


def test_confidence_equals_that_of_exhaustive_search() -> None:
    pool = MemoryPool(EPISODES)
    whole, cells = exact(pool), Retriever(pool, DESCRIBER, CONFIG)
    for seed in range(100, 110):
        assert whole.retrieve(ask(seed, 9)).confidence == cells.retrieve(ask(seed, 9)).confidence


def test_without_faiss_search_is_exhaustive_and_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coarse.importlib.util, "find_spec", lambda name: None)
    pool = MemoryPool(EPISODES)
    retriever = Retriever(pool, DESCRIBER, CONFIG)
    assert retriever.index().coarse is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "recap-robot[scale]" in caplog.text
    assert found_by(retriever, ask(100, 9)) == found_by(exact(pool), ask(100, 9))


def test_a_small_pool_is_searched_without_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "N_EXACT", 10_000)
    assert Retriever(MemoryPool(EPISODES), DESCRIBER, CONFIG).index().coarse is None


def test_retrieval_with_a_previous_result_equals_retrieval_without() -> None:
    retriever = Retriever(MemoryPool(EPISODES), DESCRIBER, CONFIG)
    before: Retrieval | None = None
    for t in range(8, 12):
        before = retriever.retrieve(ask(100, t), before)
        assert before.matches == retriever.retrieve(ask(100, t)).matches


def test_episodes_of_one_frame_are_retrieved() -> None:
    def short(episode: Episode) -> Episode:
        rows = {name: values[:1] for name, values in episode.objects.items()}
        few = {k: getattr(episode, k)[:1] for k in ("timestamps", "proprio", "actions")}
        return replace(episode, objects=rows, images={}, **few)

    pool = MemoryPool([short(random_episode(f"one-{i}", i)) for i in range(3 * MANY)])
    assert found_by(Retriever(pool, DESCRIBER, CONFIG), ask(100, 9)) == found_by(exact(pool), ask(100, 9))


def test_a_reopened_pool_uses_stored_rows_and_finds_the_same(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([replace(e, images={}) for e in EPISODES[:20]])
    expected = Retriever(pool, DESCRIBER, CONFIG).retrieve(ask(100, 9))
    assert (kept_rows(pool)[0].stat().st_size) > 0

    class Deaf(TermDescriber):
        def describe(self, episode: Frames) -> dict[str, F32]:
            if isinstance(episode, Episode) and episode.id != EPISODES[25].id:
                raise AssertionError("it was described before")
            return super().describe(episode)

    deaf = Deaf(DESCRIBER.terms, DESCRIBER.retargeting)
    again = Pool.open(pool.uri)
    retriever = Retriever(again, deaf, CONFIG)
    found = retriever.retrieve(ask(100, 9))
    assert (found.matches, found.confidence) == (expected.matches, expected.confidence)
    again.add([replace(EPISODES[25], images={})])
    new = replace(EPISODES[25], images={})
    look = Query((observation_of(new, 7),), observation_of(new, 0), new.context)
    assert retriever.retrieve(look).matches[0].ref.episode_id == new.id
    assert retriever.index().unusable == ()
    assert again.verify().ok, "added episodes do not change the stored rows"
    pool.remove([EPISODES[3].id])
    assert EPISODES[3].id not in Retriever(Pool.open(pool.uri), deaf, CONFIG).index().episode_ids


@pytest.mark.parametrize("n_candidates", [None, 5])
def test_confidence_calibration_is_stored_for_each_n_candidates(
    tmp_path: Path, n_candidates: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([replace(e, images={}) for e in EPISODES[:25]])
    Retriever(pool, DESCRIBER, CONFIG).retrieve(ask(100, 9))  # builds the rows and stores them
    config = replace(CONFIG, n_candidates=n_candidates)
    expected = Retriever(Pool.open(pool.uri), DESCRIBER, config).retrieve(ask(100, 9))
    with monkeypatch.context() as patch:
        patch.setattr("recap.retrieval.retriever.calibrate", None)
        found = Retriever(Pool.open(pool.uri), DESCRIBER, config).retrieve(ask(100, 9))
    assert found.confidence == expected.confidence > 0
    pool.add([replace(e, images={}) for e in EPISODES[25:]])
    with monkeypatch.context() as patch:
        patch.setattr("recap.retrieval.retriever.calibrate", None)
        with pytest.raises(TypeError):  # a fifth more episodes: calibrated again
            Retriever(Pool.open(pool.uri), DESCRIBER, config).retrieve(ask(100, 9))
    Retriever(Pool.open(pool.uri), DESCRIBER, config).retrieve(ask(100, 9))
    assert pool.verify().ok
    pool.forget([EPISODES[3].id])
    assert not [*Path(pool.uri).glob("derived/confidence-*/*.safetensors")]


def test_damaged_stored_rows_are_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([replace(e, images={}) for e in EPISODES[:20]])
    expected = Retriever(pool, DESCRIBER, CONFIG).retrieve(ask(100, 9))
    (file,) = kept_rows(pool)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert [finding.file for finding in pool.verify().findings] == [str(file.relative_to(pool.uri))]
    again = Retriever(Pool.open(pool.uri), DESCRIBER, CONFIG)
    assert again.retrieve(ask(100, 9)).matches == expected.matches
    assert "damaged" in caplog.text
    assert Pool.open(pool.uri).verify().ok


def test_forgetting_a_demonstration_deletes_its_stored_rows(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([replace(e, images={}) for e in EPISODES[:20]])
    Retriever(pool, DESCRIBER, CONFIG).index()
    assert kept_rows(pool)
    pool.forget([EPISODES[3].id])
    assert not kept_rows(pool)
    assert EPISODES[3].id not in Retriever(pool, DESCRIBER, CONFIG).index().episode_ids


def kept_rows(pool: Pool) -> list[Path]:
    return sorted(Path(pool.uri).glob("derived/rows-*/*.safetensors"))


def test_random_moments_come_only_from_episodes_in_the_pool() -> None:
    pool = MemoryPool(EPISODES[:12])
    retriever = Retriever(pool, DESCRIBER, CONFIG)
    retriever.index()
    pool._view = MemoryView(EPISODES[2:12], 2)
    index = retriever.index()
    assert len(index.frames) > sum(map(len, EPISODES[2:12])), "rows of removed episodes remain"
    drawn = [index.any_moment(lambda n, k=k: k) for k in range(sum(map(len, EPISODES[2:12])))]  # type: ignore[misc]
    assert drawn == [(i, t) for i, episode in enumerate(EPISODES[2:12]) for t in range(len(episode))]
    assert (index.owners(np.arange(len(EPISODES[0]))) == -1).all()


def test_rows_are_rebuilt_when_most_episodes_were_removed() -> None:
    pool = MemoryPool(EPISODES[:8])
    retriever = Retriever(pool, DESCRIBER, CONFIG)
    retriever.index()
    pool._view = MemoryView(EPISODES[6:8], 2)
    assert len(retriever.index().frames) == sum(map(len, EPISODES[6:8]))
