"""Traced episodes: the results of an evaluation plus the retrieval and attention of each look."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recap.assembly import AgentConfig
from recap.errors import InputError, RunDirectoryError
from recap.evaluation.agents import HoldAgent, make_agent
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import save_pretrained
from recap_research.analysis.attention import summarise_attention
from recap_research.analysis.overlays import CAPTION, TILE, attention_strip
from recap_research.analysis.traces import (
    TRACES,
    TracingAgent,
    coverage_of,
    read_traces,
    trace,
    trace_episodes,
)
from toy_policy import toy_config, toy_policy, write_demonstrations


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> EvalSpec:
    """A tiny policy with a pool of six demonstrations."""
    folder = tmp_path_factory.mktemp("traced")
    save_pretrained(toy_policy(), folder / "policy")
    _, pool = write_demonstrations(folder)
    return EvalSpec(
        AgentConfig(str(folder / "policy")),
        "pusht",
        {"pusher": "triangle"},
        tasks=("0",),
        seeds=(500, 501),
        max_steps=20,
        pool=pool,
    )


@pytest.fixture(scope="module")
def traced(spec: EvalSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "traced"
    trace(spec, out, probe=True)
    return out


def assert_alike(one: Path, other: Path) -> None:
    """The same episodes up to rounding: a probed network rounds differently."""
    for a, b in zip(read_info(one)[1], read_info(other)[1], strict=True):
        assert a.metrics == pytest.approx(b.metrics, abs=1e-6)
        assert replace(a, metrics=b.metrics) == b


def test_a_traced_run_has_the_same_results_as_an_evaluation(
    spec: EvalSpec, traced: Path, tmp_path: Path
) -> None:
    evaluate(spec, tmp_path / "plain", batch_size=1)
    assert_alike(traced, tmp_path / "plain")
    infos = [json.loads((d / "eval_info.json").read_text("utf-8")) for d in (traced, tmp_path / "plain")]
    assert infos[0]["provenance"] == infos[1]["provenance"]
    assert infos[0]["provenance"]["n_demonstrations"] == 6
    assert len(infos[0]["provenance"]["checkpoint"]) == 12


def test_each_look_records_match_distance_and_coverage(traced: Path) -> None:
    _, results, traces = read_traces(traced)
    for result in results:
        looks = traces[result.task, result.seed].looks
        assert [look.step for look in looks] == [0, 8, 16]  # chunks of 8 actions
        assert all(look.acted and look.match is not None and look.distance is not None for look in looks)
        assert all(look.confidence is None for look in looks)  # six demonstrations are too few for confidence
        assert looks[0].coverage == pytest.approx(coverage_of(np.array(looks[0].state), "tee"), abs=1e-4)
        assert max(look.coverage for look in looks) <= result.metrics["coverage"] + 1e-4


def test_the_probe_records_attention_of_every_layer_and_head(traced: Path) -> None:
    _, _, traces = read_traces(traced)
    for one in traces.values():
        assert one.figures is not None
        assert one.figures.mass["retrieved_action"].shape == (2, 2)
        assert sum(one.figures.mass.values()) == pytest.approx(np.ones((2, 2)), abs=1e-3)
        assert one.figures.roi["frame/top>t_block"].shape == (2, 3)


def test_a_stopped_trace_is_resumed(spec: EvalSpec, traced: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    trace(spec, out)
    lines = (out / TRACES).read_text("utf-8").splitlines(keepends=True)
    (out / "eval_info.json").unlink()
    kept = (out / "episodes.jsonl").read_text("utf-8").splitlines(keepends=True)
    (out / "episodes.jsonl").write_text(kept[0], "utf-8")
    (out / TRACES).write_text(lines[0] + lines[1][:40], "utf-8")  # cut off in the middle of a line
    trace(spec, out)
    assert_alike(out, traced)
    assert len(read_traces(out)[2]) == 2
    with pytest.raises(RunDirectoryError, match="without the attention probe"):
        trace(spec, out, probe=True)


def test_an_episode_below_the_confidence_limit_is_marked_as_abstained(spec: EvalSpec) -> None:
    unsure = replace(spec, seeds=(500,)).with_agent(min_confidence=0.5, reaction="stop")  # nan: unsure
    agent = TracingAgent(make_agent(unsure), unsure)
    ((_, found),) = trace_episodes(agent, unsure, unsure.trials())
    assert found.abstained
    assert [look.acted for look in found.looks] == [False]
    sure = TracingAgent(make_agent(spec), spec)
    ((_, other), *_) = trace_episodes(sure, spec, spec.trials())
    assert not other.abstained


def test_tracing_an_agent_without_retrieval_or_network_is_an_error(spec: EvalSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="retrieves nothing"):
        TracingAgent(HoldAgent(), spec)
    replay = spec.with_agent(policy="replay")
    with pytest.raises(InputError, match="no network"):
        TracingAgent(make_agent(replay), replay, probe=True)
    evaluate(replace(replay, seeds=(500,)), tmp_path / "plain")
    with pytest.raises(RunDirectoryError, match=r"has no traces.jsonl"):
        read_traces(tmp_path / "plain")


def test_only_masks_and_noise_change_the_path(spec: EvalSpec) -> None:
    def way(noise: float = 0.0, **changes: Any) -> list[tuple[float, ...]]:
        changed = replace(spec, seeds=(500,), pose_noise=(noise, 0.0)).with_agent(**changes)
        agent = TracingAgent(make_agent(changed), changed)
        ((result, found),) = trace_episodes(agent, changed, changed.trials())
        assert result.error is None
        return [look.state[:2] for look in found.looks]

    plain = way()
    assert way() == plain
    for changes in ({"mask": "retrieved@all"}, {"mask": "sham@0"}, {"noise_seed": 1}, {"noise": 8.0}):
        other = way(**changes)
        assert other == way(**changes)
        assert other[0] == plain[0]  # the same start
        assert other[1:] != plain[1:]


def test_a_masked_policy_has_no_attention_on_masked_tokens(spec: EvalSpec) -> None:
    masked = replace(spec, seeds=(500,), max_steps=4).with_agent(mask="retrieved@1")
    agent = TracingAgent(make_agent(masked), masked, probe=True)
    ((result, found),) = trace_episodes(agent, masked, masked.trials())
    assert result.error is None
    assert found.figures is not None
    assert (found.figures.mass["retrieved_action"][1] == 0).all()
    assert (found.figures.mass["retrieved_action"][0] > 0).all()


def test_a_strip_shows_the_scene_and_three_rows_of_attention(spec: EvalSpec) -> None:
    one = replace(spec, max_steps=10)
    strip = attention_strip(one, one.trials()[0], {"intake": 0, "commit": 1})
    assert strip.shape == (4 * (TILE + CAPTION), 2 * TILE, 3)  # two looks
    assert strip.dtype == np.uint8


@pytest.mark.parametrize(
    ("changes", "ratios", "axes"),
    [
        ({"retrieval": False, "residual": False}, {"frame>t_block", "frame>predicted_end"}, set()),
        ({"inputs": "S"}, set(), set()),
        ({"future_image": False, "future_state": False}, {"retrieved_frame_1>t_block_next"}, {"intake"}),
    ],
)
def test_policies_with_fewer_slots_are_probed_for_the_slots_they_have(
    spec: EvalSpec, tmp_path: Path, changes: dict[str, Any], ratios: set[str], axes: set[str]
) -> None:
    save_pretrained(toy_policy(toy_config(**changes)), tmp_path / "policy")
    one = replace(spec, seeds=(500,), max_steps=4).with_agent(policy=str(tmp_path / "policy"))
    agent = TracingAgent(make_agent(one), one, probe=True)
    ((result, found),) = trace_episodes(agent, one, one.trials())
    assert result.error is None
    assert found.figures is not None
    summary = summarise_attention([found.figures])
    assert ratios <= set(summary["roi"])
    assert bool(summary["roi"]) == bool(ratios)
    assert set(summary["axes"]) == axes
