"""The replay agent: retrieval without learning, alive to changes of the pool."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from episodes import observation_of, random_episode
from recap.agent import RetrievalAgent
from recap.collection import CollectSpec, demonstrate
from recap.envs.pusht.env import PushTEnv
from recap.evaluation.agents import Eyes, Trial, make_agent
from recap.evaluation.rollouts import EvalSpec, run_trials
from recap.pool.memory import MemoryPool
from recap.retrieval.presets import preset
from recap.retrieval.retriever import Retriever
from recap.types import Episode

TRIAL = Trial("0", 0.0, 700)


def replay(pool: MemoryPool, mode: str = "aligned", **changes: object) -> RetrievalAgent:
    describer, config = preset(f"pusht-{mode}")
    return RetrievalAgent(Retriever(pool, describer, replace(config, **changes)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def demos() -> list[Episode]:
    spec = CollectSpec("disc", (-30.0, 45.0), 3, image_size=0)
    return [demonstrate(spec, demo) for demo in spec.demos()]


@pytest.mark.parametrize("mode", ["oracle", "single", "aligned", "published"])
def test_solves_a_scene_it_has_a_demonstration_of(mode: str, demos: list[Episode]) -> None:
    agent = replay(MemoryPool(demos), mode)
    for demo in demos[:2]:
        env = PushTEnv(goal_angle=float(demo.attributes["goal_angle"]))
        env.reset(seed=int(demo.attributes["seed"]))
        agent.reset(0, TRIAL)
        assert any(env.step(agent.act([0], [env.observe()])[0])[2] for _ in range(300))


def test_standard_pool_and_modes_through_the_harness() -> None:
    spec = EvalSpec("replay", pusher="triangle", angles=(-30.0, 15.0), seeds=(510, 511, 512), mode="aligned")
    results = list(run_trials(make_agent("replay", spec), spec, spec.trials(), 4))
    assert sum(r.first_step["0.85"] is not None for r in results) >= 5


def test_an_empty_pool_holds_still() -> None:
    agent = replay(MemoryPool())
    env = PushTEnv()
    env.reset(seed=700)
    agent.reset(0, TRIAL)
    before = env.observe()
    for _ in range(5):
        env.step(agent.act([0], [env.observe()])[0])
    assert np.array_equal(env.observe().proprio, before.proprio)
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches == ()


def test_a_demonstration_added_in_mid_chunk_is_used_at_the_next_step() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(8)]
    pool = MemoryPool(episodes[:4])
    agent = replay(pool)
    agent.reset(0, TRIAL)
    for t in range(3):
        agent.act([0], [observation_of(episodes[6], t)])
    pool.add(episodes[6])
    agent.act([0], [observation_of(episodes[6], 3)])
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches[0].ref.episode_id == "demo-6"


def test_low_confidence_may_hold_instead() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(30)]
    stranger = random_episode("stranger", 999)
    stranger.proprio[:] += 3000
    agent = replay(MemoryPool(episodes))
    agent.reaction, agent.min_confidence = "hold", 0.1
    agent.reset(0, TRIAL)
    action = agent.act([0], [observation_of(stranger, 0)])[0]
    assert np.array_equal(action, stranger.proprio[0])
    sure = observation_of(episodes[0], 5)
    assert not np.array_equal(agent.act([0], [sure])[0], sure.proprio), "it goes on when it is sure again"
    agent.reaction = "stop"
    agent.reset(0, TRIAL)
    agent.act([0], [observation_of(stranger, 0)])
    assert np.array_equal(agent.act([0], [sure])[0], sure.proprio), "it does not"
    agent.reaction = "ignore"
    agent.reset(0, TRIAL)
    assert not np.array_equal(agent.act([0], [observation_of(stranger, 0)])[0], stranger.proprio[0])


def test_an_empty_pool_may_stop_the_episode_for_good() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(4)]
    pool = MemoryPool()
    agent = replay(pool)
    agent.reaction = "stop"
    agent.reset(0, TRIAL)
    agent.act([0], [observation_of(episodes[0], 0)])
    pool.add(*episodes)
    still = observation_of(episodes[0], 1)
    assert np.array_equal(agent.act([0], [still])[0], still.proprio)


def test_a_pool_too_small_to_calibrate_is_unsure() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(3)]
    agent = replay(MemoryPool(episodes))
    agent.reaction, agent.min_confidence = "hold", 0.05
    agent.reset(0, TRIAL)
    moment = observation_of(episodes[0], 3)
    assert np.array_equal(agent.act([0], [moment])[0], moment.proprio)
    found = agent.retrieval(0)
    assert found is not None
    assert np.isnan(found.confidence)


def test_a_lost_block_is_waited_for() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(4)]
    agent = replay(MemoryPool(episodes))
    agent.reset(0, TRIAL)
    blind = replace(observation_of(episodes[0], 0), objects={})
    assert np.array_equal(agent.act([0], [blind])[0], blind.proprio)
    assert agent.retrieval(0) is None
    agent.act([0], [observation_of(episodes[0], 1)])
    assert agent.retrieval(0) is not None


def test_slots_do_not_see_each_other() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(6)]
    together, alone = replay(MemoryPool(episodes)), replay(MemoryPool(episodes))
    for slot in (0, 1):
        together.reset(slot, TRIAL)
    alone.reset(0, TRIAL)
    for t in range(12):
        pair = together.act([0, 1], [observation_of(episodes[0], t), observation_of(episodes[3], t)])
        assert np.array_equal(pair[1], alone.act([0], [observation_of(episodes[3], t)])[0])


def test_with_pixels_no_pose_of_the_environment_reaches_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true poses are poisoned on their way out; the pixels are all there is."""
    spec = EvalSpec(
        "replay", pusher="triangle", angles=(-30.0,), seeds=(510, 511), objects="pixels", max_steps=60
    )
    whole = PushTEnv.observe

    def poisoned(self: PushTEnv, image_size: int | None = None, with_poses: bool = True) -> object:
        seen = whole(self, image_size, with_poses)
        return replace(
            seen,
            objects={name: np.full(3, np.nan) for name in seen.objects},
            goal=None if seen.goal is None else np.full(3, np.nan),
        )

    monkeypatch.setattr(PushTEnv, "observe", poisoned)
    agent = make_agent("replay", spec)
    assert isinstance(agent, Eyes)
    told: list[Trial] = []
    inner = agent.agent.reset
    monkeypatch.setattr(agent.agent, "reset", lambda slot, trial: (told.append(trial), inner(slot, trial)))
    results = list(run_trials(agent, spec, spec.trials(), 2))
    assert [r.outcome for r in results] == ["failure", "failure"]  # cut short, not in error
    assert all(np.isnan(trial.goal_angle) and not trial.task for trial in told)
    assert max(r.max_coverage for r in results) > 0.2, "it moved the block all the same"


ADD = """
import sys
from recap.pool.store import Pool
from recap.pool.lerobot import LeRobotDataset
from pathlib import Path
Pool.open(sys.argv[1]).add(list(LeRobotDataset.open(Path(sys.argv[2]))))
"""


def test_another_process_appends_and_the_running_agent_uses_it(tmp_path: Path, demos: list[Episode]) -> None:
    from recap.pool.lerobot import assemble, stage_episode
    from recap.pool.store import Pool

    pool = Pool.create(tmp_path / "pool")
    pool.add(demos[:2])
    staging = tmp_path / "staging"
    stage_episode(staging, 0, demos[4])
    assemble(staging, 1, tmp_path / "new")
    describer, config = preset("pusht-aligned")
    agent = RetrievalAgent(Retriever(Pool.open(tmp_path / "pool"), describer, config))
    env = PushTEnv(goal_angle=float(demos[4].attributes["goal_angle"]))
    env.reset(seed=int(demos[4].attributes["seed"]))
    agent.reset(0, TRIAL)
    agent.act([0], [env.observe()])
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches[0].ref.episode_id != demos[4].id
    subprocess.run([sys.executable, "-c", ADD, str(tmp_path / "pool"), str(tmp_path / "new")], check=True)
    agent.act([0], [env.observe()])
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches[0].ref.episode_id == demos[4].id
