"""Failure analysis of PushT episodes, on made rollouts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import save_pretrained
from recap.types import EpisodeResult
from recap_research.analysis.attention import Figures
from recap_research.analysis.failures import (
    analyse_failures,
    cluster_of,
    distance_to_goal,
    label,
    oracle_matches,
    try_matches,
)
from recap_research.analysis.traces import Look, Trace
from toy_policy import toy_policy, write_demonstrations


def episode(task: str, seed: int, best: float, first: int | None = None) -> EpisodeResult:
    steps = {"0.85": first if first is not None else (100 if best > 0.85 else None), "0.95": None}
    return EpisodeResult(task, seed, "failure", 300, {"coverage": best}, steps)


def traced(one: EpisodeResult, start: float, confidence: float | None = 0.5, ratio: float = 1.0) -> Trace:
    state = (100.0, 100.0, 200.0, 200.0, 0.5, 256.0, 256.0, 0.0)
    looks = tuple(Look(8 * i, state, start, 10.0 * (i + 1), confidence, f"pool:{i}", True) for i in range(3))
    keys = ("retrieved_frame_0/top>t_block", "retrieved_frame_1/top>predicted_end")
    return Trace(one.task, one.seed, looks, Figures({}, {key: np.full((4, 3), ratio) for key in keys}, {}))


@pytest.mark.parametrize(
    ("start", "best", "cluster"),
    [
        (0.0, 0.9, "success"),
        (0.2, 0.3, "moves"),
        (0.2, 0.2999, "never engages"),
        (0.5, 0.55, "never engages"),  # it started half-way: only the gain counts
        (0.0, 0.84, "moves"),
    ],
)
def test_clusters_depend_on_the_coverage_gained(start: float, best: float, cluster: str) -> None:
    assert cluster_of(episode("0", 1, best), start, "0.85") == cluster


def test_analyse_failures_groups_retrieval_and_attention_by_outcome() -> None:
    episodes = [
        *(episode("0", i, 0.9) for i in range(4)),
        *(episode("0", 4 + i, 0.5) for i in range(3)),
        episode("+30", 1, 0.05),
        episode("+30", 2, 0.9, first=0),  # solved at the start
        replace(episode("+30", 3, 0.0), outcome="error"),
    ]
    traces = {
        (e.task, e.seed): traced(e, 0.0, *((0.4, 3) if e.metrics["coverage"] > 0.85 else (0.01, 2)))
        for e in episodes
    }
    found = analyse_failures(episodes, traces, 0.85, {"intake": 1, "commit": 2})
    assert found["total"] == {"success": 4, "moves": 3, "never engages": 1}
    assert found["clusters"]["+30"] == {"success": 0, "moves": 0, "never engages": 1}
    assert found["retrieval"]["success"]["confidence"] == 0.4
    assert found["retrieval"]["moves"]["unsure_looks"] == 1.0
    assert found["retrieval"]["moves"]["distance"] == 20.0
    assert found["retrieval"]["moves"]["last_distance"] == 30.0
    row = found["attention"]["commit"]["angles"]["0"]
    assert (row["success"], row["failure"], row["difference"], row["n"]) == (3.0, 2.0, -1.0, [4, 3])
    assert row["interval"] == [-1.0, -1.0]
    assert found["attention"]["anchoring"]["angles"]["+30"]["difference"] is None
    assert [e["cluster"] for e in found["episodes"]] == ["moves"] * 3 + ["never engages"]


def test_analysing_no_episodes_is_an_error() -> None:
    one = replace(episode("0", 1, 0.5), outcome="error")
    with pytest.raises(InputError, match="no episodes"):
        label([one], {("0", 1): traced(one, 0.0)}, 0.85)


def test_distance_to_goal_includes_rotation() -> None:
    goal = [256.0, 256.0, 0.0]
    assert distance_to_goal(np.array([0, 0, *goal, *goal])) == 0
    assert distance_to_goal(np.array([0, 0, 259.0, 260.0, 0.0, *goal])) == pytest.approx(5)
    assert distance_to_goal(np.array([0, 0, 256.0, 256.0, 2 * np.pi - 0.1, *goal])) == pytest.approx(6)


def test_the_oracle_match_is_at_least_as_good_as_the_nearest(tmp_path: Path) -> None:
    save_pretrained(toy_policy(), tmp_path / "policy")
    _, pool = write_demonstrations(tmp_path)
    policy = AgentConfig(str(tmp_path / "policy"))
    spec = EvalSpec(policy, "pusht", {"pusher": "triangle"}, tasks=("0",), seeds=(500,), pool=pool)
    agent = make_agent(spec)
    assert isinstance(agent, RetrievalAgent)
    state = np.array([280.0, 300.0, 256.0, 216.0, 0.1, 256.0, 256.0, 0.0])  # close enough to push the block
    progress, again = try_matches(agent, spec, state, 0, 4)
    assert progress.shape == again.shape == (4,)
    assert progress[0] == again[0]
    assert len(set(progress.round(6))) > 1  # different matches give different progress
    one = episode("0", 500, 0.3)
    row = oracle_matches(spec, label([one], {("0", 500): traced(one, 0.0)}, 0.85), n_matches=3, every=2)
    found = row["clusters"]["moves"]
    assert found["states"] == 2
    assert found["oracle_px"] >= found["nearest_px"]
    assert found["other_noise_px"] >= found["nearest_px"]
