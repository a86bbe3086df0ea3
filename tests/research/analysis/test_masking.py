"""The masking experiment: matched starts, conditions and controls."""

from dataclasses import replace
from pathlib import Path

import pytest

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import save_pretrained
from recap.types import EpisodeResult
from recap_research.analysis.masking import choose_subsets, condition_row, conditions, run_masking
from toy_policy import toy_policy, write_demonstrations


def episode(task: str, seed: int, won: bool, at: int = 50) -> EpisodeResult:
    steps = {"0.85": at if won else None, "0.95": None}
    return EpisodeResult(task, seed, "failure", 300, {"coverage": 0.9 if won else 0.3}, steps)


RESULTS = [
    *(episode("0", seed, seed < 7) for seed in range(10)),
    *(episode("+30", seed, seed < 1) for seed in range(10)),
    *(episode("+45", seed, True) for seed in range(10)),  # seen in training
    episode("+30", 20, True, at=0),  # success at the start
    replace(episode("+30", 21, True), outcome="error"),
]


def test_choose_subsets_takes_up_to_n_successes_and_failures_per_angle() -> None:
    found = choose_subsets(RESULTS, 0.85, 5)
    assert [k for k in found.keys["successes"] if k[0] == "0"] == [("0", seed) for seed in range(5)]
    assert [k for k in found.keys["failures"] if k[0] == "0"] == [("0", 7), ("0", 8), ("0", 9)]
    assert [k for k in found.keys["successes"] if k[0] == "+30"] == [("+30", 0)]
    assert found.available == {"successes": {"0": 7, "+30": 1}, "failures": {"0": 3, "+30": 9}}
    assert not any(task == "+45" for task, _ in found.all())
    with pytest.raises(InputError, match="no episodes"):
        choose_subsets([episode("+45", 1, True)], 0.85, 5)


def test_every_layer_has_a_sham_control_and_there_is_a_noise_control() -> None:
    found = conditions([2, 5])
    assert [c.mask for c in found] == [
        None,
        "retrieved@2",
        "sham@2",
        "retrieved@5",
        "sham@5",
        "retrieved@all",
        "sham@all",
    ]
    assert [c.control for c in found] == [True, False, True, False, True, False, True]
    assert found[0].of(EvalSpec(AgentConfig("x", noise_seed=3), "pusht")).agent.noise_seed == 4


def test_a_row_counts_kept_successes_and_rescued_failures() -> None:
    subsets = choose_subsets(RESULTS, 0.85, 2)
    after = {k: episode(*k, won=k[1] % 2 == 0) for k in subsets.all()}
    row = condition_row(conditions([1])[1], subsets, after)
    assert (row["successes"]["successes"], row["successes"]["n"]) == (2, 3)  # 0:0, 0:1, +30:0
    assert (row["failures"]["successes"], row["failures"]["n"]) == (2, 4)  # 0:7, 0:8, +30:1, +30:2
    assert row["successes"]["by_angle"]["0"]["rate"] == 0.5
    assert row["failures"]["low"] <= 0.5 <= row["failures"]["high"]


def test_the_experiment_runs_and_is_not_repeated(tmp_path: Path) -> None:
    save_pretrained(toy_policy(), tmp_path / "policy")
    _, pool = write_demonstrations(tmp_path)
    spec = EvalSpec(
        AgentConfig(str(tmp_path / "policy")),
        "pusht",
        {"pusher": "triangle"},
        tasks=("0",),
        seeds=(500, 501),
        max_steps=6,
        pool=pool,
    )
    evaluate(spec, tmp_path / "base")
    said: list[str] = []
    found = run_masking(tmp_path / "base", [1], tmp_path / "out", per_angle=1, say=said.append)
    assert [row["name"] for row in found["rows"]] == [
        "other noise",
        "retrieved blocked, layer 1",
        "sham, layer 1",
    ]
    assert found["chosen"] == {"successes": [], "failures": ["0:500"]}
    assert all(row["failures"]["n"] == 1 for row in found["rows"])
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "out").rglob("episodes.jsonl")}
    assert len(before) == 3
    assert run_masking(tmp_path / "base", [1], tmp_path / "out", per_angle=1, say=said.append) == found
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "out").rglob("episodes.jsonl")} == before
