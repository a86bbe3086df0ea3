"""The agent: retrieval with a policy or without learning, alive to changes of the pool."""

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
def test_solves_a_scene_it_has_a_demonstration_of(name: str, demos: list[Episode]) -> None:
    agent = replay(MemoryPool(demos), f"pusht-{name}", robot=None)
    for demo in demos[:2]:
        env = PushTEnv(goal_angle=float(demo.attributes["goal_angle"]))
        env.reset(seed=int(demo.attributes["seed"]))
        agent.reset(0, TRIAL)
        assert any(env.step(agent.act([0], [env.observe()])[0])[2] for _ in range(300))


@pytest.mark.parametrize(
    ("name", "remembers"), [("world-oracle", True), ("world", True), ("published", False)]
)
def test_a_moment_that_led_nowhere_is_left_alone_except_as_published(
    name: str, remembers: bool, demos: list[Episode]
) -> None:
    agent = replay(MemoryPool(demos), f"pusht-{name}")
    agent.reset(0, TRIAL)
    env = PushTEnv(goal_angle=-30.0)
    env.reset(seed=700)
    standing, found = env.observe(), set()
    for _ in range(5 * 8):  # the same sight, five chunks long
        agent.act([0], [standing])
        seen = agent.retrieval(0)
        assert seen is not None
        found.add(seen.matches[0].ref)
    assert (len(found) > 1) == remembers


def test_standard_pool_and_retrieval_through_the_harness() -> None:
    agent, options = AgentConfig(retrieval="object"), {"pusher": "triangle"}
    spec = EvalSpec(agent, "pusht", options, tasks=("-30", "15"), seeds=(510, 511, 512))
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 4))
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


def test_what_is_excluded_at_the_start_of_an_episode_is_not_retrieved_in_it() -> None:
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


def test_an_empty_pool_and_no_robot_say_nothing_of_actions() -> None:
    agent = replay(MemoryPool(), robot=None)
    agent.reset(0, TRIAL)
    with pytest.raises(InputError, match="the pool is empty and there is no policy"):
        agent.act([0], [observation_of(random_episode("now", 0), 0)])


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


def test_a_chunk_may_be_planned_on_demand() -> None:
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
    assert found.matches[0].distance == pytest.approx(6.0, abs=0.1), "a match that led nowhere is avoided"
    blind = replace(seen, objects={})
    assert by_chunk.replan([0], [blind]) == [None]
    by_chunk.release(0)
    assert by_chunk.retrieval(0) is None


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
    assert [r.outcome for r in results] == ["failure", "failure"]  # cut short, not in error
    assert [trial.task for trial in told] == ["", ""], "the task's key is the goal"
    assert max(r.metrics["coverage"] for r in results) > 0.2, "it moved the block all the same"


ADD = """
import sys
from recap.pool.store import Pool
from recap.pool.importers import open_source
from pathlib import Path
Pool.open(sys.argv[1]).add(list(open_source(Path(sys.argv[2]))))
"""


def test_another_process_appends_and_the_running_agent_uses_it(tmp_path: Path, demos: list[Episode]) -> None:
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
    """A policy that counts how it is called."""

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


def test_one_call_of_the_policy_serves_all_slots(state_policy: TrainedPolicy) -> None:
    policy = Watched(state_policy)
    agent = with_policy(policy)
    actions = agent.act([0, 1, 2], [seen(EPISODES[i], 0) for i in range(3)])
    assert policy.served == [3]
    assert actions.shape == (3, 2)
    assert agent.image_size is None, "it needs no images"
    alone = with_policy(state_policy).act([1], [seen(EPISODES[1], 0)])
    assert np.allclose(actions[1], alone[0], atol=1e-2), "neighbours do not matter, noise included"


def test_n_action_steps_is_how_long_a_chunk_lasts(state_policy: TrainedPolicy) -> None:
    for n, options in ((8, {}), (2, {"n_action_steps": 2})):
        policy = Watched(state_policy)
        agent = with_policy(policy, **options)
        for t in range(9):
            agent.act([0], [seen(EPISODES[0], t)])
        assert len(policy.served) == -(-9 // n)
    with pytest.raises(InputError, match="n_action_steps 9 is not within 1…8"):
        with_policy(state_policy, n_action_steps=9)


def test_a_policy_that_retrieves_nothing_searches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = with_policy(toy_policy(toy_config(inputs="S", retrieval=False, residual=False)))
    monkeypatch.setattr(agent.retriever, "retrieve", lambda *_: pytest.fail("it would not look at it"))
    assert np.isfinite(agent.act([0], [seen(EPISODES[0], 0)])).all()
    found = agent.retrieval(0)
    assert found is not None
    assert found.matches == ()


def test_retrieved_frames_are_encoded_once(seeing_policy: TrainedPolicy) -> None:
    policy = Watched(seeing_policy)
    agent = with_policy(policy)
    assert agent.image_size == 96
    agent.act([0, 1], [seen(EPISODES[2], 4)] * 2)
    assert policy.encoded == [2], "first and last frame of the one chunk that both retrieved"
    plan = agent.plan(0)
    assert plan is not None
    assert plan.conditioning.latents is not None
    assert plan.conditioning.latents.shape == (2, 16, 2, 2)
    agent.reset(0, TRIAL)
    agent.act([0], [seen(EPISODES[2], 4)])
    assert policy.encoded == [2]
    assert policy.served == [2, 1]


def test_another_demonstration_under_an_old_name_is_looked_at_anew(seeing_policy: TrainedPolicy) -> None:
    policy = Watched(seeing_policy)
    pool = MemoryPool(EPISODES[:1])
    agent = with_policy(policy, pool)
    agent.act([0], [seen(EPISODES[0], 4)])
    assert policy.encoded == [2]
    pool._view = MemoryView([replace(EPISODES[0], actions=EPISODES[0].actions + 1)], version=2)
    agent.reset(0, TRIAL)
    agent.act([0], [seen(EPISODES[0], 4)])
    assert policy.encoded == [2, 2]


def test_a_pool_that_changes_between_two_slots_of_a_call_disturbs_neither(
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


def test_a_pool_without_images_is_refused_by_a_policy_that_looks(seeing_policy: TrainedPolicy) -> None:
    blind = MemoryPool([replace(episode, images={}) for episode in EPISODES])
    with pytest.raises(InputError, match=r"through camera 'top', and demonstration .* use a pool with"):
        with_policy(seeing_policy, blind).act([0], [seen(EPISODES[0], 0)])


def test_the_match_may_be_left_out_or_random(state_policy: TrainedPolicy) -> None:
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


def test_a_random_match_is_fixed_by_the_trial_without_a_policy_too() -> None:
    refs = []
    for _ in range(2):
        agent = with_policy(None, matching="random")
        agent.act([0], [seen(EPISODES[0], 3)])
        found = agent.retrieval(0)
        assert found is not None
        refs.append(found.matches[0].ref)
    assert refs[0] == refs[1]


def test_without_its_residual_a_policy_is_replay(state_policy: TrainedPolicy) -> None:
    agent, plain = with_policy(state_policy, residual=False), replay(MemoryPool(EPISODES))
    plain.reset(0, TRIAL)
    for t in range(8):
        moment = seen(EPISODES[1], t)
        assert np.array_equal(agent.act([0], [moment]), plain.act([0], [moment]))
    learned = with_policy(state_policy).act([0], [seen(EPISODES[1], 0)])
    assert not np.allclose(learned, replay(MemoryPool(EPISODES)).act([0], [seen(EPISODES[1], 0)]))


@pytest.mark.parametrize(("times", "share"), [(1e-4, 1.0), (0.5, 0.8), (1.0, 0.5), (2.0, 0.2), (1e4, 0.0)])
def test_a_residual_counts_for_as_much_as_its_match_is_off(
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


def test_with_nothing_retrieved_a_policy_says_what_it_says(state_policy: TrainedPolicy) -> None:
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
def test_a_pool_that_is_emptied_on_the_way_is_safe(reaction: str, state_policy: TrainedPolicy) -> None:
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


def test_a_pool_that_says_of_which_robot_it_is_is_refused_by_the_feature(state_policy: TrainedPolicy) -> None:
    pool = MemoryPool(EPISODES)
    other = replace(PUSHT, proprio=(Feature("tool", "position", 2, "m"),), action=(), max_step={})
    pool.view().robot = other  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"'tool' \(position, 2 m\)"):
        with_policy(state_policy, pool).act([0], [seen(EPISODES[0], 0)])
    pool.view().robot = PUSHT  # type: ignore[attr-defined]
    with_policy(state_policy, pool).act([0], [seen(EPISODES[0], 0)])


def test_a_number_that_is_not_finite_is_not_sent(
    state_policy: TrainedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Watched(state_policy)
    broken = ActionChunk(np.full((8, 2), np.nan, np.float32), np.zeros((8, 2), np.float32))
    monkeypatch.setattr(policy, "predict_action_chunk", lambda *_: [broken])
    with pytest.raises(InputError, match="not finite"):
        with_policy(policy).act([0], [seen(EPISODES[0], 0)])


def test_with_an_empty_pool_an_agent_holds_still_unless_told_to_act_alone(
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


def test_without_its_residual_a_policy_looks_again_at_a_demonstrations_end(
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
    assert n_plans["learned"] == 2, "a policy carries out all eight"
    assert n_plans["without"] > 2, "what is acted out ends where the demonstration does"
