"""Replay with a policy's settings as its control: the same in everything but the network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recap.assembly import retrieval_name
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import read_provenance
from recap.evaluation.runner import evaluate, provenance
from recap.evaluation.settings import (
    SETTINGS,
    command_of,
    control_of,
    differences,
    recorded_settings,
    settings_text,
)
from recap.evaluation.spec import EvalSpec
from recap.policies.checkpoint import save_pretrained
from recap.pool.memory import MemoryView
from recap.pool.opening import open_pool
from recap.pool.packed import write_packed
from recap.types import EpisodeResult
from specs import arms_spec, pusht_spec
from toy_policy import toy_config, toy_policy

SMALL = pusht_spec(
    "pusht-small",
    pusher="triangle",
    retrieval="contact",
    angles=(-30.0, 0.0),
    seeds=(500, 501),
    max_steps=120,
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten demonstrations, so few that chunks reach their ends."""
    view = open_pool("pusht-9x100").view()
    file = tmp_path_factory.mktemp("pool") / "ten.safetensors"
    chosen = [replace(view.episode(name), images={}) for name in view.episode_ids[::90]]
    write_packed(MemoryView(chosen), file, images=False)
    return str(file)


def rolled(spec: EvalSpec) -> tuple[list[EpisodeResult], dict[str, Any]]:
    agent = make_agent(spec)
    return list(run_trials(agent, spec, spec.trials(), len(spec.trials()))), provenance(agent)[SETTINGS]


def test_replay_with_a_policys_settings_equals_the_policy_without_residual(pool: str) -> None:
    spec = replace(SMALL, pool=pool)
    control, of_control = rolled(spec.with_agent(policy="replay", settings_of="pusht-small"))
    without, of_policy = rolled(spec.with_agent(residual=False))
    assert control == without, "steps, coverage and the first step past each threshold"
    plain, of_plain = rolled(spec.with_agent(policy="replay"))
    assert plain != control, "plain replay uses no sub-trajectories"
    assert of_control == {k: v for k, v in of_policy.items() if not k.startswith("policy.")}
    assert {k for k in of_plain if of_plain[k] != of_control[k]} == {"retrieval.subtrajectories"}


def test_replay_with_a_policys_settings_equals_it_without_residual_with_two_arms() -> None:
    spec = arms_spec("dualarm-small", pool="dualarm-debug-ur5e", tasks=("move_can_pot",), seeds=(500,))
    control, of_control = rolled(spec.with_agent(policy="replay", settings_of="dualarm-small"))
    without, of_policy = rolled(spec.with_agent(residual=False))
    assert control == without
    assert of_control == {k: v for k, v in of_policy.items() if not k.startswith("policy.")}
    _, of_plain = rolled(spec.with_agent(policy="replay"))
    assert of_plain == of_control, "with two arms plain replay has the policy's settings already"


def test_a_given_n_action_steps_overrides_the_policys(pool: str) -> None:
    like = replace(SMALL, pool=pool).with_agent(policy="replay", settings_of="pusht-small", n_action_steps=4)
    assert provenance(make_agent(like))[SETTINGS]["n_action_steps"] == 4


def test_settings_of_gives_the_policys_chunk_size_and_n_action_steps(tmp_path: Path, pool: str) -> None:
    save_pretrained(toy_policy(toy_config(inputs="S", chunk_size=4, n_action_steps=2)), tmp_path / "policy")
    like = pusht_spec(settings_of=str(tmp_path / "policy"), pool=pool)
    kept = provenance(make_agent(like))[SETTINGS]
    assert (kept["retrieval.chunk_size"], kept["n_action_steps"]) == (4, 2)
    assert kept["retrieval.subtrajectories"] is False, "as in that policy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"settings_of": "pusht-small", "retrieval": "object"},
            "trained with retrieval pusht-contact, not pusht-object",
        ),
        ({"settings_of": "dualarm-small"}, "policy 'dualarm-small' does not act in env 'pusht'"),
        ({"settings_of": "runs/nowhere"}, "runs/nowhere"),
    ],
)
def test_settings_of_a_policy_that_does_not_fit_are_an_error(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_agent(SMALL.with_agent(policy="replay", **changes))


def test_settings_of_without_replay_is_an_error() -> None:
    with pytest.raises(InputError, match="--settings-of is for replay"):
        SMALL.with_agent(settings_of="pusht-nano")


def test_the_agents_settings_are_recorded_in_the_run_directory(tmp_path: Path, pool: str) -> None:
    spec = replace(SMALL, pool=pool, tasks=("0",), seeds=(500,), max_steps=3)
    spec = spec.with_agent(policy="replay", settings_of="pusht-small")
    evaluate(spec, tmp_path / "run")
    kept = read_provenance(tmp_path / "run")[SETTINGS]
    assert kept["n_action_steps"] == 8
    assert kept["retrieval.subtrajectories"] is True
    assert kept["retrieval.chunk_size"] == 8
    assert kept["retrieval.max_distance"] == "none"
    assert kept == json.loads(json.dumps(provenance(make_agent(spec))[SETTINGS], allow_nan=False))
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["agent"]["settings_of"] == "pusht-small"


def test_a_policy_that_does_not_retrieve_has_no_retrieval_settings() -> None:
    of_replay = {"retrieval": "pusht-world", "retrieval.trim": 0, "n_action_steps": 4}
    found = differences(
        (SMALL.with_agent(policy="replay"), of_replay), (SMALL, {"retrieval": "none", "n_action_steps": 4})
    )
    assert found.settings["retrieval"] == ("pusht-world", "none")
    assert found.settings["retrieval.trim"] == (0, "–")


def test_settings_text_formats_values() -> None:
    values = [True, None, 0.5, [1, 2], {"a": 1.0}, "none", list(range(40))]
    words = ["yes", "none", "0.5", "1, 2", "a 1", "none"]
    assert [settings_text(value) for value in values][:-1] == words
    assert settings_text(values[-1]).endswith("… (40)")


def test_a_control_uses_the_retrieval_of_its_policy() -> None:
    spec = pusht_spec("replay", settings_of="pusht-nano", seeds=(500, 501))
    assert retrieval_name(spec.agent, spec.suite) == "pusht-contact"


def test_the_control_of_an_evaluation_is_one_command() -> None:
    spec = replace(SMALL, pool="pools/mine").with_agent(
        residual_halflife=20.0, temperature=0.0, n_action_steps=4
    )
    control = control_of(spec)
    assert control is not None
    assert control == replace(SMALL, pool="pools/mine").with_agent(
        policy="replay", settings_of="pusht-small", n_action_steps=4, retrieval=""
    ), "the retrieval comes from the policy of settings_of"
    assert command_of(control) == (
        "recap eval replay --env pusht --env.pusher triangle --settings-of pusht-small --action-steps 4 "
        "--pool pools/mine --max-steps 120 --tasks=-30,0 --seeds 500:502"
    )
    assert control_of(SMALL.with_agent(policy="replay")) is None
    assert control_of(SMALL.with_agent(matching="none")) is None, (
        "a policy without matches has no replay control"
    )


@pytest.mark.parametrize("damaged", [{}, {SETTINGS: "all"}, {SETTINGS: [1]}, {SETTINGS: None}])
def test_an_invalid_settings_record_is_none(damaged: dict[str, Any]) -> None:
    assert recorded_settings(damaged) is None
