"""Runs of the frozen policy in the studio."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_teaching import EASY, taught_by_expert

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, assemble_agent
from recap.errors import InputError
from recap.pictures import encode_png
from recap.pool.store import Pool
from recap.pool.view import PoolSource
from recap.suites import Options
from recap.types import Episode
from recap_apps.studio.running import Run
from recap_apps.studio.task import Task
from recap_client.corrections import N_CONTEXT
from recap_worlds.pusht.retrieval import PUSHES
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.suite import PushTSuite
from toy_policy import toy_policy

SUITE = PushTSuite()


def replaying(source: PoolSource, options: Options) -> RetrievalAgent:
    config = AgentConfig("replay", subtrajectories=True)
    return assemble_agent(config, source, robot=PUSHT, context=SUITE.context(options), suite=SUITE)


@pytest.fixture(scope="module")
def taught() -> Episode:
    teaching = taught_by_expert()
    return teaching.episode("shown", 0, len(teaching))


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool.create(tmp_path / "pool")


def test_with_an_empty_pool_the_run_holds(pool: Pool) -> None:
    run = Run(EASY, pool, replaying)
    steps = [run.advance()[0] for _ in range(10)]
    assert all(step["holding"] for step in steps)
    assert all("plan" not in step for step in steps)
    assert {tuple(step["pusher"]) for step in steps} == {tuple(steps[0]["pusher"])}
    assert [step["t"] for step in steps] == list(range(10))


def test_an_addition_is_used_at_the_next_step_except_by_a_pinned_version(pool: Pool, taught: Episode) -> None:
    run = Run(EASY, pool, replaying, [1, None])
    for _ in range(3):
        assert all(step["holding"] for step in run.advance())
    pool.add([taught])
    before, now = run.advance()
    assert before["holding"]
    assert before["pool_version"] == 1
    assert "holding" not in now
    assert now["pool_version"] == 2
    assert now["plan"]["episode"] == "studio/shown"
    for _ in range(20):
        before, now = run.advance()
    assert before["pusher"] == run.lanes[0].env.state()[:2].round(2).tolist()
    assert np.hypot(*np.subtract(now["pusher"], before["pusher"])) > 20
    pool.remove(["studio/shown"])
    assert run.advance()[1]["holding"]


def test_a_plan_has_its_source_frames_and_costs(pool: Pool, taught: Episode) -> None:
    pool.add([taught])
    run = Run(EASY, pool, replaying)
    plans = [plan for _ in range(60) for step in run.advance() if (plan := step.get("plan"))]
    assert len(plans) >= 5
    kept = pool.get("studio/shown")
    for plan in plans:
        assert plan["episode"] == "studio/shown"
        assert 0 <= plan["first"] <= plan["last"] < len(kept)
        assert set(plan["costs"]) == {"proprio", "object", "turn"}
        assert plan["confidence"] is None  # unknown with one demonstration
        assert plan["foreseen"] is None  # replay predicts no future
        for t, shown in zip((plan["first"], plan["last"]), plan["frames"], strict=True):
            png = b64encode(encode_png(kept.images["top"][t])).decode()
            assert shown == f"data:image/png;base64,{png}"
    first = plans[0]
    assert first["first"] == 0
    assert first["distance"] < 1  # the same start
    assert first["executed"] == first["retrieved"]
    np.testing.assert_allclose(first["retrieved"], kept.actions[: len(first["retrieved"])], atol=0.2)


def test_replaying_the_same_start_solves_it_and_ends(pool: Pool, taught: Episode) -> None:
    pool.add([taught])
    run = Run(EASY, pool, replaying)
    last = None
    while not run.is_over:
        last = run.advance()[0]
    assert last is not None
    assert last["end"] in ("solved", "unsolved")
    assert (last["end"] == "solved") == (last["best"] > 0.85)
    assert last["t"] <= 300
    assert run.advance() == []


def test_a_symmetric_block_retrieves_across_equal_goal_angles(pool: Pool) -> None:
    task = Task("plus", 10.0, 2)
    teaching = taught_by_expert(task)
    pool.add([teaching.episode("a plus", 0, len(teaching))])
    run = Run(replace(task, angle=10.0 + 90.0), pool, replaying)  # the same goal at an equivalent angle
    plan = run.advance()[0]["plan"]
    assert plan["episode"] == "studio/a plus"
    assert plan["distance"] < 1


def test_a_policys_plan_has_its_predicted_future(pool: Pool, taught: Episode) -> None:
    policy = toy_policy()

    def acting(source: PoolSource, options: Options) -> RetrievalAgent:
        return assemble_agent(AgentConfig("toy"), source, policy, context=SUITE.context(options), suite=SUITE)

    pool.add([taught])
    run = Run(EASY, pool, acting)
    plan = run.advance()[0]["plan"]
    assert plan["foreseen"].startswith("data:image/png;base64,")
    assert len(plan["executed"]) == policy.config.n_action_steps
    assert plan["executed"] != plan["retrieved"]


def test_a_match_in_a_subtrajectory_is_reported_in_the_whole_demonstration(
    pool: Pool, taught: Episode
) -> None:
    pool.add([taught])
    (part,) = PUSHES.of(pool.get("studio/shown"))
    assert part.cut_from is not None
    t = len(part) // 2
    run = Run(EASY, pool, replaying)
    (lane,) = run.lanes
    lane.env.reset(options={"reset_to_state": [*part.proprio[t], *part.objects["block"][t]]})
    lane.env.goal_pose = np.asarray(part.goal, np.float64)
    plan = run.advance()[0]["plan"]
    found = lane.agent.plan(0)
    assert found is not None
    assert (
        found.conditioning.refs[0].episode_id == part.id
    )  # the subtrajectory's goal fits better than the whole's
    assert plan["episode"] == "studio/shown"
    assert plan["first"] == part.cut_from.begin + found.conditioning.refs[0].t


def dragged(run: Run, lane: int, n: int, by: tuple[float, float] = (10.0, 5.0)) -> list[dict[str, Any]]:
    """Drags the pusher of a lane for n steps; returns what the lane showed."""
    shown = []
    for _ in range(n):
        x, y = run.lanes[lane].env.agent.position
        run.point(lane, x + by[0], y + by[1])
        shown += [step for step in run.advance() if step["lane"] == lane]
    return shown


def test_a_correction_is_stored_and_used_at_the_next_step(pool: Pool) -> None:
    run = Run(EASY, pool, replaying)
    for _ in range(12):
        assert run.advance()[0]["holding"]
    shown = dragged(run, 0, 15)
    assert all(step["person"] for step in shown)
    assert shown[-1]["pusher"][0] > shown[0]["pusher"][0] + 40
    kept = run.hand_back(0)
    assert kept is not None
    episode, version = kept
    assert (version, pool.ids()) == (2, (f"studio/{EASY}, correction",))
    assert (episode.embodiment, episode.scene_id, episode.success) == ("triangle", EASY.scene_id, False)
    assert len(episode) == 1 + N_CONTEXT + 15
    assert episode.first_match == 1 + N_CONTEXT
    np.testing.assert_allclose(episode.actions[8:, 0], episode.proprio[8:, 0] + 10, atol=12)
    (now,) = run.advance()
    assert (now["pool_version"], now["plan"]["episode"]) == (2, episode.id)
    assert now["plan"]["first"] >= episode.first_match
    dragged(run, 0, 10)
    second = run.hand_back(0)
    assert second is not None
    assert second[0].id == f"studio/{EASY}, correction 2"


def test_only_a_live_lane_is_corrected_and_a_short_takeover_is_dropped(pool: Pool) -> None:
    run = Run(EASY, pool, replaying, [1, None])
    with pytest.raises(InputError, match="as it was"):
        run.point(0, 100.0, 100.0)
    with pytest.raises(InputError, match="as it was"):
        run.point(2, 100.0, 100.0)
    assert run.hand_back(1) is None
    dragged(run, 1, 3)
    assert run.hand_back(1) is None
    assert len(pool) == 0
    assert run.advance()[1]["holding"]  # the policy is back in control


def test_a_plan_from_before_a_takeover_is_discarded(pool: Pool, taught: Episode) -> None:
    pool.add([taught])
    run = Run(EASY, pool, replaying)
    run.advance()
    dragged(run, 0, 3, (-12.0, 0.0))
    assert run.hand_back(0) is None
    (now,) = run.advance()
    assert "plan" in now  # retrieved again although the pool is unchanged
