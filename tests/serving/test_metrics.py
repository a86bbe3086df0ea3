"""Metrics in Prometheus' text format."""

import re

from recap.serving.metrics import Metrics, Summary

LINE = re.compile(r"[a-z_]+(\{quantile=\"0\.\d+\"\})? (NaN|-?[0-9.e+-]+)")


def test_every_line_follows_the_prometheus_format() -> None:
    metrics = Metrics()
    metrics.requests.add(3)
    metrics.reply.observe(0.25)
    lines = metrics.render().splitlines()
    for line in lines:
        assert line.startswith(("# HELP recap_", "# TYPE recap_")) or LINE.fullmatch(line), line
    assert "recap_requests_total 3" in lines
    assert 'recap_reply_seconds{quantile="0.99"} 0.25' in lines
    assert 'recap_policy_seconds{quantile="0.5"} NaN' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(names)) == len(names)
    wanted = (
        "retrieval",
        "policy",
        "batch_size",
        "pool_version",
        "confidence",
        "queue_length",
        "connections",
    )
    for name in (*wanted, "errors_total", "busy_total", "deadline_misses_total"):
        assert any(found.startswith(f"recap_{name}") for found in names)


def test_quantiles_cover_the_latest_values_and_sums_cover_all() -> None:
    summary = Summary("x", "x")
    for _ in range(3000):
        summary.observe(1.0)
    for _ in range(2048):
        summary.observe(2.0)
    assert summary.quantile(0.5) == 2.0
    assert summary.count == 5048
    assert summary.sum == 3000 + 2 * 2048
