"""The policy service: sessions, poses sent or estimated, a growing pool, and holding when unsure."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import EPISODES, board, replay_service, replay_spec

from episodes import beside_its_block, observation_of, random_episode
from recap.assembly import AgentConfig, load_policy
from recap.errors import InputError
from recap.policies.canonical import canonical_image
from recap.policies.checkpoint import save_pretrained
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.serving.observations import Reset
from recap.serving.service import Reply, Request, ServeSpec, Service, Session
from recap.types import Observation
from toy_policy import drawn, toy_config, toy_policy


def ask(service: Service, session: Session, seen: Observation, executed: int | None = None) -> Reply:
    answer = service.serve([Request(session, seen, executed)])[0]
    assert isinstance(answer, Reply)
    return answer


def test_an_observation_from_a_demonstration_returns_that_demonstrations_actions() -> None:
    service = replay_service()
    reply = ask(service, service.new_session(), observation_of(EPISODES[3], 5)).message
    assert reply["retrieval"] == {"episode_id": "demo/3", "t": 5, "distance": pytest.approx(0, abs=1e-3)}
    assert np.allclose(reply["actions"], EPISODES[3].actions[5:13], atol=1e-2)
    assert reply["actions"].shape == (8, 2)
    assert reply["actions"].dtype == np.float32
    assert 0 < reply["confidence"] <= 1
    assert (reply["pool_version"], reply["policy"], reply["held"]) == (1, "replay", False)
    assert {"retrieval_ms", "policy_ms", "vision_ms", "batch_size"} <= set(reply["server_timing"])


def test_missing_poses_are_estimated_from_the_image() -> None:
    service = replay_service()
    env = board(seed=511)
    told = ask(service, service.new_session(), env.observe(96)).message
    seen = ask(service, service.new_session(), env.observe(96, with_poses=False)).message
    assert seen["retrieval"]["episode_id"] == told["retrieval"]["episode_id"]
    assert np.abs(seen["actions"] - told["actions"]).max() < 5
    goal_only = replace(env.observe(96), objects={})
    assert ask(service, service.new_session(), goal_only).message["retrieval"] is not None


def test_an_object_missing_from_the_image_holds_with_confidence_0() -> None:
    for reaction in ("hold", "ignore", "stop"):
        service = replay_service(agent={"reaction": reaction})
        session = service.new_session()
        env = board(seed=512)
        blank = np.full((96, 96, 3), 255, np.uint8)
        lost = replace(env.observe(96, with_poses=False), images={"top": blank})
        reply = ask(service, session, lost)
        assert reply.held
        assert reply.message["confidence"] == 0
        assert reply.message["retrieval"] is None
        assert np.array_equal(reply.message["actions"], np.tile(lost.proprio, (8, 1)))
        assert not ask(service, session, env.observe(96)).held, "it continues when the block is visible again"
        assert ask(service, session, lost).message["confidence"] == 0, "an old match is not reported again"


def test_an_empty_pool_holds_and_an_added_demonstration_is_used_at_the_next_step() -> None:
    pool = MemoryPool()
    service = Service(replay_spec(), pool)
    session = service.new_session()
    seen = observation_of(EPISODES[0], 4)
    first = ask(service, session, seen)
    assert first.held
    assert (first.message["confidence"], first.message["pool_version"]) == (0.0, 1)
    pool.add(*EPISODES[:3])
    second = ask(service, session, seen).message
    assert (second["retrieval"]["episode_id"], second["pool_version"]) == ("demo/0", 2)


def test_a_waiting_write_does_not_block_the_policy(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add(EPISODES[:2])
    service = Service.open(replay_spec(pool=str(tmp_path / "pool")))
    session = service.new_session()
    seen = observation_of(EPISODES[5], 4)
    assert ask(service, session, seen).message["retrieval"]["episode_id"] != "demo/5"
    with service.store._lock:  # as if a write waited for its lock
        ask(service, session, seen)
    version = service.store.add(EPISODES[5:6])
    reply = ask(service, session, seen).message
    assert (reply["retrieval"]["episode_id"], reply["pool_version"]) == ("demo/5", version)


@pytest.mark.parametrize(("ours", "residual", "warned"), [(2.0, True, 1), (2.0, False, 0), (0.5, True, 0)])
def test_a_residual_policy_worse_than_replay_is_warned_about(
    tmp_path: Path, ours: float, residual: bool, warned: int
) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add(EPISODES[:2])
    facts = {"held_out_policy_error": ours, "held_out_replay_error": 1.0}
    save_pretrained(toy_policy(toy_config(inputs="S")), tmp_path / "policy", facts)
    agent = AgentConfig(str(tmp_path / "policy"), residual=residual)
    said: list[str] = []
    Service.open(ServeSpec(agent, pool=pool.uri), said.append)
    assert sum("--no-residual" in line for line in said) == warned


def test_sessions_are_independent_and_batching_does_not_change_actions() -> None:
    together, alone = replay_service(), replay_service()
    a, b, c = together.new_session(), together.new_session(), alone.new_session()
    for t in range(0, 12, 4):
        pair = [Request(a, observation_of(EPISODES[0], t)), Request(b, observation_of(EPISODES[7], t))]
        both = together.serve(pair)
        single = ask(alone, c, observation_of(EPISODES[7], t))
        assert isinstance(both[1], Reply)
        assert np.array_equal(both[1].message["actions"], single.message["actions"])


@pytest.mark.parametrize("subtrajectories", [False, True])
def test_a_pool_that_grows_during_a_batch_loses_no_reply(subtrajectories: bool) -> None:
    service = replay_service(agent={"subtrajectories": subtrajectories})
    pool, retriever = service.pool, service.agent.retriever
    retrieve, n = retriever.retrieve, iter(range(100))

    def grown(*given: Any, **more: Any) -> Any:
        found = retrieve(*given, **more)
        pool.add(random_episode(f"new/{next(n)}", 70))  # type: ignore[attr-defined]
        return found

    retriever.retrieve = grown  # type: ignore[method-assign]
    requests = [Request(service.new_session(), observation_of(EPISODES[i], 5)) for i in range(3)]
    replies = service.serve(requests)
    found = [reply.message["retrieval"]["episode_id"] for reply in replies if isinstance(reply, Reply)]
    assert found == ["demo/0", "demo/1", "demo/2"]
    assert next(n) == 3, "each request was served once, in one batch"


def test_a_bad_request_in_a_batch_does_not_affect_the_others() -> None:
    policy = toy_policy()
    service = Service(replay_spec(), MemoryPool([drawn(e) for e in EPISODES[:4]]), policy)
    good = replace(observation_of(EPISODES[0], 2), images={"top": drawn(EPISODES[0]).images["top"][2]})
    bad = replace(good, images={"top": np.zeros((96, 64, 3), np.uint8)})
    answers = service.serve([Request(service.new_session(), seen) for seen in (good, bad, good)])
    assert [type(answer) is Reply for answer in answers] == [True, False, True]
    assert "64×96 px" in str(answers[1])


def test_a_larger_camera_image_is_resized_to_the_policys_size() -> None:
    policy = toy_policy()
    env = board(seed=600)
    frame = np.array([200.0, 250.0, 0.6])
    small, large = (
        canonical_image(env.draw(size), frame, policy.config.image, aligned=True) for size in (96, 288)
    )
    assert np.abs(large.astype(int) - small).mean() < 1
    service = Service(replay_spec(), MemoryPool([drawn(e) for e in EPISODES[:4]]), policy)
    assert service.metadata()["camera_size"] == 96
    reply = ask(service, service.new_session(), env.observe(288)).message
    assert reply["actions"].shape == (8, 2)


def test_a_reset_starts_an_episode_with_its_seed() -> None:
    policy = toy_policy()
    service = Service(replay_spec(), MemoryPool([drawn(e) for e in EPISODES[:4]]), policy)
    session = service.new_session()
    image = drawn(EPISODES[0]).images["top"][2]
    seen = replace(observation_of(EPISODES[0], 2), images={"top": image})
    actions = []
    for seed in (5, 6, 5):
        session.pending = Reset(seed)
        actions.append(ask(service, session, seen).message["actions"])
    assert np.array_equal(actions[0], actions[2])
    assert not np.array_equal(actions[0], actions[1])
    assert session.n_episodes == 3
    service.release(session)
    assert service.agent.plan(session.slot) is None


def test_retrieval_uses_the_symmetry_of_the_sessions_block() -> None:
    """A Z rotated by half a turn looks the same: with option block=zed its demonstration is found."""
    demo = random_episode("zed", 1, symmetry=2)
    others = [random_episode(f"other-{i}", 50 + i, symmetry=2) for i in range(3)]
    service = replay_service([demo, *others])
    seen = observation_of(demo, 4)
    turned = replace(seen, objects={"block": seen.objects["block"] + np.array([0, 0, np.pi])})
    distances = {}
    for block in ("tee", "zed"):
        session = service.new_session()
        session.pending = Reset(options={"block": block})
        distances[block] = ask(service, session, turned).message["retrieval"]["distance"]
    assert distances["zed"] < 1e-2
    assert distances["tee"] > 10


def test_the_policy_sets_retrieval_and_embodiment() -> None:
    pool = MemoryPool(EPISODES[:4])
    spec = ServeSpec(AgentConfig("pusht-small"), port=0)
    service = Service(spec, pool, load_policy(spec.agent))
    said = service.metadata()
    assert (said["policy"], said["retrieval"]) == ("pusht-small", "pusht-contact")
    assert said["options"] == {"pusher": "triangle"}
    assert said["option_names"] == ["block", "pusher"]
    assert service.scene.context({}).embodiment == "triangle"
    assert service.scene.context({"pusher": "disc"}).embodiment == "disc"
    assert replay_service().metadata()["options"] == {}


def test_contact_retrieval_needs_the_tool_shape() -> None:
    demos = [beside_its_block(episode) for episode in EPISODES]
    with pytest.raises(InputError, match="shape of tool"):
        replay_service(demos, agent={"retrieval": "pusht-contact"})
    seen = observation_of(demos[2], 5)
    chunks = {}
    for name in ("contact", "object"):
        config = {"retrieval": f"pusht-{name}"}
        service = replay_service(demos, agent=config, options={"pusher": "triangle"})
        chunks[name] = ask(service, service.new_session(), seen).message["actions"]
    assert not np.array_equal(chunks["contact"], chunks["object"])


def test_the_repeat_penalty_grows_with_the_executed_actions() -> None:
    service = replay_service()
    seen = observation_of(EPISODES[2], 5)
    far = {}
    for executed in (8, 1):
        session = service.new_session()
        ask(service, session, seen)
        far[executed] = ask(service, session, seen, executed).message["retrieval"]["distance"]
    assert far[1] < far[8], "the penalty follows the number of executed actions"
    assert far[1] == pytest.approx(6.0 / 8, abs=0.05)


def test_actions_are_limited_to_the_largest_step() -> None:
    service = replay_service(max_step={"position": 3.0})
    assert service.metadata()["max_steps"] == [[0, 2, 3.0]]
    assert service.metadata()["action_high"] == [512.0, 512.0]
    reply = ask(service, service.new_session(), observation_of(EPISODES[3], 5))
    steps = np.diff(np.vstack([EPISODES[3].proprio[5], reply.message["actions"]]), axis=0)
    assert np.linalg.norm(steps, axis=1).max() <= 3.0 + 1e-4
    assert reply.n_limited > 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"agent": {"policy": "pusht-nanno"}}, "did you mean 'pusht-nano'"),
        ({"agent": {"retrieval": "world"}, "options": {"block": "tee"}}, "none is served"),
        ({"options": {"block": "tea"}}, "tee"),
        ({"options": {"pusher": "disk"}}, "disc"),
        ({"options": {"colour": "red"}}, "option of env 'pusht'"),
        ({"agent": {"reaction": "panic"}}, "choose one of"),
        ({"agent": {"min_confidence": 1.5}}, "0 to 1"),
        ({"port": 70000}, "0 to 65535"),
        ({"host": "0.0.0.0"}, "set a token"),
        ({"host": "example.org"}, "set a token"),
        ({"token": "short"}, "8 characters"),
    ],
)
def test_an_invalid_serve_spec_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replay_spec(**wrong)


def test_an_unknown_retrieval_or_step_limit_is_refused() -> None:
    with pytest.raises(InputError, match="unknown retrieval 'alined'"):
        replay_service(agent={"retrieval": "alined"})
    for step in ({"position": 0.0}, {"speed": 1.0}):
        with pytest.raises(InputError, match="position"):
            replay_service(max_step=step)


def test_only_local_hosts_need_no_token() -> None:
    for host in ("127.0.0.1", "127.0.0.7", "::1", "localhost"):
        assert replay_spec(host=host).is_local
    assert not replay_spec(host="0.0.0.0", token="a-long-secret").is_local


def test_a_snapshot_cannot_be_changed() -> None:
    with pytest.raises(InputError, match="--pool"):
        _ = replay_service().store
