"""The retriever: equal to brute force, follows a growing pool, never returns excluded episodes."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from episodes import observation_of, random_episode
from recap.body import ARM
from recap.errors import DatasetError, InputError
from recap.features.describer import TermDescriber
from recap.features.terms import Proprio
from recap.geometry import out_of_frame
from recap.geometry3 import encode_arms
from recap.pool.memory import MemoryPool
from recap.retrieval.aligners import ObjectFrame
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig, with_scales
from recap.retrieval.index import make_layout
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever, _smallest
from recap.types import Episode, FrameRef, Moment, Query
from recap_client.messages import CORRECTION_FROM
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.retrieval import RETRIEVALS
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.terms import Position

EPISODES = [random_episode(f"demo-{i}", i, n=20 + i, goal_angle=0.3 * (i % 3)) for i in range(12)]


def ask(episode: Episode, t: int, **fields: object) -> Query:
    window = tuple(observation_of(episode, k) for k in range(max(0, t - 7), t + 1))
    return Query(window, observation_of(episode, 0), episode.context, **fields)  # type: ignore[arg-type]


def brute_force(episodes: list[Episode], query: Query, name: str) -> tuple[FrameRef, float]:
    """The nearest frame by the definition of the cost, over every frame."""
    describer, config = find_retrieval(name)
    now = {k: v[-1] for k, v in describer.describe(Moment.of(query.window, query.context)).items()}
    best: tuple[float, FrameRef] | None = None
    for episode in episodes:
        rows = describer.describe(episode)
        for t in range(max(1, len(episode) - config.trim)):
            cost = sum(
                weight * float(((rows[k][t] - now[k]) ** 2).sum()) / config.scales.get(k, 1.0) ** 2
                for k, weight in config.weights.items()
            )
            if best is None or cost < best[0]:
                best = cost, FrameRef(episode.id, t)
    assert best is not None
    return best[1], best[0] ** 0.5


@pytest.mark.parametrize("name", ["pusht-world", "pusht-object"])
@given(st.integers(100, 200), st.integers(0, 19))
def test_the_nearest_match_equals_brute_force(name: str, seed: int, t: int) -> None:
    query = ask(random_episode("query", seed), t)
    found = Retriever(MemoryPool(EPISODES), *find_retrieval(name)).retrieve(query)
    ref, distance = brute_force(EPISODES, query, name)
    assert found.matches[0].distance == pytest.approx(distance, rel=1e-3, abs=1e-2)
    assert found.matches[0].ref == ref or found.matches[0].distance <= distance * 1.0001
    assert sum(found.matches[0].costs.values()) == pytest.approx(distance**2, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("name", RETRIEVALS)
@given(st.sampled_from(EPISODES), st.data())
def test_a_frame_of_the_pool_matches_itself_unless_excluded(
    name: str, episode: Episode, data: st.DataObject
) -> None:
    retriever = Retriever(MemoryPool(EPISODES), *find_retrieval(name))
    t = data.draw(st.integers(0, len(episode) - 1 - retriever.config.trim))
    found = retriever.retrieve(ask(episode, t))
    assert found.matches[0].ref == FrameRef(episode.id, t)
    assert found.matches[0].distance == pytest.approx(0, abs=1e-2)
    for hidden in (episode.id, episode.scene_id):
        found = retriever.retrieve(ask(episode, t, exclude=frozenset([hidden])), n_matches=8)
        assert found.matches
        assert episode.id not in found.candidates
        assert all(match.ref.episode_id != episode.id for match in found.matches)


def test_matches_are_sorted_by_distance_and_list_their_costs() -> None:
    found = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-object")).retrieve(
        ask(EPISODES[3], 5), n_matches=6
    )
    distances = [match.distance for match in found.matches]
    assert distances == sorted(distances)
    assert len({match.ref for match in found.matches}) == 6
    assert set(found.matches[0].costs) == {"proprio", "object", "turn"}


def test_stage_1_keeps_the_nearest_scenes_of_the_first_frame() -> None:
    retriever = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-object", n_candidates=3))
    found = retriever.retrieve(ask(EPISODES[4], 9))
    assert len(found.candidates) == 3
    assert found.candidates[0] == EPISODES[4].id
    assert {m.ref.episode_id for m in retriever.retrieve(ask(EPISODES[4], 9), n_matches=20).matches} <= set(
        found.candidates
    )


def test_the_oracle_retrieval_searches_only_the_nearest_goal() -> None:
    found = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-world-oracle")).retrieve(
        ask(EPISODES[4], 9)
    )
    assert {int(i.split("-")[1]) % 3 for i in found.candidates} == {4 % 3}


def test_a_pool_that_grows_is_used_at_the_next_step() -> None:
    pool = MemoryPool(EPISODES[:6])
    retriever = Retriever(pool, *find_retrieval("pusht-object"))
    query = ask(EPISODES[8], 4)
    before = retriever.retrieve(query)
    assert before.matches[0].ref.episode_id != EPISODES[8].id
    pool.add(EPISODES[8])
    after = retriever.retrieve(query, previous=before)
    assert after.matches[0].ref == FrameRef(EPISODES[8].id, 4)
    assert after.pool_version > before.pool_version


def test_stage_1_candidates_are_reused_while_the_pool_is_unchanged() -> None:
    retriever = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-object", n_candidates=2))
    first = retriever.retrieve(ask(EPISODES[1], 0))
    again = retriever.retrieve(ask(EPISODES[7], 3), previous=first)
    assert again.candidates == first.candidates


def test_an_empty_pool_or_max_distance_gives_no_matches() -> None:
    found = Retriever(MemoryPool(), *find_retrieval("pusht-object")).retrieve(ask(EPISODES[0], 0))
    assert found.matches == ()
    assert found.confidence == 0
    describer, config = find_retrieval("pusht-object")
    far = Retriever(MemoryPool(EPISODES), describer, replace(config, max_distance=1e-3))
    assert far.retrieve(ask(random_episode("query", 77), 0)).matches == ()


@pytest.mark.parametrize("name", ["pusht-world", "pusht-world-oracle", "pusht-object"])
def test_symmetric_goals_give_the_same_match(name: str) -> None:
    """A Z at 17° and at 197° is the same goal, so both find the same frame."""
    pool = [
        replace(random_episode(f"z-{i}", i, symmetry=2), goal=np.array([256, 256, 0.3], np.float32))
        for i in range(6)
    ]
    retriever = Retriever(MemoryPool(pool), *find_retrieval(name))
    here = replace(random_episode("query", 80, symmetry=2), goal=np.array([256, 256, 0.3], np.float32))
    assert here.goal is not None
    there = replace(here, goal=here.goal + np.array([0, 0, np.pi], np.float32))
    a, b = (retriever.retrieve(ask(episode, 7)) for episode in (here, there))
    assert a.matches[0].ref == b.matches[0].ref
    assert a.matches[0].distance == pytest.approx(b.matches[0].distance, abs=1e-2)


def test_avoided_matches_and_their_neighbours_are_penalised() -> None:
    retriever = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-object"))
    query = ask(EPISODES[2], 6)
    first = retriever.retrieve(query).matches[0]
    away = retriever.retrieve(replace(query, avoid=((first.ref, 500.0),))).matches[0]
    rows = retriever.index()
    at = [rows.begins[rows.rows_of[m.ref.episode_id]] + m.ref.t for m in (first, away)]
    assert np.linalg.norm(rows.frames[at[0]] - rows.frames[at[1]]) > retriever.config.stall_radius
    gone = FrameRef("no longer there", 3)
    assert retriever.retrieve(replace(query, avoid=((gone, 500.0),))).matches[0].ref == first.ref


@pytest.mark.parametrize("symmetry", [1, 2, 4])
@given(st.integers(300, 330), st.integers(0, 10), st.floats(-3, 3), st.floats(-60, 60), st.floats(-60, 60))
def test_alignment_moves_the_chunk_with_the_block(
    symmetry: int, seed: int, t: int, turn: float, dx: float, dy: float
) -> None:
    """A rotated and shifted scene finds itself, and its chunk is rotated and shifted in the same way."""
    demo = random_episode("demo", seed, symmetry=symmetry)
    move = np.array([dx, dy, turn])

    def moved(points: np.ndarray) -> np.ndarray:
        return out_of_frame(move, points.astype(np.float64))

    def moved_pose(poses: np.ndarray, k: int = 0) -> np.ndarray:
        angle = poses[..., 2:] + turn + k * 2 * np.pi / symmetry
        return np.concatenate([moved(poses[..., :2]), angle], axis=-1).astype(np.float32)

    assert demo.goal is not None
    twin = replace(
        demo,
        id="twin",
        proprio=moved(demo.proprio).astype(np.float32),
        objects={"block": moved_pose(demo.objects["block"], k=1)},
        goal=moved_pose(demo.goal, k=1),  # the same goal by symmetry
    )
    retriever = Retriever(MemoryPool([demo, *EPISODES]), *find_retrieval("pusht-object"))
    found = retriever.retrieve(ask(twin, t))
    assert found.matches[0].distance < 0.5
    assert found.matches[0].ref == FrameRef("demo", t)
    seen = [observation_of(twin, k) for k in range(t + 1)]
    named = Moment.of(seen, twin.context, found.matches[0].symmetry_index)
    frame = retriever.config.aligner.frame(named, t)
    view = retriever.view_of(found)
    chunk = build_conditioning(view, [found.matches[0].ref], named, t, retriever.config, PUSHT)
    world = out_of_frame(frame, chunk.actions[0].astype(np.float64))
    assert world == pytest.approx(moved(demo.actions[t : t + 8]), abs=0.05)


def test_a_chunk_past_the_end_repeats_the_last_action_and_is_marked_invalid() -> None:
    demo = EPISODES[0]
    _, config = find_retrieval("pusht-world")
    ref = FrameRef(demo.id, len(demo) - 3)
    chunk = build_conditioning(MemoryPool(EPISODES).view(), [ref], EPISODES[1], 0, config, PUSHT)
    assert chunk.valid[0].tolist() == [True] * 3 + [False] * 5
    assert np.array_equal(chunk.actions[0, :3], demo.actions[-3:])
    assert (chunk.actions[0, 3:] == demo.actions[-1]).all()
    assert chunk.last_refs[0] == FrameRef(demo.id, len(demo) - 1)


def test_conditioning_without_matches_is_masked_as_invalid() -> None:
    _, config = find_retrieval("pusht-object")
    chunk = build_conditioning(MemoryPool().view(), [], EPISODES[0], 3, config, PUSHT)
    assert not chunk.valid.any()
    assert chunk.refs == ()


def test_any_term_setting_changes_the_fingerprint() -> None:
    base = TermDescriber({"a": Position(), "b": Proprio("XY", n_steps=8)})
    others = [
        TermDescriber({"a": Position("block"), "b": Proprio("XY", n_steps=8)}),
        TermDescriber({"a": Position(), "b": Proprio("XY", n_steps=7)}),
        TermDescriber({"a": Position(), "c": Proprio("XY", n_steps=8)}),
        TermDescriber({"a": Position()}),
    ]
    assert len({d.fingerprint for d in [base, *others]}) == 5
    assert base.fingerprint == TermDescriber({"b": Proprio("XY", n_steps=8), "a": Position()}).fingerprint


def test_a_weight_for_a_term_that_is_not_described_is_an_error() -> None:
    config = RetrievalConfig("mine", scene_weights={}, weights={"image": 1.0})
    with pytest.raises(DatasetError, match="'image' is weighed but not described"):
        Retriever(MemoryPool(EPISODES), TermDescriber({"a": Position()}), config).retrieve(
            ask(EPISODES[0], 0)
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": {}}, "no weight"),
        ({"weights": {"proprio": -1.0}}, "negative"),
        ({"scales": {"proprio": 0.0}}, "scale"),
        ({"n_candidates": 0}, "n_candidates"),
    ],
)
def test_invalid_configs_are_errors(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(find_retrieval("pusht-object")[1], **changes)  # type: ignore[arg-type]


@given(st.integers(0, 50), st.integers(0, 5))
def test_alignment_in_space_moves_both_arms_with_the_object(seed: int, t: int) -> None:
    """The chunk of a demonstration is moved and rotated to the object's new pose."""
    rng = np.random.default_rng(seed)

    def poses(n: int) -> np.ndarray:
        q = rng.normal(size=(n, 4))
        return np.concatenate(
            [rng.uniform(-1, 1, (n, 3)), q / np.linalg.norm(q, axis=1, keepdims=True)], axis=1
        )

    arms = encode_arms(poses(14), rng.uniform(0, 1, 14), poses(14), rng.uniform(0, 1, 14))
    here, there = poses(1)[0], poses(1)[0]
    demo = replace(
        random_episode("demo", seed, n=14),
        proprio=arms.astype(np.float32),
        actions=arms.astype(np.float32),
        objects={"can": np.tile(here, (14, 1)).astype(np.float32)},
        goal=None,
    )
    moved = TWO_ARMS.act.out_of(there, TWO_ARMS.act.into(here, arms))
    twin = replace(
        demo, id="twin", proprio=moved, objects={"can": np.tile(there, (14, 1)).astype(np.float32)}
    )
    term = Proprio(2 * ARM, frame="can")
    assert term.describe(twin) == pytest.approx(term.describe(demo), abs=1e-4)
    config = RetrievalConfig("space", {}, {"arms": 1.0}, aligner=ObjectFrame("can"), chunk_size=6)
    retriever = Retriever(MemoryPool([demo]), TermDescriber({"arms": term}), config)
    frame = config.aligner.frame(twin, t)
    chunk = build_conditioning(retriever.source.view(), [FrameRef("demo", t)], twin, t, config, TWO_ARMS)
    actions = TWO_ARMS.act.out_of(frame, chunk.actions[0].astype(np.float64))
    assert actions == pytest.approx(moved[t : t + 6], abs=1e-4)


def test_scales_are_fitted_on_the_training_pool_and_stay_fixed() -> None:
    describer = TermDescriber({"near": Position(), "arms": Proprio("XY", n_steps=8)})
    config = RetrievalConfig("mine", {"near": 1.0}, {"near": 1.0, "arms": 0.05})
    training = MemoryPool(EPISODES[:6]).view().descriptors(describer)
    scaled = with_scales(config, training)
    rows = training.terms["near"] / scaled.scales["near"]
    assert ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean() == pytest.approx(1, rel=1e-4)
    pool = MemoryPool(EPISODES[:6])
    retriever = Retriever(pool, describer, scaled)
    query = ask(EPISODES[7], 3)
    before = retriever.retrieve(query).matches[0].distance
    far = replace(EPISODES[9], id="far", proprio=EPISODES[9].proprio + 5000)
    pool.add(far)
    assert retriever.retrieve(query).matches[0].distance == pytest.approx(before)
    assert scaled.fingerprint != config.fingerprint
    assert with_scales(config, training).fingerprint == scaled.fingerprint
    given = replace(config, scales={"near": 2.0})
    assert with_scales(given, training).scales["near"] == 2.0


def test_a_correction_is_matched_from_its_start_and_stage_1_uses_its_first_frame() -> None:
    whole = EPISODES[3]
    since = 9
    corrected = replace(
        whole, attributes={**whole.attributes, CORRECTION_FROM: float(whole.timestamps[since])}
    )
    assert corrected.first_match == since
    describer, config = find_retrieval("pusht-world")
    plain, retriever = (
        Retriever(MemoryPool([*EPISODES[:3], one]), describer, replace(config, n_candidates=1))
        for one in (whole, corrected)
    )
    assert plain.retrieve(ask(whole, 4)).matches[0].ref == FrameRef(whole.id, 4)
    found = retriever.retrieve(ask(whole, 4), n_matches=8)
    assert found.candidates == (whole.id,)  # stage 1 compares the first frame of the run
    assert all(match.ref.t >= since for match in found.matches)
    assert retriever.retrieve(ask(whole, 12)).matches[0].ref == FrameRef(whole.id, 12)


@pytest.mark.parametrize(("since", "first"), [("soon", 0), (0, 0), (0.35, 4), (1e9, 19)])
def test_a_corrections_start_is_a_time_and_leaves_at_least_one_frame(since: object, first: int) -> None:
    episode = random_episode("a", 0, n=20)  # at 10 Hz
    assert replace(episode, attributes={CORRECTION_FROM: since}).first_match == first
    assert episode.first_match == 0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 70))
def test_smallest_values_equal_those_of_a_stable_sort(values: list[int], n: int) -> None:
    array = np.array(values, np.float32)
    assert _smallest(array, n).tolist() == np.argsort(array, kind="stable")[:n].tolist()


def test_candidate_rows_are_looked_up_once_per_episode() -> None:
    retriever = Retriever(MemoryPool(EPISODES), *find_retrieval("pusht-object"))
    first = retriever.retrieve(ask(EPISODES[4], 5))
    again = retriever.retrieve(ask(EPISODES[4], 6), first)
    assert again.kept is first.kept
    by_name = retriever.retrieve(ask(EPISODES[4], 6), replace(first, kept=None))
    assert by_name.matches == again.matches


def test_a_deleted_retriever_frees_its_rows_without_garbage_collection() -> None:
    """Training builds several retrievers; two large ones at once would take twice the memory."""
    describer, config = find_retrieval("pusht-object")
    retriever = Retriever(MemoryPool(EPISODES), describer, config)
    retriever.index()
    rows = weakref.ref(retriever._rows)
    gc.disable()
    try:
        del retriever
        assert rows() is None
    finally:
        gc.enable()


@given(st.integers(0, 9), st.integers(0, 100))
def test_terms_are_scaled_and_concatenated_in_place(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = {name: int(rng.integers(1, 5)) for name in "abc"}
    terms = {name: rng.normal(size=(n, dim)).astype(np.float32) for name, dim in dims.items()}
    weights = {name: float(rng.uniform(0.1, 2)) for name in "abc"} | {"b": float(rng.integers(0, 2))}
    layout = make_layout(weights, {"a": 0.5}, dims)
    whole = np.full((n + 2, layout.width), np.nan, np.float32)
    assert layout.lay_out(terms, whole[1 : n + 1]).base is whole
    np.testing.assert_array_equal(whole[1 : n + 1], layout.lay_out(terms))
    assert np.isnan(whole[[0, -1]]).all()
    for name, (first, end) in layout.spans.items():
        scale = {"a": 0.5}.get(name, 1.0)
        wanted = np.sqrt(weights[name]) / scale * terms[name]
        np.testing.assert_allclose(whole[1 : n + 1, first:end], wanted, rtol=1e-6)
    assert ("b" in layout.spans) == (weights["b"] > 0)
