"""Trials of many starts at once, and examples for an empty pool."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opened import Opened
from test_running import replaying
from test_teaching import EASY, taught_by_expert

from recap.errors import InputError
from recap.evaluation.statistics import wilson
from recap.pool.store import Pool
from recap_apps.studio.examples import N_EXAMPLES, add_examples
from recap_apps.studio.running import Run
from recap_apps.studio.task import SOLVED, Task
from recap_apps.studio.trials import Trials
from recap_worlds.pusht.tasks import MAX_STEPS


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool.create(tmp_path / "pool")


def all_of(trials: Trials) -> list[dict[str, Any]]:
    ended = []
    while not trials.is_over:
        ended += trials.advance(50)
    return ended


def test_with_an_empty_pool_every_trial_ends_without_success(pool: Pool) -> None:
    trials = Trials(EASY, 3, pool.view(), replaying)
    ended = all_of(trials)
    assert sorted(each["start"] for each in ended) == [151, 152, 153]
    told = trials.summary()
    assert (told["ended"], told["reached"], trials.t) == (3, 0, MAX_STEPS)
    assert (told["low"], told["high"]) == tuple(round(bound, 3) for bound in wilson(0, 3))


def test_a_trial_equals_a_run_from_the_same_start(pool: Pool) -> None:
    teaching = taught_by_expert()
    pool.add([teaching.episode("shown", 0, len(teaching))])
    run = Run(EASY, pool, replaying)
    coverage = []
    while not run.is_over:
        coverage.append(run.advance()[0]["coverage"])
    trials = Trials(EASY, 2, pool.view(), replaying)
    first = next(each for each in all_of(trials) if each["start"] == EASY.start)
    assert first["best"] == pytest.approx(max(coverage), abs=1e-4)
    assert first["last"] == pytest.approx(coverage[-1], abs=1e-4)
    assert first["at"] == pytest.approx(coverage.index(max(coverage)) / 10)
    assert first["reached"] == (max(coverage) > SOLVED)


def test_additions_to_the_pool_do_not_affect_running_trials(pool: Pool) -> None:
    trials = Trials(EASY, 1, pool.view(), replaying)
    trials.advance()
    teaching = taught_by_expert()
    pool.add([teaching.episode("late", 0, len(teaching))])
    assert all_of(trials)[0]["best"] == all_of(Trials(EASY, 1, pool.view_at(1), replaying))[0]["best"]


def test_examples_are_those_nearest_to_the_goal_angle(pool: Pool) -> None:
    assert add_examples(pool, Task("tee", 30.0, 0)) == 2
    angles = [float(episode.attributes["goal_angle"]) for episode in pool]
    assert len(angles) == N_EXAMPLES
    assert max(abs(angle - 30) for angle in angles) <= 15
    assert add_examples(pool, Task("tee", 30.0, 0)) == 2  # nothing is added twice
    with pytest.raises(InputError):
        add_examples(pool, Task("cup", 30.0, 0))


def test_trials_run_over_the_websocket_and_can_be_stopped(tmp_path: Path) -> None:
    Pool.create(tmp_path / "pool")
    with Opened(tmp_path / "pool") as opened:

        async def main() -> tuple[dict[str, Any], list[dict[str, Any]]]:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{opened.url}api/studio/trials") as socket,
            ):
                await socket.send_json({"type": "begin", "block": "tee", "angle": 30, "start": 5, "n": 0})
                refused = json.loads(await socket.receive_str(timeout=120))
                await socket.send_json({"type": "begin", "block": "tee", "angle": 30, "start": 5, "n": 2})
                told = [json.loads(await socket.receive_str(timeout=300)) for _ in range(3)]
                await socket.send_json({"type": "stop"})
                while not told[-1].get("over"):
                    told.append(json.loads(await socket.receive_str(timeout=300)))
                return refused, told

        refused, told = asyncio.run(main())
    assert refused["type"] == "error"
    assert [one["n"] for one in told] == [2] * len(told)
    assert told[-1]["over"]
    assert told[-1]["ended"] < 2  # stopped before all trials ended
