"""The server's usage log, and quarantine of a demonstration during a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from served import EPISODES, message_of, replay_spec, served

from episodes import observation_of
from recap.cli.pool import pool as commands
from recap.errors import ServerError
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.usage import read_runs
from recap_client.client import PolicyClient


def test_the_usage_log_traces_every_chunk_and_quarantine_acts_at_once(tmp_path: Path) -> None:
    place, log = tmp_path / "pool", tmp_path / "logs" / "use.jsonl"
    Pool.create(place).add(EPISODES[:6])
    message = message_of(observation_of(EPISODES[3], 5))
    service = Service.open(replay_spec(pool=str(place), usage_log=str(log)))
    with served(service) as server, PolicyClient(server.ws) as client:
        first = client.infer(message)
        client.infer(message_of(observation_of(EPISODES[3], 13)))
        client.reset(success=True)
        client.infer(message)
        out = CliRunner().invoke(commands, ["quarantine", str(place), "demo/3"], standalone_mode=False)
        assert out.exception is None
        after = client.infer(message)
        assert first["retrieval"]["episode_id"] == "demo/3"
        assert after["retrieval"]["episode_id"] != "demo/3"
        assert server.json("/api/pool")[1]["unusable"] == {"demo/3": "episode demo/3 is in quarantine"}
        CliRunner().invoke(commands, ["quarantine", str(place), "demo/3", "--undo"], standalone_mode=False)
        client.reset(success=False)
        assert client.infer(message)["retrieval"]["episode_id"] == "demo/3"
        with pytest.raises(ServerError, match="success"):
            client.reset(success="perhaps")  # type: ignore[arg-type]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert set(lines[0]) == {
        *("time", "robot", "run", "step", "episode_id", "t", "distance"),
        *("off_course", "confidence", "held", "pool_version"),
    }
    assert (lines[0]["episode_id"], lines[0]["t"]) == ("demo/3", first["retrieval"]["t"])
    assert lines[1]["off_course"] == pytest.approx(0.0, abs=1e-3), "the robot followed the demonstration"
    runs = read_runs([log])
    assert [(len(run.uses), run.success) for run in runs] == [(2, True), (2, False), (1, None)]
    assert len({run.name.partition("#")[0] for run in runs}) == 1
