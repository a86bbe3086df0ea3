"""Two arms in an evaluation: the same trials, files and intervals as anywhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.assembly import AgentSpec, assemble_agent
from recap.envs.dualarm.collection import demonstrate
from recap.envs.dualarm.env import DualArmEnv
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.commands import command_of
from recap.evaluation.comparison import compare
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import open_run, read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.pool.memory import MemoryPool
from recap.retrieval.config import looking_after
from recap.retrieval.presets import preset

TASK = "lift_pot"
SPEC = EvalSpec(agent="expert", env="dualarm", tasks=(TASK,), seeds=(500, 501))


@pytest.fixture(scope="module")
def pool() -> MemoryPool:
    """Demonstrations by the other arms."""
    env = DualArmEnv(TASK, "ur5e", image_size=0)
    return MemoryPool([demonstrate(TASK, "ur5e", 100_000 + n, 0, env=env) for n in range(6)])


def test_an_evaluation_is_resumed_counted_and_compared(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", SPEC) as run:
        (first,) = run_trials(make_agent("expert", SPEC), SPEC, SPEC.trials()[:1], 1)
        run.append(first)
    summary = evaluate(SPEC, tmp_path / "run")
    assert summary.n_run == 1
    (group,) = summary.angles
    assert (group.name, group.rates["0.5"].k, group.rates["0.5"].n) == (TASK, 2, 2)
    assert set(summary.to_json()) == {"by_task", "unseen", "all", "interval"}
    spec, results = read_info(tmp_path / "run")
    assert (spec, [r.outcome for r in results]) == (SPEC, ["success", "success"])
    failed = replace(results[0], outcome="failure", first_step={"0.5": None})
    pairs = compare((spec, [failed, results[1]]), (spec, results)).thresholds["0.5"]["all"]
    assert (pairs.n, pairs.both, pairs.only_b) == (2, 1, 1)


@pytest.mark.parametrize("n_action_steps", [1, 8])
def test_other_arms_do_what_the_pool_shows_wherever_the_pot_stands(
    pool: MemoryPool, n_action_steps: int
) -> None:
    spec = EvalSpec(agent="replay", env="dualarm", tasks=(TASK,), seeds=(500, 501, 502), pool="made")
    agent = assemble_agent(AgentSpec("replay", env="dualarm", n_action_steps=n_action_steps), pool)
    results = list(run_trials(agent, spec, spec.trials(), 3))
    assert sum(r.outcome == "success" for r in results) >= 2


def test_only_two_arms_that_look_often_retrieve_otherwise() -> None:
    arms, board = preset("dualarm-aligned")[1], preset("pusht-aligned")[1]
    assert looking_after(arms, 8) is looking_after(arms, 16) is looking_after(arms, None) is arms
    assert looking_after(board, 1) is board
    often = looking_after(arms, 1)
    assert often.lead == 2
    assert often.stall_penalty * 8 == arms.stall_penalty
    assert often.metric_fingerprint == arms.metric_fingerprint, "a policy may look as often as it likes"


def test_pictures_are_taken_only_when_a_chunk_is_planned(pool: MemoryPool) -> None:
    agent = assemble_agent(AgentSpec("replay", env="dualarm"), pool)
    agent.reset(0, SPEC.trials()[0])
    env = DualArmEnv(TASK, image_size=0)
    env.reset(seed=500)
    looked = []
    for _ in range(17):
        looked.append(agent.wants_pictures(0))
        env.step(agent.act([0], [env.observe(0)])[0])
    assert np.flatnonzero(looked).tolist() == [0, 8, 16]


def test_specs_hold_the_settings_of_their_own_environment() -> None:
    arms, board = SPEC.to_json(), EvalSpec(agent="still").to_json()
    assert EvalSpec.from_json(arms) == SPEC
    assert not {"pusher", "angles", "thresholds"} & set(arms)
    assert not {"tasks", "embodiment", "wording"} & set(board)
    assert command_of(SPEC) == "recap eval expert --env dualarm --task lift_pot --seeds 500:502"
    assert len(summarise(SPEC, []).angles) == 1
    blurred = replace(SPEC, pose_noise_mm=5.0, pose_noise_deg=2.0)
    assert EvalSpec.from_json(blurred.to_json()) == blurred
    assert command_of(blurred).startswith("recap eval expert --env dualarm --pose-noise 5,2 ")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tasks": ("lift_pan",)}, "lift_pot"),
        ({"objects": "pixels"}, "of pusht"),
        ({"pose_noise_px": 4.0}, "in px are of pusht"),
        ({"pose_noise_mm": -1.0}, "no deviation"),
        ({"wording": "rude"}, "wording"),
        ({"tasks": (TASK, TASK)}, "given twice"),
        ({"angles": (0.0,)}, "goal angles are of pusht"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        EvalSpec(agent="still", env="dualarm", **settings)  # type: ignore[arg-type]


def test_a_task_of_two_arms_is_refused_on_the_board() -> None:
    with pytest.raises(InputError, match="task lift_pot is of dualarm"):
        EvalSpec(agent="still", tasks=(TASK,))


def test_for_those_who_do_not_look_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DualArmEnv, "draw", lambda *_: pytest.fail("nobody looks"))
    (result,) = run_trials(make_agent("expert", SPEC), SPEC, SPEC.trials()[:1], 1)
    assert result.outcome == "success", result.error


def test_a_pool_of_another_robot_is_named_as_such() -> None:
    spec = replace(SPEC, agent="replay", pool="pusht-9x100")
    (result,) = run_trials(make_agent("replay", spec), spec, spec.trials()[:1], 1)
    assert result.outcome == "error"
    assert "2-D proprioception, 2 arms have 20: it is of another robot" in str(result.error)
