"""The policy that comes with the package."""

from pathlib import Path

import pytest

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import EvalSpec, run_trials
from recap.policies.checkpoint import SHIPPED, find_checkpoint, from_pretrained, n_parameters
from recap.retrieval.hindsight import HindsightPool

SPEC = EvalSpec("pusht-nano", pusher="triangle", angles=(45.0,), seeds=(501,), thresholds=(0.85,))


@pytest.fixture(scope="module")
def agent() -> RetrievalAgent:
    made = make_agent("pusht-nano", SPEC)
    assert isinstance(made, RetrievalAgent)
    return made


def test_it_is_small_enough_to_come_along() -> None:
    for name in SHIPPED:
        size = sum(file.stat().st_size for file in find_checkpoint(name).iterdir())
        assert size < 50e6
    assert n_parameters(from_pretrained("pusht-nano"))["network"] == pytest.approx(9.5e6, rel=0.02)


def test_it_retrieves_as_it_was_trained_to(agent: RetrievalAgent) -> None:
    assert agent.policy is not None
    assert agent.n_action_steps == agent.policy.config.n_action_steps
    assert isinstance(agent.retriever.source, HindsightPool) == agent.policy.config.hindsight


def test_it_is_found_by_its_path_too(agent: RetrievalAgent) -> None:
    assert agent.policy is not None
    assert from_pretrained(Path(find_checkpoint("pusht-nano"))).fingerprint == agent.policy.fingerprint


def test_another_mode_is_refused() -> None:
    with pytest.raises(InputError, match="'pusht-nano' was trained in mode aligned: give --mode aligned"):
        make_agent("pusht-nano", EvalSpec("pusht-nano", mode="single"))


def test_it_solves_an_easy_scene(agent: RetrievalAgent) -> None:
    (result,) = run_trials(agent, SPEC, SPEC.trials(), 1)
    assert result.outcome == "success", result
    plan = agent.plan(0)
    assert plan is not None
    assert plan.chunk.residual.any(), "it says more than what was retrieved"
