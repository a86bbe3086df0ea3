"""A short version of `research/benchmarks/serve_load.py`: many robots, hostile clients, a full queue."""

from serve_load import Phase, run_phase

from recap.serving.spec import Limits


def test_many_robots_are_served_fairly_beside_hostile_clients() -> None:
    for seconds in (3.0, 12.0, 48.0):  # longer phases on a busier machine
        crowd = run_phase(Phase("crowd", seconds, Limits(), n_robots=16, hostile=True), "replay")
        few, many = crowd["replies_a_robot"]
        if few >= 4:
            break
    assert few >= 1
    assert few >= 0.5 * many
    assert (crowd["errors"], crowd["busy"]) == (0, 0)
    assert crowd["hostile_connections"] > 20
    assert crowd["batch_mean"] > 1.5
    assert crowd["health_asked"] > 10, "a health check is answered while robots are served"
    before, after = crowd["rss_mib"]
    assert after < before + 60


def test_a_full_queue_replies_busy_and_does_not_grow() -> None:
    full = run_phase(Phase("full", 1.5, Limits(max_waiting=3, max_batch=1), n_robots=16), "replay")
    assert full["busy"] > 0
    assert full["longest_queue"] <= 3
    assert full["errors"] == 0
    assert full["replies"] > 0
