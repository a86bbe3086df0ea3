"""A short version of `research/benchmarks/soak.py`: attackers, writers and dying processes beside robots."""

import os
import shutil

import pytest
from soak import Soak, run

pytestmark = pytest.mark.long


def test_no_episode_is_lost_and_no_robot_fails_beside_attackers() -> None:
    if shutil.which("haproxy") is None and "haproxy" not in os.environ.get("RECAP_NEEDS", ""):
        pytest.skip("haproxy is not installed: make system")
    told = run(Soak(minutes=1 / 3, kill_writer_s=5.0, kill_server_s=4.0), lambda text: None)
    assert (told["errors"], told["odd_replies"], told["tracebacks"]) == ({}, 0, {})
    assert (told["lost"], told["changed"], told["damaged"]) == (0, 0, [])
    assert told["replies_a_robot"][0] > 0
    assert told["acknowledged"] > 0
    assert told["writers_killed"] > 0
    assert set(told["servers_ended"]) <= {"SIGTERM: 0", "SIGKILL: -9"}
    assert told["attacks"]["frames"]["refused"] > 0
    assert told["attacks"]["hostile"]["400"] > 0
    assert told["attacks"]["stalls"]["connections"] > 0
