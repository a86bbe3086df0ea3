"""Unusable demonstrations in a served pool: replies continue, and the pool lists them with reasons."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from served import EPISODES, Served, message_of, replay_service, replay_spec, served

from episodes import beside_its_block, observation_of, random_episode
from recap.cli.pool import pool as pool_commands
from recap.errors import InputError, RecapError
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.types import Episode
from recap_client.client import PolicyClient
from recap_client.wire import encode

MESSAGE = message_of(observation_of(EPISODES[3], 5))
GOOD = random_episode("good", 3)
SPACE = np.tile(np.array([0.1, 0.2, 0.3, 1, 0, 0, 0], np.float32), (30, 1))
# Demonstrations with a fault, and a part of the reason given.
ODD: Mapping[str, tuple[Episode, str]] = {
    "no object": (replace(GOOD, objects={}), "no object 'block'"),
    "no goal": (replace(GOOD, goal=None), "no goal"),
    "2-D goal": (replace(GOOD, goal=np.zeros(2, np.float32)), "2 numbers"),
    "7-D goal": (replace(GOOD, goal=SPACE[0]), "7 numbers"),
    "7-D pose": (replace(GOOD, objects={"block": SPACE}), "7-D"),
    "7-D pose of a symmetric block": (
        replace(GOOD, objects={"block": SPACE}, attributes={"block": "zed", "symmetry": 2}),
        "7-D",
    ),
    "2-D goal of a symmetric block": (
        replace(GOOD, goal=np.zeros(2, np.float32), attributes={"block": "zed", "symmetry": 2}),
        "2-D goal",
    ),
    "2-D pose": (replace(GOOD, objects={"block": SPACE[:, :2]}), "2-D"),
}
ODDITIES = {name: replace(episode, id=name) for name, (episode, _) in ODD.items()}
# Demonstrations of valid shape whose values could break the readers.
TRAPS: Mapping[str, Episode] = {
    "an impossible symmetry": replace(GOOD, attributes={"symmetry": 0, "block": "tee"}),
    "a symmetry in words": replace(GOOD, attributes={"symmetry": "many", "block": "tee"}),
    "numbers without end": replace(GOOD, proprio=np.full_like(GOOD.proprio, 3e38)),
    "a goal without end": replace(GOOD, goal=np.full_like(GOOD.goal, -3e38)),
    "one frame": random_episode("one", 3, n=1),
    "a correction in words": replace(GOOD, attributes={**GOOD.attributes, "correction_from_s": "never"}),
}


def unusable(server: Served) -> tuple[int, dict[str, str]]:
    """The number of unusable episodes by the metrics, and their reasons by the pool route."""
    found = re.findall(rb"^recap_pool_unusable (\d+)$", server.http("/metrics")[1], re.MULTILINE)
    return int(found[0]), server.json("/api/pool")[1]["unusable"]


def as_message(episode: Episode) -> bytes:
    """The episode as a client uploads it."""
    message: dict[str, Any] = {
        "id": episode.id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "fps": episode.fps,
        "proprio": episode.proprio,
        "actions": episode.actions,
        "objects": dict(episode.objects),
        "attributes": dict(episode.attributes),
    }
    return encode(message if episode.goal is None else {**message, "goal": episode.goal})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    Pool.create(tmp_path / "pool").add(EPISODES[:6])
    with served(Service.open(replay_spec(pool=str(tmp_path / "pool")))) as running:
        yield running


@pytest.mark.parametrize("subtrajectories", [False, True])
@pytest.mark.parametrize("retrieval", ["object", "world", "world-oracle", "published", "contact"])
def test_a_client_gets_replies_while_unusable_episodes_are_added(
    retrieval: str, subtrajectories: bool
) -> None:
    demos = [beside_its_block(episode) for episode in EPISODES[:6]]
    pool = MemoryPool(demos)
    config = {"retrieval": f"pusht-{retrieval}", "subtrajectories": subtrajectories}
    service = Service(replay_spec(config, options={"pusher": "triangle"}), pool)
    message = message_of(observation_of(demos[3], 5))
    wanted: set[str] = set()
    with served(service) as server, PolicyClient(server.ws) as client:
        before = client.infer(message)
        for name, episode in ODDITIES.items():
            pool.add(episode)
            reply = client.infer(message)
            assert (reply["held"], reply["pool_version"]) == (False, pool.view().version)
            assert reply["retrieval"]["episode_id"] not in wanted
            n, named = unusable(server)
            wanted = {*wanted, name} if name in named else wanted
            assert (n, set(named)) == (len(wanted), wanted)
        client.reset(seed=1)
        after = client.infer(message)
    # A retrieval that does not read the goal's position accepts any goal.
    reads_goal = retrieval in ("object", "world", "contact")
    assert wanted >= (set(ODDITIES) if reads_goal else {"no object", "7-D pose", "2-D pose"})
    assert np.array_equal(before["actions"], after["actions"]), "unusable episodes do not change the actions"


@pytest.mark.parametrize("name", [name for name in ODD if name != "no object"])
def test_an_unusable_upload_is_counted_and_listed_with_its_reason(server: Served, name: str) -> None:
    assert unusable(server) == (0, {})
    with PolicyClient(server.ws) as client:
        assert not client.infer(MESSAGE)["held"]
        status, body = server.http(
            "/api/pool", as_message(ODDITIES[name]), {"Content-Type": "application/msgpack"}
        )
        assert (status, json.loads(body)["added"]) == (201, [name])
        n, named = unusable(server)
        assert (n, set(named)) == (1, {name})
        assert ODD[name][1] in named[name]
        assert client.infer(MESSAGE)["retrieval"]["episode_id"] == "demo/3"
        assert name not in server.json("/api/pool?version=2")[1]["unusable"], "version 2 did not have it yet"
        server.json(f"/api/pool/{name.replace(' ', '%20')}", method="DELETE")
        assert unusable(server) == (0, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objects": {}}, "object 'block' is missing"),
        ({"actions": np.zeros((30, 7), np.float32)}, "actions of 7 numbers a step, not 2 (position 2)"),
        ({"proprio": np.zeros((30, 3), np.float32)}, "proprioception of 3 numbers a step, not 2"),
    ],
)
def test_an_upload_of_another_layout_is_refused_before_it_is_written(
    server: Served, changes: dict[str, Any], words: str
) -> None:
    before = sorted(server.service.store.files.names(""))
    body = as_message(replace(GOOD, **changes))
    status, answer = server.http("/api/pool", body, {"Content-Type": "application/msgpack"})
    assert (status, words in json.loads(answer)["error"]) == (400, True), answer
    assert json.loads(answer)["code"] == "pool.layout"
    assert sorted(server.service.store.files.names("")) == before


def test_a_demonstration_without_a_block_name_is_unusable_only_for_contact_retrieval() -> None:
    bare = replace(GOOD, id="bare", attributes={})
    plain = replay_service([*EPISODES[:6], bare])
    with served(plain) as server:
        assert unusable(server) == (0, {})
    other = replace(beside_its_block(bare), embodiment="triangle")
    config = {"retrieval": "pusht-contact"}
    demos = [beside_its_block(episode) for episode in EPISODES[:6]]
    service = replay_service([*demos, other], agent=config, options={"pusher": "triangle"})
    with served(service) as server, PolicyClient(server.ws) as client:
        assert not client.infer(message_of(observation_of(demos[3], 5)))["held"]
        assert unusable(server)[1]["bare"].startswith("the shape of block '' is not known")


def test_listed_attribute_names_and_values_are_limited() -> None:
    many = [
        replace(
            random_episode(f"e{i:03}", i, n=12), attributes={f"name{j:02}": f"v{i:03}" for j in range(40)}
        )
        for i in range(70)
    ]
    odd = replace(many[0], id="odd", attributes={"a": True, "b": 30.0, "c": "ü", "name00": 7})
    with served(replay_service([*many, odd])) as server:
        found = server.json("/api/pool?limit=1")[1]
        assert len(found["attributes"]) == 32
        assert list(found["attributes"])[:4] == ["a", "b", "c", "name00"]
        assert [found["attributes"][name] for name in "abc"] == [["true"], ["30.0"], ["ü"]]
        assert found["attributes"]["name01"] == [f"v{i:03}" for i in range(64)]
        for query, n in (
            ("attribute.a=true", 1),
            ("attribute.b=30.0", 1),
            ("attribute.c=%C3%BC", 1),
            ("attribute.name39=v069", 1),
            ("attribute.name00=7&attribute.a=false", 0),
        ):
            assert server.json(f"/api/pool?{query}")[1]["total"] == n


@pytest.mark.parametrize("retrieval", ["object", "contact"])
def test_extreme_values_in_the_pool_do_not_stop_replies(retrieval: str) -> None:
    demos = [beside_its_block(episode) for episode in EPISODES[:6]]
    pool = MemoryPool(demos)
    service = Service(replay_spec({"retrieval": f"pusht-{retrieval}"}, options={"pusher": "triangle"}), pool)
    with served(service) as server, PolicyClient(server.ws) as client:
        for name, episode in TRAPS.items():
            pool.add(replace(beside_its_block(episode), id=name))
            reply = client.infer(message_of(observation_of(demos[3], 5)))
            assert (reply["held"], reply["pool_version"]) == (False, pool.view().version), name


@pytest.fixture(params=["on a disk", "on an object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The pool's location: a folder or an object store."""
    if request.param == "on a disk":
        return str(tmp_path / "pool")
    return f"{request.getfixturevalue('object_store')}/pool"


def test_bad_episodes_over_http_and_command_line_stop_none_of_eight_clients(
    place: str, tmp_path: Path
) -> None:
    Pool.create(place).add(EPISODES[:6])
    stop, told = threading.Event(), [[] for _ in range(8)]

    def drive(number: int, address: str) -> None:
        with PolicyClient(address) as client:
            while not stop.is_set():
                told[number].append(client.infer(message_of(observation_of(EPISODES[number], 5)))["held"])

    with served(Service.open(replay_spec(pool=place))) as server, ThreadPoolExecutor(8) as threads:
        running = [threads.submit(drive, i, server.ws) for i in range(8)]
        try:
            for name, episode in {**ODDITIES, **TRAPS}.items():
                body = as_message(replace(episode, id=f"{name} by wire"))
                status, answer = server.http("/api/pool", body, {"Content-Type": "application/msgpack"})
                assert status in (201, 400), answer
                folder = tmp_path / name.replace(" ", "-")
                try:
                    stage_episode(folder / "staging", 0, replace(episode, id=f"{name} by hand"))
                except InputError:
                    continue  # our dataset format cannot hold it
                assemble(folder / "staging", 1, folder / "data")
                added = CliRunner().invoke(pool_commands, ["add", place, str(folder / "data")])
                assert added.exception is None or isinstance(added.exception, RecapError | SystemExit)
            seen = [len(part) for part in told]
            time.sleep(0.3)
        finally:
            stop.set()
        for future in running:
            future.result()  # raises the client's error, if it had one
    assert all(len(part) > before for part, before in zip(told, seen, strict=True)), "all clients continue"
    assert not any(held for part in told for held in part)


def test_the_pool_refuses_values_that_no_reader_can_use(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    for name in (
        "an impossible symmetry",
        "a symmetry in words",
        "numbers without end",
        "a goal without end",
    ):
        with pytest.raises(InputError, match=r"symmetry|proprio|goal"):
            pool.add([TRAPS[name]])
    assert len(pool) == 0
