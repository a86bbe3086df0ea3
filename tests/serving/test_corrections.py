"""A person takes over a driven robot and hands back; the correction is used from the next step on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import replay_spec, served

from recap.errors import ServerError
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.types import F64, Episode
from recap_client.client import PolicyClient
from recap_client.robot_loop import LoopReport, LoopSpec, RobotLoop
from recap_worlds.pusht.simulated_robot import PushTRobot

RATE = 50.0
TOKEN = "a-long-secret"


class Dragged(PushTRobot):
    """A robot that a person drags to the left for some periods; it sends an image and no poses."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(angle=-30.0, seed=510)
        self.begin, self.end, self.n = begin, end, 0
        self.wanted: list[F64] = []
        self.acted: list[F64] = []

    def takeover(self) -> F64 | None:
        self.n += 1
        if not self.begin < self.n <= self.end:
            return None
        here = np.array(self.env.agent.position)
        self.wanted.append(here - [9.0, 0.0])
        return self.wanted[-1]

    def act(self, action: F64) -> None:
        self.acted.append(action)
        super().act(action)


def drive(url: str, robot: Any, steps: int = 60) -> LoopReport:
    with PolicyClient(url, TOKEN, retries=0) as client:
        client.reset(seed=1, options={"block": "tee"})
        return RobotLoop(robot, client, LoopSpec(steps=steps, rate_hz=RATE)).run()


@pytest.fixture
def pool(tmp_path: Path, demos: list[Episode]) -> Pool:
    pool = Pool.create(tmp_path / "pool")
    pool.add(demos)
    return pool


def test_a_correction_is_driven_recorded_and_added_to_the_pool(pool: Pool, demos: list[Episode]) -> None:
    robot = Dragged(20, 44)
    service = Service(replay_spec(token=TOKEN), pool)
    with served(service) as server:
        report = drive(server.ws, robot)
        found = service.agent.retriever.source.view()
    assert (report.reason, report.by_person, report.corrections, report.not_kept) == ("steps", 24, 1, "")
    # During the takeover the person's targets are sent to the robot.
    driven = [np.allclose(a, w, atol=1e-3) for a, w in zip(robot.acted[20:44], robot.wanted, strict=True)]
    assert all(driven)
    (name,) = set(found.episode_ids) - {demo.id for demo in demos}
    kept = found.episode(name)
    assert name.startswith("corrections/triangle/")
    assert (kept.embodiment, kept.attributes["block"]) == ("triangle", "tee")
    # Eight frames of context and 24 of the person, resampled from 50 Hz to the pool's 10 Hz.
    assert (kept.fps, len(kept), kept.first_match) == (10, 8, 2)
    assert np.isclose(kept.actions[-1], robot.wanted[-1], atol=1e-3).all()
    # The robot sent no poses: the server estimated them from the images.
    assert kept.objects["block"].shape == (len(kept), 3)
    assert kept.goal is not None
    assert "top" in kept.images
    assert np.allclose(robot.acted[44], robot.acted[43])  # the robot holds until the pool has the correction


def test_the_first_reply_after_a_correction_retrieves_it(pool: Pool) -> None:
    replies: list[Mapping[str, Any]] = []

    class Told(PolicyClient):
        def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
            replies.append(super().infer(observation))
            robot.done = replies[-1]["pool_version"] > 2
            return dict(replies[-1])

    robot = Dragged(20, 44)
    with served(Service(replay_spec(), pool)) as server, Told(server.ws, retries=0) as client:
        client.reset(seed=1, options={"block": "tee"})
        RobotLoop(robot, client, LoopSpec(steps=2000, rate_hz=RATE)).run()
    before, after = (
        [reply for reply in replies if (reply["pool_version"] == 2) == first] for first in (True, False)
    )
    assert before
    assert after
    assert not any(str(r["retrieval"]["episode_id"]).startswith("corrections/") for r in before)
    assert str(after[0]["retrieval"]["episode_id"]).startswith("corrections/")


def test_driving_continues_when_the_server_cannot_store_corrections(demos: list[Episode]) -> None:
    with served(Service(replay_spec(token=TOKEN), MemoryPool(demos))) as server:
        report = drive(server.ws, Dragged(5, 25), steps=40)
        assert (report.reason, report.periods, report.corrections) == ("steps", 40, 0)
        assert "snapshot" in report.not_kept
        with PolicyClient(server.ws, TOKEN, retries=0) as client:
            assert client.metadata["pool_writable"] is False


def test_a_correction_still_running_at_the_end_is_stored(pool: Pool) -> None:
    with served(Service(replay_spec(token=TOKEN), pool)) as server:
        report = drive(server.ws, Dragged(10, 999), steps=30)
    assert (report.by_person, report.corrections) == (20, 1)


def test_an_upload_needs_the_token_and_its_errors_name_the_field(pool: Pool, demos: list[Episode]) -> None:
    episode = {"id": "mine", "task": "push", "embodiment": "disc", "fps": 10.0}
    moving = np.arange(27, dtype=np.float32).reshape(9, 3)
    numbers = {"proprio": moving[:, :2], "actions": moving}
    service = Service(replay_spec(token=TOKEN), pool)
    with served(service) as server, PolicyClient(server.ws, TOKEN, retries=0) as client:
        with pytest.raises(ServerError, match="lacks 'proprio'"):
            client.upload(episode)
        with pytest.raises(ServerError, match="actions"):
            client.upload({**episode, **numbers})
        whole = replace(demos[0], id="mine")
        sent = {
            **episode, "proprio": whole.proprio, "actions": whole.actions, "objects": dict(whole.objects),
            "goal": whole.goal, "images": {"top": np.array(list(whole.images["top"]))},
        }  # fmt: skip
        assert client.upload(sent) == pool.view().version
        client._headers = {}
        with pytest.raises(ServerError, match="token"):
            client.upload(sent)
    assert "mine" in pool.view().episode_ids
