"""Retrieval for two arms: the task, the moment, and continuing the demonstration that is followed."""

from dataclasses import replace

import numpy as np
import pytest

from recap.pool.memory import MemoryPool
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.explain import query_at
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import Episode, FrameRef
from recap_worlds.dualarm.robot import TWO_ARMS
from two_arms import STEPS, lift_pot, place_in_box, pose

N = 12


def demonstrations() -> list[Episode]:
    rng = np.random.default_rng(0)
    made: list[Episode] = []
    for n in range(N):
        x, y = rng.uniform(-0.1, 0.1, 2)
        made.append(place_in_box(pose(-0.3 + x, 0.3 + y), pose(0.0, 0.5 + x), f"place {n}"))
        made.append(lift_pot(pose(x, 0.4 + y, angle=rng.uniform(-0.5, 0.5)), f"lift {n}"))
    return made


@pytest.fixture(scope="module")
def pool() -> MemoryPool:
    return MemoryPool(demonstrations())


@pytest.fixture(scope="module")
def query() -> Episode:
    return place_in_box(pose(-0.28, 0.36), pose(0.03, 0.53), "query")


def ask(pool: MemoryPool, episode: Episode, t: int, name: str, follow: FrameRef | None = None) -> FrameRef:
    retriever = Retriever(pool, *find_retrieval(name))
    found = retriever.retrieve(replace(query_at(episode, t), follow=follow))
    return found.matches[0].ref


@pytest.mark.parametrize("name", ["dualarm-world", "dualarm-parts"])
def test_the_task_is_recognised_by_words_and_objects(pool: MemoryPool, query: Episode, name: str) -> None:
    reworded = replace(query, task="drop that can into the box")
    assert all(ask(pool, reworded, t, name).episode_id.startswith("place") for t in range(0, len(query), 10))


def test_the_match_is_at_the_same_stage_of_the_task(pool: MemoryPool, query: Episode) -> None:
    found = [ask(pool, query, t, "dualarm-parts").t for t in range(len(query))]
    assert np.median(np.abs(np.array(found) - np.arange(len(query)))) <= 4


def test_following_a_demonstration_advances_through_a_pause(pool: MemoryPool, query: Episode) -> None:
    pause = 2 * STEPS + 1  # the tool rests on the can for a while
    first = ask(pool, query, pause, "dualarm-parts")
    later = FrameRef(first.episode_id, first.t + 8)
    went_on = ask(pool, query, pause, "dualarm-parts", follow=later)
    assert went_on.episode_id == first.episode_id
    assert first.t < went_on.t <= later.t


def test_conditioning_is_moved_to_the_object_in_the_world_frame(pool: MemoryPool, query: Episode) -> None:
    describer, config = find_retrieval("dualarm-parts")
    ref = ask(pool, query, 2 * STEPS - 5, "dualarm-parts")
    given = build_conditioning(pool.view(), [ref], query, 2 * STEPS - 5, config, TWO_ARMS)
    np.testing.assert_array_equal(given.frame, 0)
    np.testing.assert_allclose(given.now, query.proprio[2 * STEPS - 5])
    np.testing.assert_allclose(given.proprio[0, 0], given.now, atol=1e-5)
    away = np.linalg.norm(given.actions[0, :, :3] - query.objects["can"][0, :3], axis=1)
    assert away.min() < 0.005  # it ends at the query's can, not at the demonstration's
    assert len(describer.terms) == 7


def test_the_first_frame_matches_the_start_of_a_demonstration(pool: MemoryPool) -> None:
    nearly_done = place_in_box(pose(0.0, 0.47, 0.1), pose(0.0, 0.5), "query", start=np.array([0.0, 0.5, 0.2]))
    assert ask(pool, nearly_done, 0, "dualarm-parts").t < 2 * STEPS  # before anything is grasped
