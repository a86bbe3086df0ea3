from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import toy_agents

from recap.evaluation.agents import HoldAgent, PerEpisode, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import result_from_json, result_to_json
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.types import F64, EpisodeResult, Observation
from specs import pusht_spec

SPEC = pusht_spec("toy_agents:Wanderer", angles=(-30.0, 45.0), seeds=tuple(range(500, 507)), max_steps=30)


def run(spec: EvalSpec, batch_size: int) -> dict[tuple[str, int], EpisodeResult]:
    results = list(run_trials(make_agent(spec), spec, spec.trials(), batch_size))
    assert len(results) == len(spec.trials())
    return {(r.task, r.seed): r for r in results}


def test_results_do_not_depend_on_batch_size_or_order() -> None:
    alone = run(SPEC, 1)
    assert run(SPEC, 3) == alone
    assert run(SPEC, 8) == alone
    backwards = run_trials(make_agent(SPEC), SPEC, SPEC.trials()[::-1], 4)
    assert {(r.task, r.seed): r for r in backwards} == alone
    assert len({r.metrics["coverage"] for r in alone.values()}) > 5  # the episodes differ


@pytest.mark.parametrize(
    ("agent", "steps", "text"),
    [
        ("toy_agents:Fragile", 5, "ZeroDivisionError: the toy broke"),
        ("toy_agents:FragileAtReset", 0, "KeyError: 'no such start'"),
        ("toy_agents:NotFinite", 6, "is not a target position"),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_an_exception_fails_only_its_own_episode(agent: str, steps: int, text: str, batch_size: int) -> None:
    good = run(SPEC, 8)
    results = run(SPEC.with_agent(policy=agent), batch_size)
    for key, result in results.items():
        if result.seed != toy_agents.GUILTY_SEED:
            assert result == good[key]
            continue
        assert (result.outcome, result.steps) == ("error", steps)
        assert result.error is not None
        assert text in result.error
    assert results == run(SPEC.with_agent(policy=agent), 1)  # tracebacks included


def test_a_wrong_action_shape_is_an_error() -> None:
    class Flat(HoldAgent):
        def act(self, slots, observations):  # type: ignore[no-untyped-def]
            return np.zeros(3)

    results = list(run_trials(Flat(), SPEC, SPEC.trials()[:3], 2))
    assert all(r.outcome == "error" and "of shape (3,)" in (r.error or "") for r in results)


def test_slots_are_refilled_and_the_agent_is_reset() -> None:
    spec = replace(
        SPEC.with_agent(policy="toy_agents:Batched"), tasks=("+45",), seeds=(42, 48, 500, 501, 502)
    )
    agent = toy_agents.Batched(spec)
    results = list(run_trials(agent, spec, iter(spec.trials()), 2))
    assert len(results) == 5
    assert [trial.seed for _, trial in agent.resets] == [42, 48, 500, 501, 502]
    assert {slot for slot, _ in agent.resets} == {0, 1}
    assert agent.calls.count([0, 1]) == 60
    assert len(agent.calls) == 90
    assert agent.last is not None
    assert agent.last.images["top"].shape == (16, 16, 3)


def test_a_start_above_the_threshold_counts_as_step_0() -> None:
    spec = pusht_spec("hold", angles=(45.0,), seeds=(48, 49), max_steps=3)
    first, second = run_trials(HoldAgent(), spec, spec.trials(), 2)
    assert (first.seed, first.first_step, first.outcome) == (48, {"0.85": 0, "0.95": None}, "failure")
    assert second.first_step == {"0.85": None, "0.95": None}
    easy = replace(spec, thresholds=(0.5, 0.85))
    done = {r.seed: r for r in run_trials(HoldAgent(), easy, easy.trials(), 2)}
    assert (done[48].outcome, done[48].steps) == ("success", 0)
    assert done[48].first_step == {"0.5": 0, "0.85": 0}
    assert done[49].steps == 3


def test_success_ends_the_episode() -> None:
    spec = replace(SPEC, thresholds=(0.01, 0.02), tasks=("0",), seeds=tuple(range(500, 530)), max_steps=60)
    results = list(run_trials(PerEpisode(lambda: toy_agents.Wanderer(spec)), spec, spec.trials(), 4))
    for result in results:
        last = result.first_step["0.02"]
        assert (result.outcome == "success") == (last is not None) == (result.metrics["coverage"] > 0.02)
        assert result.steps == (60 if last is None else last)
    assert any(r.outcome == "success" and r.steps > 0 for r in results)


class BreaksAtOnce:
    """An agent that raises at every act."""

    image_size: int | None = None

    def reset(self, slot: int, trial: Trial) -> None: ...

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        raise ZeroDivisionError("the toy broke at once")


def test_an_episode_that_succeeds_at_its_start_is_reported() -> None:
    """The other episodes fail in their first step; the success at the start is still reported."""
    spec = replace(SPEC, thresholds=(0.5, 0.85), tasks=("+45",), seeds=(500, 48, 503))
    results = {r.seed: r.outcome for r in run_trials(BreaksAtOnce(), spec, spec.trials(), 3)}
    assert results == {48: "success", 500: "error", 503: "error"}


def test_an_episode_counts_the_steps_held_by_the_gate() -> None:
    spec = pusht_spec("replay", angles=(-30.0,), seeds=(500, 501), max_steps=24, gate=True, gate_patience=1)
    gated = run(spec, 2)
    assert all(0 < r.held <= 12 for r in gated.values()), "at most every other step"
    assert all(r.held == 0 for r in run(spec.with_agent(gate=False), 2).values())
    assert {key: result_from_json(result_to_json(r)) for key, r in gated.items()} == gated
    summary = summarise(spec, list(gated.values()))
    assert summary.groups[-1].to_json()["mean_held"] == np.mean([r.held for r in gated.values()])
