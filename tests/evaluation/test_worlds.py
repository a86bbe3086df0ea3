"""Evaluation of two arms: the same trials, files and intervals as in other worlds."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from recap.assembly import AgentConfig, assemble_agent
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import open_run, read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.settings import command_of
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import compare, summarise
from recap.pool.memory import MemoryPool
from recap.retrieval.config import scale_for_replan_interval
from recap.retrieval.presets import find_retrieval
from recap.suites import Options, Suite, suites
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.env import DualArmEnv
from specs import arms_spec, pusht_spec

TASK = "lift_pot"
SPEC = arms_spec("expert", tasks=(TASK,), seeds=(500, 501))
ARMS = suites()["dualarm"]


@pytest.fixture(scope="module")
def pool() -> MemoryPool:
    """Demonstrations by the other embodiment."""
    env = DualArmEnv(TASK, "ur5e", image_size=0)
    return MemoryPool([demonstrate(TASK, "ur5e", 100_000 + n, 0, env=env) for n in range(6)])


def test_a_dualarm_evaluation_is_resumed_summarised_and_compared(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", SPEC) as run:
        (first,) = run_trials(make_agent(SPEC), SPEC, SPEC.trials()[:1], 1)
        run.append(first)
    summary = evaluate(SPEC, tmp_path / "run")
    assert summary.n_run == 1
    (group,) = summary.tasks
    assert (group.name, group.rates["0.5"].k, group.rates["0.5"].n) == (TASK, 2, 2)
    assert set(summary.to_json()) == {"by_task", "unseen", "all", "interval"}
    spec, results = read_info(tmp_path / "run")
    assert (spec, [r.outcome for r in results]) == (SPEC, ["success", "success"])
    failed = replace(results[0], outcome="failure", first_step={"0.5": None})
    pairs = compare((spec, [failed, results[1]]), (spec, results)).thresholds["0.5"]["all"]
    assert (pairs.n, pairs.both, pairs.only_b) == (2, 1, 1)


@pytest.mark.parametrize("n_action_steps", [1, 8])
def test_replay_from_another_embodiments_pool_lifts_the_pot(pool: MemoryPool, n_action_steps: int) -> None:
    spec = arms_spec(tasks=(TASK,), seeds=(500, 501, 502), pool="made")
    agent = assemble_agent(AgentConfig(n_action_steps=n_action_steps), pool, suite=ARMS)
    results = list(run_trials(agent, spec, spec.trials(), 3))
    assert sum(r.outcome == "success" for r in results) >= 2


def test_scale_for_replan_interval_changes_only_frequent_dualarm_replanning() -> None:
    arms, board = find_retrieval("dualarm-parts")[1], find_retrieval("pusht-object")[1]
    assert all(scale_for_replan_interval(arms, n) is arms for n in (8, 16, None))
    assert scale_for_replan_interval(board, 1) is board
    often = scale_for_replan_interval(arms, 1)
    assert often.lead == 2
    assert often.stall_penalty * 8 == arms.stall_penalty
    assert often.metric_fingerprint == arms.metric_fingerprint, (
        "the replan interval is not part of the metric"
    )


def test_images_are_wanted_only_when_a_chunk_is_planned(pool: MemoryPool) -> None:
    agent = assemble_agent(AgentConfig(), pool, suite=ARMS)
    agent.reset(0, SPEC.trials()[0])
    env = DualArmEnv(TASK, image_size=0)
    env.reset(seed=500)
    looked = []
    for _ in range(17):
        looked.append(agent.needs_images(0))
        env.step(agent.act([0], [env.observe(0)])[0])
    assert np.flatnonzero(looked).tolist() == [0, 8, 16]


def test_a_spec_holds_the_options_of_its_env() -> None:
    arms, board = SPEC.to_json(), pusht_spec("hold").to_json()
    assert EvalSpec.from_json(arms) == SPEC
    assert set(arms["options"]) == {"embodiment", "split", "wording"}
    assert set(board["options"]) == {"pusher", "block"}
    assert command_of(SPEC) == "recap eval expert --env dualarm --tasks=lift_pot --seeds 500:502"
    assert len(summarise(SPEC, []).tasks) == 1
    noisy = replace(SPEC, pose_noise=(0.005, 2.0))
    assert EvalSpec.from_json(noisy.to_json()) == noisy
    assert command_of(noisy).startswith("recap eval expert --env dualarm --pose-noise 0.005,2 ")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tasks": ("lift_pan",)}, "lift_pot"),
        ({"objects": "pixels"}, "env 'dualarm' cannot find poses in pixels"),
        ({"pose_noise": (-1.0, 0.0)}, "not a deviation"),
        ({"wording": "rude"}, "unknown wording 'rude'"),
        ({"split": "dirty"}, "unknown split 'dirty'"),
        ({"embodiment": "viper"}, "'viper'"),
        ({"tasks": (TASK, TASK)}, "given twice"),
        ({"tasks": ("0",)}, "unknown task '0'"),
    ],
)
def test_invalid_settings_are_errors(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        arms_spec("hold", **settings)


def test_a_dualarm_task_in_pusht_is_an_error() -> None:
    with pytest.raises(InputError, match="goal angle 'lift_pot' is not a number"):
        EvalSpec(AgentConfig("hold"), "pusht", tasks=(TASK,))


def test_no_images_are_rendered_for_agents_without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DualArmEnv, "draw", lambda *_: pytest.fail("nobody looks"))
    (result,) = run_trials(make_agent(SPEC), SPEC, SPEC.trials()[:1], 1)
    assert result.outcome == "success", result.error


def test_a_pool_of_another_robot_is_an_error() -> None:
    spec = replace(SPEC, pool="pusht-9x100").with_agent(policy="replay")
    with pytest.raises(
        InputError,
        match=r"2-D actions and 2-D .* 20-D and 20-D: it is of another robot",
    ):
        make_agent(spec)


class Numbered(Suite):
    """A world with one numeric option."""

    name: ClassVar[str] = "belt"
    options: ClassVar[Options] = {"speed": 1.0}


def test_a_string_for_a_numeric_option_is_an_error() -> None:
    with pytest.raises(InputError, match="option speed of env 'belt' is a number, not 'fast'"):
        Numbered().check({"speed": "fast"})
    assert Numbered().check({"speed": 2})["speed"] == 2
