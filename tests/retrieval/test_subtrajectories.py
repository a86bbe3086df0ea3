"""Sub-trajectories: where they are cut, their goals, and what a view caches."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from episodes import observation_of, random_episode
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.lazy import LazySequence
from recap.pool.memory import MemoryPool, MemoryView
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import LEAD, SubtrajectoryPool, SubtrajectoryView, source_frame
from recap.types import F32, U8, Episode, FrameRef, Query, Span
from recap_client.messages import CORRECTION_FROM
from recap_worlds.pusht.collecting import CollectSpec, demonstrate
from recap_worlds.pusht.retrieval import PUSHES
from recap_worlds.pusht.robot import PUSHT

REST, PUSH, TURN = (0.0, 0.0, 0.0), (5.0, -2.0, 0.0), (0.5, 0.0, 0.06)
STRETCHES = ((10, REST), (12, PUSH), (6, REST), (10, TURN), (5, REST), (8, PUSH))  # the last reaches the goal


def pushed(name: str, *stretches: tuple[int, tuple[float, float, float]], angle: float = 2.8) -> Episode:
    """A block that moves in stretches of (steps, change per step); the pusher never rests."""
    steps = np.repeat([step for _, step in stretches], [n for n, _ in stretches], axis=0)
    block = np.array([150.0, 300.0, angle]) + np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])
    n = len(block)
    proprio = block[:, :2] - 60 + np.column_stack([np.arange(n), np.zeros(n)])
    return replace(
        random_episode(name, 0, n=n),
        proprio=proprio.astype(np.float32),
        actions=(proprio + 7).astype(np.float32),
        objects={"block": block.astype(np.float32)},
    )


@pytest.fixture(scope="module")
def demo() -> Episode:
    """A demonstration of the expert with several pushes."""
    spec = CollectSpec("disc", (45.0,), 2, image_size=0)
    return demonstrate(spec, spec.demos()[1])


def test_a_subtrajectory_ends_where_the_block_rests_which_is_its_goal() -> None:
    whole = pushed("a", *STRETCHES)
    first, second = PUSHES.of(whole)
    assert (first.id, second.id) == ("a@0-22", "a@22-38")
    for part, begin, rest in ((first, 0, 22), (second, 22, 38)):
        assert len(part) == rest + 1 - begin
        assert np.array_equal(part.objects["block"], whole.objects["block"][begin : rest + 1])
        assert np.array_equal(part.proprio, whole.proprio[begin : rest + 1])
        assert part.goal is not None
        x, y, angle = whole.objects["block"][rest]
        assert part.goal == pytest.approx([x, y, (angle + np.pi) % (2 * np.pi) - np.pi], abs=1e-4)
    assert second.goal is not None
    assert second.goal[2] < 0, "the angle wraps past pi"


def test_frames_before_a_correction_are_in_no_subtrajectory() -> None:
    whole = pushed("a", *STRETCHES)
    since = float(whole.timestamps[25])
    (part,) = PUSHES.of(replace(whole, attributes={**whole.attributes, CORRECTION_FROM: since}))
    assert part.id == "a@25-38"
    assert part.first_match == 0


def test_the_last_push_is_no_subtrajectory() -> None:
    assert PUSHES.of(pushed("a", (10, REST), (12, PUSH))) == []
    assert PUSHES.of(pushed("a", (10, REST), (12, PUSH), (2, REST))) == []


def test_a_short_pause_does_not_end_a_push_and_a_nudge_is_no_push() -> None:
    paused = pushed("a", (10, REST), (6, PUSH), (2, REST), (6, PUSH), (9, REST), (5, PUSH))
    assert [part.id for part in PUSHES.of(paused)] == ["a@0-24"]
    nudged = pushed("a", (10, REST), (1, (1.5, 0.0, 0.0)), (9, REST), (5, PUSH))
    assert PUSHES.of(nudged) == []


def test_a_long_approach_to_the_block_is_cut() -> None:
    (part,) = PUSHES.of(pushed("a", (LEAD + 15, REST), (12, PUSH), (6, REST), (5, PUSH)))
    assert part.id == f"a@15-{LEAD + 15 + 12}"


def test_an_angle_wrap_is_no_push() -> None:
    whole = pushed("a", (30, REST), (5, PUSH), angle=np.pi)
    whole.objects["block"][15:, 2] -= 2 * np.pi
    assert PUSHES.of(whole) == []


def test_the_last_actions_hold_the_position() -> None:
    whole = pushed("a", *STRETCHES)
    first, _ = PUSHES.of(whole)
    assert (first.actions[-2:] == whole.proprio[22]).all()
    assert np.array_equal(first.actions[:-2], whole.actions[:21])
    assert (whole.actions == whole.proprio + 7).all(), "the demonstration itself is unchanged"


def test_the_last_delta_actions_are_zero() -> None:
    changes = replace(PUSHT, action_mode="delta")
    whole = pushed("a", *STRETCHES)
    part = PUSHES.of(whole, changes)[0]
    assert not part.actions[-2:].any()
    assert np.array_equal(part.actions[:-2], whole.actions[: len(part) - 2])


def test_subtrajectories_name_their_demonstration_and_span() -> None:
    whole = pushed("me@home/3@0-22", *STRETCHES)  # an id in the format of a sub-trajectory
    parts = PUSHES.of(whole)
    assert whole.cut_from is None
    assert [part.cut_from for part in parts] == [Span(whole.id, 0, 23), Span(whole.id, 22, 39)]
    assert {part.scene_id for part in parts} == {whole.scene_id}, "the scene can be excluded with them"
    view = SubtrajectoryPool(MemoryPool([whole]), PUSHES).view()
    assert source_frame(view, FrameRef(parts[1].id, 3)) == FrameRef(whole.id, 25)
    assert source_frame(view, FrameRef(whole.id, 25)) == FrameRef(whole.id, 25)
    index = Retriever(SubtrajectoryPool(MemoryPool([whole]), PUSHES), *find_retrieval("pusht-object")).index()
    assert set(index.rows_of_origin) == {whole.id}


class Film(LazySequence[U8]):
    """Frames that hold their own number; records which of them were decoded."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.seen: list[int] = []

    def __len__(self) -> int:
        return self.length

    def _item(self, number: int) -> U8:
        self.seen.append(number)
        return np.full((2, 2, 3), number, np.uint8)


def test_images_are_frames_of_the_demonstration_decoded_on_access() -> None:
    bare = pushed("a", *STRETCHES)
    film = Film(len(bare))
    _, second = PUSHES.of(replace(bare, images={"top": film}))
    frames = second.images["top"]
    assert film.seen == []
    assert len(frames) == len(second)
    assert (frames[0][0, 0, 0], frames[-1][0, 0, 0]) == (22, 38)
    assert film.seen == [22, 38]
    with pytest.raises(IndexError):
        frames[len(second)]


def test_no_subtrajectories_without_the_object_or_with_3d_poses() -> None:
    whole = pushed("a", *STRETCHES)
    assert replace(PUSHES, object_name="can").of(whole) == []
    in_space = np.tile(whole.objects["block"][:, :1], (1, 7))
    assert PUSHES.of(replace(whole, objects={"block": in_space})) == []


def test_each_subtrajectory_of_an_expert_is_a_push_that_ends_at_its_goal(demo: Episode) -> None:
    parts = PUSHES.of(demo)
    assert len(parts) >= 2
    for part in parts:
        assert part.goal is not None
        assert part.objects["block"][-1, :2] == pytest.approx(part.goal[:2], abs=1e-3)
        assert np.ptp(part.objects["block"], axis=0).max() > 0.03, "it shows a push"


class Counting:
    """Describes as the inner describer does and records the episode ids."""

    def __init__(self, inner: TermDescriber) -> None:
        self.inner, self.fingerprint, self.dims = inner, inner.fingerprint, inner.dims
        self.described: list[str] = []

    def describe(self, episode: Episode) -> Mapping[str, F32]:
        self.described.append(episode.id)
        return self.inner.describe(episode)


@pytest.mark.parametrize("name", ["pusht-object", "pusht-world"])
def test_descriptors_equal_those_of_each_episode_alone(name: str, demo: Episode) -> None:
    describer, _ = find_retrieval(name)
    view = SubtrajectoryPool(
        MemoryPool([pushed("a", *STRETCHES), demo, random_episode("b", 1)]), PUSHES
    ).view()
    found = view.descriptors(describer)
    assert found.episode_ids == view.episode_ids
    assert len(view.episode_ids) > 3 + 2
    for i, episode_id in enumerate(view.episode_ids):
        alone = describer.describe(view.episode(episode_id))
        for term, values in alone.items():
            assert np.array_equal(found.terms[term][found.starts[i] : found.starts[i + 1]], values)
    assert view.descriptors(describer) is found


def test_an_empty_pool_has_no_subtrajectories() -> None:
    view = SubtrajectoryPool(MemoryPool(), PUSHES).view()
    assert view.episode_ids == ()
    assert view.descriptors(find_retrieval("pusht-object")[0]).starts.tolist() == [0]


def test_a_growing_pool_describes_only_new_subtrajectories() -> None:
    pool = MemoryPool([pushed("a", *STRETCHES)])
    source, describer = SubtrajectoryPool(pool, PUSHES), Counting(find_retrieval("pusht-object")[0])
    before = source.view()
    assert source.view() is before, "the view is cached while the pool is unchanged"
    before.descriptors(describer)
    pool.add(pushed("b", *STRETCHES))
    describer.described.clear()
    after = source.view()
    after.descriptors(describer)
    assert after.version == pool.view().version > before.version
    assert before.episode_ids == ("a", "a@0-22", "a@22-38")
    assert after.episode_ids == ("a", "b", "a@0-22", "a@22-38", "b@0-22", "b@22-38")
    assert after.episode("a@0-22") is before.episode("a@0-22")
    assert [i for i in describer.described if after.episode(i).cut_from is not None] == ["b@0-22", "b@22-38"]


def test_replacing_or_removing_a_demonstration_updates_its_subtrajectories() -> None:
    describer, _ = find_retrieval("pusht-object")
    old, new = pushed("a", *STRETCHES), pushed("a", *STRETCHES, angle=1.0)
    before = SubtrajectoryView(MemoryView([old, pushed("b", *STRETCHES)]), PUSHES, None)
    before.descriptors(describer)
    after = SubtrajectoryView(MemoryView([new], 2), PUSHES, before)
    assert after.episode_ids == ("a", "a@0-22", "a@22-38")
    fresh = SubtrajectoryView(MemoryView([new]), PUSHES, None).descriptors(describer)
    for term, values in after.descriptors(describer).terms.items():
        assert np.array_equal(values, fresh.terms[term])
    with pytest.raises(InputError):
        after.episode("b@0-22")


def test_a_goal_where_a_push_ended_matches_its_subtrajectory(demo: Episode) -> None:
    """The query's goal is a block pose after a push. Without sub-trajectories its match is farther."""
    part = PUSHES.of(demo)[-1]
    t = len(part) - 8
    asked = replace(part, id="query", proprio=part.proprio + 2)
    query = Query((observation_of(asked, t),), observation_of(asked, 0))
    pool = MemoryPool([demo, *(random_episode(f"other-{i}", i) for i in range(5))])
    found = Retriever(SubtrajectoryPool(pool, PUSHES), *find_retrieval("pusht-object")).retrieve(query)
    assert found.matches[0].ref == FrameRef(part.id, t)
    assert found.matches[0].distance == pytest.approx(8**0.5, abs=0.1)
    whole = Retriever(pool, *find_retrieval("pusht-object")).retrieve(query)
    assert whole.matches[0].distance > found.matches[0].distance


def test_excluding_a_demonstration_excludes_its_subtrajectories(demo: Episode) -> None:
    retriever = Retriever(SubtrajectoryPool(MemoryPool([demo]), PUSHES), *find_retrieval("pusht-object"))
    index = retriever.index()
    assert len(index.episode_ids) > 1
    for name in (demo.id, demo.scene_id):
        assert index.hidden_by(frozenset({name})) == list(range(len(index.episode_ids)))
