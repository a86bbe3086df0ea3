"""The agent: retrieval with a policy or replay, while the pool changes."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from episodes import observation_of, random_episode
from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.body import Feature
from recap.errors import InputError
from recap.evaluation.agents import PixelPoses, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.policies.policy import Generators, TrainedPolicy
from recap.pool.memory import MemoryPool, MemoryView
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.types import F32, F64, U8, ActionChunk, Conditioning, Episode, Observation
from recap_worlds.pusht.collecting import CollectSpec, demonstrate
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.robot import PUSHT
from toy_policy import drawn, in_world, toy_config, toy_policy

TRIAL = Trial("0", 700)


def replay(pool: MemoryPool, name: str = "pusht-object", robot: RobotSpec | None = PUSHT) -> RetrievalAgent:
    return RetrievalAgent(Retriever(pool, *find_retrieval(name)), robot=robot)


@pytest.fixture(scope="module")
def demos() -> list[Episode]:
    spec = CollectSpec("disc", (-30.0, 45.0), 3, image_size=0)
    return [demonstrate(spec, demo) for demo in spec.demos()]


@pytest.mark.parametrize("name", ["world-oracle", "world", "object", "published"])
def test_replay_solves_a_scene_that_is_in_the_pool(name: str, demos: list[Episode]) -> None:
    agent = replay(MemoryPool(demos), f"pusht-{name}", robot=None)
    for demo in demos[:2]:
        env = PushTEnv(goal_angle=float(demo.attributes["goal_angle"]))
        env.reset(seed=int(demo.attributes["seed"]))
        agent.reset(0, TRIAL)
        assert any(env.step(agent.act([0], [env.observe()])[0])[2] for _ in range(300))


@pytest.mark.parametrize(
    ("name", "remembers"), [("world-oracle", True), ("world", True), ("published", False)]
)
def test_a_match_without_progress_is_avoided_except_in_the_published_retrieval(
    name: str, remembers: bool, demos: list[Episode]
) -> None:
    agent = replay(MemoryPool(demos), f"pusht-{name}")
    agent.reset(0, TRIAL)
    env = PushTEnv(goal_angle=-30.0)
    env.reset(seed=700)
    standing, found = env.observe(), set()
    for _ in range(5 * 8):  # the same observation for five chunks
        agent.act([0], [standing])
        seen = agent.retrieval(0)
        assert seen is not None
        found.add(seen.matches[0].ref)
    assert (len(found) > 1) == remembers


def test_replay_from_the_default_pool_solves_most_scenes() -> None:
    agent, options = AgentConfig(retrieval="object"), {"pusher": "triangle"}
    spec = EvalSpec(agent, "pusht", options, tasks=("-30", "15"), seeds=(510, 511, 512))
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 4))
    assert sum(r.first_step["0.85"] is not None for r in results) >= 5


def test_with_an_empty_pool_replay_holds() -> None:
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


def test_scenes_excluded_at_reset_are_not_retrieved() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(4)]
    agent = replay(MemoryPool(episodes))
    found = []
    for exclude in (frozenset[str](), frozenset({episodes[2].scene_id}), frozenset[str]()):
        agent.reset(0, TRIAL, exclude=exclude)
        agent.act([0], [observation_of(episodes[2], 0)])
        retrieved = agent.retrieval(0)
        assert retrieved is not None
        found.append(retrieved.matches[0].ref.episode_id)
    assert found[0] == found[2] == "demo-2"
    assert found[1] != "demo-2"


def test_an_empty_pool_without_robot_and_policy_is_an_error() -> None:
    agent = replay(MemoryPool(), robot=None)
    agent.reset(0, TRIAL)
    with pytest.raises(InputError, match="the pool is empty and there is no policy"):
        agent.act([0], [observation_of(random_episode("now", 0), 0)])


def test_a_demonstration_added_during_a_chunk_is_used_at_the_next_step() -> None:
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


def test_replan_returns_a_whole_chunk() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(6)]
    by_step, by_chunk = replay(MemoryPool(episodes)), replay(MemoryPool(episodes))
    for agent in (by_step, by_chunk):
        agent.reset(0, TRIAL)
    seen = observation_of(episodes[2], 4)
    chunk = by_chunk.replan([0], [seen])[0]
    assert chunk is not None
    assert chunk.shape == (8, 2)
    for action in chunk:
        assert np.array_equal(by_step.act([0], [seen])[0], action)
    by_chunk.replan([0], [seen])
    found = by_chunk.retrieval(0)
    assert found is not None
    assert found.matches[0].distance == pytest.approx(6.0, abs=0.1), "a match without progress is penalised"
    blind = replace(seen, objects={})
    assert by_chunk.replan([0], [blind]) == [None]
    by_chunk.release(0)
    assert by_chunk.retrieval(0) is None


def test_low_confidence_holds_stops_or_is_ignored_by_reaction() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(30)]
    stranger = random_episode("stranger", 999)
    stranger.proprio[:] += 3000
    agent = replay(MemoryPool(episodes))
    agent.reaction, agent.min_confidence = "hold", 0.1
    agent.reset(0, TRIAL)
    action = agent.act([0], [observation_of(stranger, 0)])[0]
    assert np.array_equal(action, stranger.proprio[0])
    sure = observation_of(episodes[0], 5)
    assert not np.array_equal(agent.act([0], [sure])[0], sure.proprio), (
        "it acts again when confidence is high"
    )
    agent.reaction = "stop"
    agent.reset(0, TRIAL)
    agent.act([0], [observation_of(stranger, 0)])
    assert np.array_equal(agent.act([0], [sure])[0], sure.proprio), "it holds for the rest of the episode"
    agent.reaction = "ignore"
    agent.reset(0, TRIAL)
    assert not np.array_equal(agent.act([0], [observation_of(stranger, 0)])[0], stranger.proprio[0])


def test_with_reaction_stop_an_empty_pool_holds_for_the_whole_episode() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(4)]
    pool = MemoryPool()
    agent = replay(pool)
    agent.reaction = "stop"
    agent.reset(0, TRIAL)
    agent.act([0], [observation_of(episodes[0], 0)])
    pool.add(*episodes)
    still = observation_of(episodes[0], 1)
    assert np.array_equal(agent.act([0], [still])[0], still.proprio)


def test_a_pool_too_small_for_calibration_has_nan_confidence_and_holds() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(3)]
    agent = replay(MemoryPool(episodes))
    agent.reaction, agent.min_confidence = "hold", 0.05
    agent.reset(0, TRIAL)
    moment = observation_of(episodes[0], 3)
    assert np.array_equal(agent.act([0], [moment])[0], moment.proprio)
    found = agent.retrieval(0)
    assert found is not None
    assert np.isnan(found.confidence)


def test_without_the_block_pose_the_agent_holds_until_it_returns() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(4)]
    agent = replay(MemoryPool(episodes))
    agent.reset(0, TRIAL)
    blind = replace(observation_of(episodes[0], 0), objects={})
    assert np.array_equal(agent.act([0], [blind])[0], blind.proprio)
    assert agent.retrieval(0) is None
    agent.act([0], [observation_of(episodes[0], 1)])
    assert agent.retrieval(0) is not None


def test_slots_are_independent() -> None:
    episodes = [random_episode(f"demo-{i}", i) for i in range(6)]
    together, alone = replay(MemoryPool(episodes)), replay(MemoryPool(episodes))
    for slot in (0, 1):
        together.reset(slot, TRIAL)
    alone.reset(0, TRIAL)
    for t in range(12):
        pair = together.act([0, 1], [observation_of(episodes[0], t), observation_of(episodes[3], t)])
        assert np.array_equal(pair[1], alone.act([0], [observation_of(episodes[3], t)])[0])


def test_with_pixels_no_pose_of_the_environment_reaches_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true poses are replaced by NaN, so only the images can be used."""
    board: dict[str, Any] = {"options": {"pusher": "triangle"}, "tasks": ("-30",), "seeds": (510, 511)}
    spec = EvalSpec(AgentConfig(), "pusht", **board, objects="pixels", max_steps=60)
    whole = PushTEnv.observe

    def poisoned(self: PushTEnv, image_size: int | None = None, with_poses: bool = True) -> object:
        seen = whole(self, image_size, with_poses)
        return replace(
            seen,
            objects={name: np.full(3, np.nan) for name in seen.objects},
            goal=None if seen.goal is None else np.full(3, np.nan),
        )

    monkeypatch.setattr(PushTEnv, "observe", poisoned)
    agent = make_agent(spec)
    assert isinstance(agent, PixelPoses)
    told: list[Trial] = []
    inner = agent.agent.reset
    monkeypatch.setattr(agent.agent, "reset", lambda slot, trial: (told.append(trial), inner(slot, trial)))
    results = list(run_trials(agent, spec, spec.trials(), 2))
    assert [r.outcome for r in results] == ["failure", "failure"]  # stopped at max_steps, not an error
    assert [trial.task for trial in told] == ["", ""], "the task key would reveal the goal"
    assert max(r.metrics["coverage"] for r in results) > 0.2, "the block was moved nevertheless"


ADD = """
import sys
from recap.pool.store import Pool
from recap.pool.importers import open_source
from pathlib import Path
Pool.open(sys.argv[1]).add(list(open_source(Path(sys.argv[2]))))
"""


def test_a_demonstration_added_by_another_process_is_used(tmp_path: Path, demos: list[Episode]) -> None:
    from recap.pool.lerobot import assemble, stage_episode
    from recap.pool.store import Pool

    pool = Pool.create(tmp_path / "pool")
    pool.add(demos[:2])
    staging = tmp_path / "staging"
    stage_episode(staging, 0, demos[4])
    assemble(staging, 1, tmp_path / "new")
    describer, config = find_retrieval("pusht-object")
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


class Watched:
    """A policy that records its calls."""

    def __init__(self, inner: TrainedPolicy) -> None:
        self.inner, self.config, self.stamp, self.fingerprint = (
            inner,
            inner.config,
            inner.stamp,
            inner.fingerprint,
        )
        self.served: list[int] = []
        self.encoded: list[int] = []

    def predict_action_chunk(
        self, observations: Sequence[Observation], given: Sequence[Conditioning], generator: Generators = None
    ) -> list[ActionChunk]:
        self.served.append(len(given))
        return self.inner.predict_action_chunk(observations, given, generator)

    def encode_frames(self, images: Sequence[U8], frames: Sequence[F64], cameras: Sequence[str]) -> F32:
        self.encoded.append(len(images))
        return self.inner.encode_frames(images, frames, cameras)


EPISODES = [drawn(random_episode(f"demo-{i}", i)) for i in range(6)]


def seen(episode: Episode, t: int) -> Observation:
    return replace(observation_of(episode, t), images={"top": episode.images["top"][t]})


def with_policy(policy: Any, pool: MemoryPool | None = None, **options: Any) -> RetrievalAgent:
    describer, config = find_retrieval("pusht-object")
    retriever = Retriever(pool or MemoryPool(EPISODES), describer, config)
    agent = RetrievalAgent(retriever, policy, **{"robot": PUSHT, **options})
    for slot in range(4):
        agent.reset(slot, Trial("0", 700 + slot))
    return agent


@pytest.fixture(scope="module")
def state_policy() -> TrainedPolicy:
    return toy_policy(toy_config(inputs="S"))


@pytest.fixture(scope="module")
def seeing_policy() -> TrainedPolicy:
    return toy_policy()


def test_all_slots_are_served_by_one_call_of_the_policy(state_policy: TrainedPolicy) -> None:
    policy = Watched(state_policy)
    agent = with_policy(policy)
    actions = agent.act([0, 1, 2], [seen(EPISODES[i], 0) for i in range(3)])
    assert policy.served == [3]
    assert actions.shape == (3, 2)
    assert agent.image_size is None, "this policy needs no images"
    alone = with_policy(state_policy).act([1], [seen(EPISODES[1], 0)])
    assert np.allclose(actions[1], alone[0], atol=1e-2), "other slots do not affect actions or noise"


def test_a_new_chunk_is_planned_after_n_action_steps(state_policy: TrainedPolicy) -> None:
    for n, options in ((8, {}), (2, {"n_action_steps": 2})):
        policy = Watched(state_policy)
        agent = with_policy(policy, **options)
        for t in range(9):
            agent.act([0], [seen(EPISODES[0], t)])
        assert len(policy.served) == -(-9 // n)
    with pytest.raises(InputError, match="n_action_steps 9 is not within 1…8"):
        with_policy(state_policy, n_action_steps=9)


def test_a_policy_without_retrieval_does_not_search(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = with_policy(toy_policy(toy_config(inputs="S", retrieval=False, residual=False)))
    monkeypatch.setattr(agent.retriever, "retrieve", lambda *_: pytest.fail("it would not look at it"))
    assert np.isfinite(agent.act([0], [seen(EPISODES[0], 0)])).all()
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches == ()


def test_retrieved_frames_are_encoded_only_once(seeing_policy: TrainedPolicy) -> None:
    policy = Watched(seeing_policy)
    agent = with_policy(policy)
    assert agent.image_size == 96
    agent.act([0, 1], [seen(EPISODES[2], 4)] * 2)
    assert policy.encoded == [2], "first and last frame of the chunk that both retrieved"
    plan = agent.plan(0)
    assert plan is not None
    assert plan.conditioning.latents is not None
    assert plan.conditioning.latents.shape == (2, 16, 2, 2)
    agent.reset(0, TRIAL)
    agent.act([0], [seen(EPISODES[2], 4)])
    assert policy.encoded == [2]
    assert policy.served == [2, 1]


def test_a_changed_demonstration_with_the_same_id_is_encoded_again(seeing_policy: TrainedPolicy) -> None:
    policy = Watched(seeing_policy)
    pool = MemoryPool(EPISODES[:1])
    agent = with_policy(policy, pool)
    agent.act([0], [seen(EPISODES[0], 4)])
    assert policy.encoded == [2]
    pool._view = MemoryView([replace(EPISODES[0], actions=EPISODES[0].actions + 1)], version=2)
    agent.reset(0, TRIAL)
    agent.act([0], [seen(EPISODES[0], 4)])
    assert policy.encoded == [2, 2]


def test_a_pool_change_between_two_slots_of_a_call_affects_neither(
    seeing_policy: TrainedPolicy,
) -> None:
    class Growing(MemoryPool):
        n_looks = 0

        def view(self) -> MemoryView:
            self.n_looks += 1
            if self.n_looks == 3:
                self.add(EPISODES[5])
            return super().view()

    agent = with_policy(seeing_policy, Growing(EPISODES[:4]))
    agent.act([0, 1], [seen(EPISODES[2], 4), seen(EPISODES[5], 4)])
    versions = [found.pool_version for slot in (0, 1) if (found := agent.retrieval(slot)) is not None]
    assert versions == [1, 2]


def test_a_pool_without_images_is_refused_by_a_policy_with_cameras(seeing_policy: TrainedPolicy) -> None:
    blind = MemoryPool([replace(episode, images={}) for episode in EPISODES])
    with pytest.raises(InputError, match=r"through camera 'top', and demonstration .* use a pool with"):
        with_policy(seeing_policy, blind).act([0], [seen(EPISODES[0], 0)])


def test_matching_none_and_random(state_policy: TrainedPolicy) -> None:
    moment = seen(EPISODES[0], 3)
    none = with_policy(state_policy, matching="none")
    none.act([0], [moment])
    plan = none.plan(0)
    assert plan is not None
    assert plan.conditioning.is_empty
    refs = set()
    for seed in range(5):
        agent = with_policy(state_policy, matching="random")
        agent.reset(0, Trial("0", seed))
        agent.act([0], [moment])
        found = agent.retrieval(0)
        assert found is not None
        refs.add(found.matches[0].ref)
    assert len(refs) > 2


def test_a_random_match_is_determined_by_the_trial() -> None:
    refs = []
    for _ in range(2):
        agent = with_policy(None, matching="random")
        agent.act([0], [seen(EPISODES[0], 3)])
        found = agent.retrieval(0)
        assert found is not None
        refs.append(found.matches[0].ref)
    assert refs[0] == refs[1]


def test_without_the_residual_a_policy_equals_replay(state_policy: TrainedPolicy) -> None:
    agent, plain = with_policy(state_policy, residual=False), replay(MemoryPool(EPISODES))
    plain.reset(0, TRIAL)
    for t in range(8):
        moment = seen(EPISODES[1], t)
        assert np.array_equal(agent.act([0], [moment]), plain.act([0], [moment]))
    learned = with_policy(state_policy).act([0], [seen(EPISODES[1], 0)])
    assert not np.allclose(learned, replay(MemoryPool(EPISODES)).act([0], [seen(EPISODES[1], 0)]))


@pytest.mark.parametrize(("times", "share"), [(1e-4, 1.0), (0.5, 0.8), (1.0, 0.5), (2.0, 0.2), (1e4, 0.0)])
def test_residual_halflife_scales_the_residual_by_match_distance(
    state_policy: TrainedPolicy, times: float, share: float
) -> None:
    moment = seen(EPISODES[1], 0)
    moment = replace(moment, proprio=moment.proprio + 20)
    whole = with_policy(state_policy)
    whole.act([0], [moment])
    plan, found = whole.plan(0), whole.retrieval(0)
    assert plan is not None
    assert found is not None
    weighed = with_policy(state_policy, residual_halflife=times * found.matches[0].distance)
    weighed.act([0], [moment])
    other = weighed.plan(0)
    assert other is not None
    assert np.abs(plan.chunk.residual).max() > 0.1
    np.testing.assert_allclose(other.chunk.residual, share * plan.chunk.residual, atol=2e-3)
    base = plan.chunk.actions - plan.chunk.residual
    np.testing.assert_allclose(other.chunk.actions, base + other.chunk.residual, atol=1e-3)


def test_without_a_match_residual_halflife_does_not_change_the_actions(state_policy: TrainedPolicy) -> None:
    alone = [
        with_policy(state_policy, matching="none", residual_halflife=d).act([0], [seen(EPISODES[1], 0)])
        for d in (0, 15)
    ]
    assert np.array_equal(*alone)
    with pytest.raises(InputError, match="residual_halflife -1"):
        with_policy(state_policy, residual_halflife=-1)


def test_a_policy_of_another_retrieval_or_robot_is_refused(state_policy: TrainedPolicy) -> None:
    with pytest.raises(InputError, match="'pusht-world' and this is 'pusht-object'"):
        with_policy(toy_policy(toy_config(inputs="S", **in_world())))
    wide = [replace(e, actions=np.zeros((len(e), 3), np.float32)) for e in EPISODES]
    with pytest.raises(InputError, match=r"the pool has 3-D actions .* it is of another robot"):
        with_policy(state_policy, MemoryPool(wide)).act([0], [seen(EPISODES[0], 0)])


@pytest.mark.parametrize("reaction", ["hold", "ignore"])
def test_with_a_pool_emptied_during_an_episode_the_agent_holds_or_acts_alone(
    reaction: str, state_policy: TrainedPolicy
) -> None:
    pool = MemoryPool(EPISODES)
    agent = with_policy(state_policy, pool, reaction=reaction)
    agent.act([0], [seen(EPISODES[0], 0)])
    pool._view = MemoryView([], pool.view().version + 1)
    for t in range(1, 4):
        moment = seen(EPISODES[0], t)
        action = agent.act([0], [moment])[0]
        assert np.isfinite(action).all()
        assert np.array_equal(action, moment.proprio) == (reaction == "hold")


def test_actions_stay_within_the_limits_of_the_robot(state_policy: TrainedPolicy) -> None:
    near = replace(PUSHT, proprio=(Feature("position", "position", 2, "px", (250.0, 260.0)),), action=())
    for agent in (with_policy(state_policy, robot=near), with_policy(None, robot=near)):
        for t in range(8):
            action = agent.act([0], [seen(EPISODES[0], t)])
            assert ((action >= 250) & (action <= 260)).all()
        (chunk,) = agent.replan([0], [seen(EPISODES[0], 8)])
        assert chunk is not None
        assert ((chunk >= 250) & (chunk <= 260)).all()


def test_a_pool_of_another_described_robot_is_refused_by_feature(state_policy: TrainedPolicy) -> None:
    pool = MemoryPool(EPISODES)
    other = replace(PUSHT, proprio=(Feature("tool", "position", 2, "m"),), action=(), max_step={})
    pool.view().robot = other  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"'tool' \(position, 2 m\)"):
        with_policy(state_policy, pool).act([0], [seen(EPISODES[0], 0)])
    pool.view().robot = PUSHT  # type: ignore[attr-defined]
    with_policy(state_policy, pool).act([0], [seen(EPISODES[0], 0)])


def test_a_chunk_with_nan_is_an_error(state_policy: TrainedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Watched(state_policy)
    broken = ActionChunk(np.full((8, 2), np.nan, np.float32), np.zeros((8, 2), np.float32))
    monkeypatch.setattr(policy, "predict_action_chunk", lambda *_: [broken])
    with pytest.raises(InputError, match="not finite"):
        with_policy(policy).act([0], [seen(EPISODES[0], 0)])


def test_with_an_empty_pool_an_agent_holds_unless_it_may_act_without_retrieval(
    state_policy: TrainedPolicy,
) -> None:
    moment = seen(EPISODES[0], 0)
    holding = {
        "a policy": with_policy(state_policy, MemoryPool([])),
        "replay": with_policy(None, MemoryPool([])),
        "replay that ignores it": with_policy(None, MemoryPool([]), reaction="ignore"),
    }
    for name, agent in holding.items():
        assert np.array_equal(agent.act([0], [moment])[0], moment.proprio), name
    alone = toy_policy(toy_config(inputs="S", retrieval=False, residual=False))
    acting = {
        "told to": with_policy(state_policy, MemoryPool([]), reaction="ignore"),
        "told to go without a match": with_policy(state_policy, matching="none"),
        "never retrieves": with_policy(alone, MemoryPool([])),
    }
    for name, agent in acting.items():
        assert not np.array_equal(agent.act([0], [moment])[0], moment.proprio), name


def test_without_the_residual_a_policy_replans_at_the_end_of_a_demonstration(
    state_policy: TrainedPolicy,
) -> None:
    without, plain, learned = (
        with_policy(policy, residual=residual)
        for policy, residual in ((state_policy, False), (None, True), (state_policy, True))
    )
    n_plans = {"without": 0, "learned": 0}
    for t in (*range(len(EPISODES[1]) - 5, len(EPISODES[1])), *[len(EPISODES[1]) - 1] * 8):
        moment = seen(EPISODES[1], t)
        before = without.plan(0), learned.plan(0)
        assert np.array_equal(without.act([0], [moment]), plain.act([0], [moment]))
        learned.act([0], [moment])
        n_plans["without"] += without.plan(0) is not before[0]
        n_plans["learned"] += learned.plan(0) is not before[1]
    assert n_plans["learned"] == 2, "with the residual all eight actions are executed"
    assert n_plans["without"] > 2, "replay ends with the demonstration and plans again"
