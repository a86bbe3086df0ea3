"""The policies included in the package."""

from pathlib import Path

import pytest

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import find_checkpoint, from_pretrained, n_parameters
from recap.pool.memory import MemoryView
from recap.pool.packed import write_packed
from recap.retrieval.subtrajectories import SubtrajectoryPool
from recap.suites import shipped_policies
from recap_worlds.dualarm.collection import demonstrate

TRIANGLE = {"pusher": "triangle"}
NANO = AgentConfig("pusht-nano", retrieval="contact")  # short for pusht-contact
SPEC = EvalSpec(NANO, "pusht", TRIANGLE, tasks=("+45",), seeds=(501,), thresholds=(0.85,))


@pytest.fixture(scope="module")
def agent() -> RetrievalAgent:
    made = make_agent(SPEC)
    assert isinstance(made, RetrievalAgent)
    return made


def test_included_policies_are_below_50_mb() -> None:
    for name in shipped_policies():
        size = sum(file.stat().st_size for file in find_checkpoint(name).iterdir())
        assert size < 50e6
    assert n_parameters(from_pretrained("pusht-nano"))["network"] == pytest.approx(9.5e6, rel=0.02)


def test_the_agent_uses_the_retrieval_settings_of_training(agent: RetrievalAgent) -> None:
    assert agent.policy is not None
    assert agent.n_action_steps == agent.policy.config.n_action_steps
    assert isinstance(agent.retriever.source, SubtrajectoryPool) == agent.policy.config.subtrajectories


def test_a_policy_is_loaded_by_its_path_too(agent: RetrievalAgent) -> None:
    assert agent.policy is not None
    assert from_pretrained(Path(find_checkpoint("pusht-nano"))).fingerprint == agent.policy.fingerprint


def test_another_retrieval_than_in_training_is_an_error() -> None:
    with pytest.raises(InputError, match="trained with retrieval pusht-contact, not pusht-world"):
        make_agent(EvalSpec(AgentConfig("pusht-nano", retrieval="world"), "pusht"))


def test_pusht_nano_solves_an_easy_scene(agent: RetrievalAgent) -> None:
    (result,) = run_trials(agent, SPEC, SPEC.trials(), 1)
    assert result.outcome == "success", result
    plan = agent.plan(0)
    assert plan is not None
    assert plan.chunk.residual.any(), "the residual is not zero"


def test_pusht_small_reaches_coverage_095_at_unseen_goal_angles() -> None:
    spec = EvalSpec(AgentConfig("pusht-small"), "pusht", TRIANGLE, tasks=("-30", "+15"), seeds=(510, 511))
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 4))
    assert sum(result.first_step["0.95"] is not None for result in results) >= 3


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pool with two demonstrations of an unseen task by the other robot."""
    file = tmp_path_factory.mktemp("pool") / "pots.safetensors"
    episodes = [demonstrate("lift_pot", "ur5e", seed, 0, "clean") for seed in (100_000, 100_001)]
    write_packed(MemoryView(episodes), file, images=False)
    return str(file)


def test_dualarm_small_solves_an_unseen_task_with_demonstrations_and_fails_without(shown: str) -> None:
    agent = AgentConfig("dualarm-small")
    spec = EvalSpec(agent, "dualarm", tasks=("lift_pot",), seeds=(500, 501), pool=shown)
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 2))
    assert [result.outcome for result in results] == ["success", "success"]
    nothing = spec.with_agent(matching="none")
    (lost,) = run_trials(make_agent(nothing), nothing, spec.trials()[:1], 1)
    assert lost.outcome == "failure", "without retrieved chunks the policy does not know the task"


def test_a_policy_of_another_world_is_an_error() -> None:
    with pytest.raises(InputError, match="'dualarm-small' does not act in env 'pusht'"):
        make_agent(EvalSpec(AgentConfig("dualarm-small"), "pusht"))
