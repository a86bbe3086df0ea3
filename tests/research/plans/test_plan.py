"""Plans are read, ordered, priced, and refused before they cost anything."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recap.assembly import retrieval_name
from recap.errors import InputError
from recap.training.data import demonstrations
from recap.training.presets import preset
from recap_research.plans.ledger import COMPILE_S, DATA_S, Ledger, data_kind, describe, estimate, kind_key
from recap_research.plans.plan import Plan, read_plan, select
from recap_research.plans.pools import collect_pools

PLANS = sorted((Path(__file__).parents[3] / "research" / "scripts" / "plans").glob("*.json"))
SEEDS = {"seeds": [500, 502]}
RUN = {"name": "ours", "preset": "pusht-nano", "evaluate": {"all": SEEDS}}

Read = Callable[..., Plan]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reading(**body: Any) -> Plan:
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(body))
        return read_plan(file, tmp_path / "out")

    return reading


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_every_plan_that_comes_along_can_be_run(file: Path, tmp_path: Path) -> None:
    plan = read_plan(file, tmp_path / "out", "cuda")
    assert plan.runs or plan.agents
    assert all(run.evaluations for run in plan.runs), "what is trained is evaluated"
    told = {name.partition("/")[0] for part in plan.parts for name in part.names}
    assert not plan.parts or {run.family for run in plan.runs} <= told, "and told"
    assert "minutes on one GPU" in list(describe(plan))[-1]


def test_a_policy_that_comes_along_retrieves_as_it_was_trained(read: Read) -> None:
    (found,) = read(agents={"shipped": {"agent": "pusht-small", **SEEDS}}).agents
    assert retrieval_name(found.spec.agent, found.spec.suite) == "pusht-contact"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"runs": [{**RUN, "preset": "pusht-nanno"}]}, "did you mean 'pusht-nano'?"),
        ({"runs": [{**RUN, "set": ["policy.residul=false"]}]}, "did you mean 'residual'?"),
        ({"runs": [{**RUN, "set": ["co_training=true"]}]}, "instead of retrieving from it"),
        ({"runs": [{**RUN, "evaluate": {"all": {**SEEDS, "taks": ["0"]}}}]}, "did you mean 'tasks'?"),
        ({"runs": [{**RUN, "evaluate": {"all": {**SEEDS, "retrieval": "pusht-objct"}}}]}, "'pusht-object'?"),
        ({"runs": [{**RUN, "evaluate": {"all": {**SEEDS, "options": {"blok": "el"}}}}]}, "option of env"),
        ({"runs": [{**RUN, "evaluate": {"all": {**SEEDS, "tasks": ["north"]}}}]}, "'north' is not a number"),
        ({"runs": [{**RUN, "evaluate": {"all": {}}}]}, "lacks a value"),
        ({"runs": [{**RUN, "sets": []}]}, "run has an unknown key 'sets': did you mean 'set'?"),
        ({"runs": [RUN, RUN]}, "two runs are called 'ours'"),
        ({"runs": [{**RUN, "paper": "our"}]}, "did you mean 'ours'?"),
        ({"runs": [{**RUN, "set": ["init={out}/checkpoints/theirs-0"]}]}, "which no run of the plan makes"),
        ({"runs": [{**RUN, "set": ["target={out}/pools/x.safetensors"]}]}, "does not collect it"),
        ({"runs": [RUN], "agents": {"ours": SEEDS}}, "unknown agent 'ours'"),
        ({"runs": [{**RUN, "name": "replay"}], "agents": {"replay": SEEDS}}, "both a run and an agent"),
        ({"runs": [RUN], "pools": {"x": {"pusher": "dics"}}}, "lacks a value"),
        ({"runs": [RUN], "pools": {"../x": {"of": "pusht-9x100"}}}, "'../x' cannot name a file"),
        ({"runs": [{**RUN, "name": "a/b"}]}, "'a/b' cannot name a file"),
        ({"agents": {"": SEEDS}}, "'' cannot name a file"),
        (
            {"runs": [RUN], "pools": {"x": {"of": "pusht-9x100", "n": -5}}},
            "-5 demonstrations cannot be chosen",
        ),
        ({"runs": [RUN], "parts": [{"title": "A", "runs": ["urs"]}]}, "did you mean 'ours'?"),
        ({"runs": [RUN], "parts": [{"title": "A", "runs": ["ours/al"]}]}, "no evaluation 'ours/al'"),
        ({"ruins": [RUN]}, "plan has an unknown key 'ruins': did you mean 'runs'?"),
        ({}, "trains nothing and rolls nothing out"),
    ],
)
def test_mistakes_are_one_line(read: Read, body: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**body)
    assert words in str(caught.value)
    assert str(caught.value).startswith("plan ")
    assert "\n" not in str(caught.value)


def test_every_run_has_its_first_seed_before_any_has_its_second(read: Read) -> None:
    other = {**RUN, "name": "other", "seeds": [0, 1]}
    plan = read(runs=[{**RUN, "seeds": [4, 5, 6]}, other])
    assert [run.name for run in plan.runs] == ["ours-4", "other-0", "ours-5", "other-1", "ours-6"]
    assert [run.config.seed for run in plan.runs] == [4, 0, 5, 1, 6]


def test_a_policy_is_rolled_out_with_its_own_retrieval_from_where_it_is_kept(
    read: Read, tmp_path: Path
) -> None:
    (run,) = read(runs=[{**RUN, "preset": "pusht-nano-world"}], autoencoder={"block": "pusht-nano"}).runs
    (evaluation,) = run.evaluations
    assert evaluation.name == "ours-0-all"
    spec = evaluation.spec
    assert (spec.agent.retrieval, spec.env, spec.seeds) == ("", "pusht", (500, 501))
    assert spec.options == {"pusher": "triangle", "block": "tee"}
    assert spec.agent.policy == str(tmp_path / "out/checkpoints/ours-0")
    assert run.config.autoencoder == str(tmp_path / "out/autoencoders/world"), (
        "the named one is of another frame"
    )


def test_a_policy_that_sees_pixels_is_given_no_autoencoder(read: Read) -> None:
    (run,) = read(runs=[{**RUN, "preset": "pusht-pi0-tiny"}], autoencoder={"block": "pusht-nano"}).runs
    assert run.config.autoencoder is None


def test_runs_that_differ_in_what_they_predict_share_their_data() -> None:
    settings = ["policy.residual=false", "policy.future_image=false", "policy.future_state=false", "seed=3"]
    ours = data_kind(preset("pusht-nano"))
    assert data_kind(preset("pusht-nano", settings)) == ours
    world = ["policy.retrieval_name=pusht-world", "policy.canonical=false"]
    for changes in (world, ["pairs.k=2"], ["n_demonstrations=9"], ["policy.inputs=S"]):
        other = data_kind(preset("pusht-nano", changes))
        assert other != ours
        assert kind_key(other) != kind_key(ours)


def test_data_and_compiling_are_paid_once(read: Read) -> None:
    absolute = {**RUN, "name": "absolute", "set": ["policy.residual=false"]}
    plan = read(runs=[{**RUN, "seeds": [0, 1]}, absolute], autoencoder="pusht-nano")
    first, absolute_s, second = estimate(plan).values()
    assert (first.data_s, first.compile_s) == (DATA_S, COMPILE_S)
    assert absolute_s.data_s == second.data_s == 0
    assert absolute_s.compile_s == second.compile_s < COMPILE_S
    assert list(estimate(plan, ["ours-0"])) == ["absolute-0", "ours-1"]


def test_the_ledger_adds_the_pieces_of_a_run_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for seconds in (30.0, 90.0):
        ledger.note(run="a", data_s=1.0, compile_s=0.0, training_s=seconds)
    ledger.note(evaluation="a-all", evaluation_s=600.0)
    with ledger.file.open("a") as file:
        file.write('{"run": "a", "trai')
    assert ledger.seconds_of("a") == {"data_s": 2.0, "compile_s": 0.0, "training_s": 120.0}
    assert ledger.gpu_minutes() == 2


def test_a_part_of_a_plan_tells_of_itself_alone(read: Read) -> None:
    other = {**RUN, "name": "other"}
    part = {"title": "Both", "runs": ["ours", "other", "replay"], "reference": "replay"}
    plan = read(runs=[RUN, other], agents={"replay": SEEDS}, parts=[part])
    chosen = select(plan, ["ours"])
    assert [run.family for run in chosen.runs] == ["ours"]
    assert chosen.agents == ()
    assert [(part.names, part.reference) for part in chosen.parts] == [(("ours",), None)]
    with pytest.raises(InputError, match="no run or agent 'our': did you mean 'ours'"):
        select(plan, ["our"])


def test_a_pool_may_be_chosen_from_one_that_is_there(read: Read, tmp_path: Path) -> None:
    body = {
        "few": {"of": "pusht-9x100", "n": 18},
        "two": {"of": "pusht-9x100", "where": ["goal_angle=-45", "goal_angle=45"], "n": 4},
    }
    plan = read(runs=[RUN], pools=body)
    assert collect_pools(plan.pools, tmp_path, 1) == ["few", "two"]
    goals = {name: goals_of(tmp_path / f"{name}.safetensors") for name in body}
    assert goals["few"] == dict.fromkeys(range(-60, 61, 15), 2)
    assert goals["two"] == {-45: 2, 45: 2}


def goals_of(file: Path) -> dict[int, int]:
    found = [e.goal for e in demonstrations(str(file))]
    return dict(Counter(round(float(np.degrees(goal[2]))) for goal in found if goal is not None))
