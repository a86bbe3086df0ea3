"""The spec of an evaluation, and its JSON form."""

import json
import math
from typing import Any

import pytest

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.spec import EvalSpec
from recap_worlds.pusht.tasks import ANGLES, EVALUATION_SEEDS, THRESHOLDS, angle_key
from specs import arms_spec, pusht_spec

SPEC = pusht_spec("toy_agents:Wanderer", angles=(-30.0, 45.0), seeds=tuple(range(500, 507)), max_steps=30)


def again(spec: EvalSpec) -> EvalSpec:
    """The spec after a round trip through JSON."""
    return EvalSpec.from_json(json.loads(json.dumps(spec.to_json())))


def test_a_spec_survives_json_and_lists_its_trials() -> None:
    spec = pusht_spec("hold", pusher="triangle", angles=(7.5, 0.0), seeds=(3, 1))
    assert again(spec) == spec
    assert [(t.task, t.seed) for t in spec.trials()] == [("+7.5", 3), ("+7.5", 1), ("0", 3), ("0", 1)]
    assert len(pusht_spec("hold").trials()) == 450


def test_missing_settings_are_the_suites_defaults() -> None:
    spec = EvalSpec(AgentConfig("hold"), "pusht")
    assert spec == pusht_spec("hold")
    assert spec.tasks == tuple(map(angle_key, ANGLES))
    assert (spec.seeds, spec.thresholds) == (EVALUATION_SEEDS, THRESHOLDS)
    assert spec.options == {"pusher": "disc", "block": "tee"}
    assert [spec.steps_of("0"), pusht_spec("hold", max_steps=7).steps_of("0")] == [300, 7]


def test_tasks_are_normalised_to_their_keys() -> None:
    spec = EvalSpec(AgentConfig("hold"), "pusht", tasks=("405", "-0", "7.50"))
    assert spec.tasks == ("+45", "0", "+7.5")
    assert spec.task_keys == ("0", "+7.5", "+45"), "results list tasks in the suite's order"


def test_settings_of_a_policy_survive_json() -> None:
    spec = pusht_spec(
        "pusht-nano",
        n_action_steps=2,
        denoising_steps=5,
        temperature=0.0,
        sampler="unipc",
        matching="random",
        subtrajectories=False,
        residual=False,
        residual_halflife=15.0,
        device="cuda",
    )
    assert again(spec) == spec
    bare = EvalSpec.from_json({"agent": {"policy": "pusht-nano"}, "env": "pusht"})
    assert bare == pusht_spec("pusht-nano"), "None stays None"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pusher": "disk"}, "unknown pusher 'disk': did you mean 'disc'"),
        ({"block": "te"}, "unknown block 'te': did you mean 'tee'"),
        ({"residual_halflife": math.inf}, "residual_halflife inf is no distance"),
        ({"angles": (math.nan,)}, r"goal angle '\+?nan' is not a number"),
        ({"angles": (45.0, 45.0)}, r"task \+45 is given twice"),
        ({"angles": (45.0, -315.0)}, r"task \+45 is given twice"),
        ({"seeds": (42, 43, 42)}, "seed 42 is given twice"),
        ({"seeds": (-1,)}, "seed -1 is negative"),
        ({"max_steps": 0}, "max_steps 0"),
        ({"thresholds": (0.95, 0.85)}, "thresholds .* are not ascending"),
        ({"thresholds": (0.5, math.nan)}, "thresholds .* are not ascending"),
        ({"matching": "retrieve"}, "unknown matching 'retrieve': did you mean 'retrieved'"),
        ({"reaction": "halt"}, "unknown reaction 'halt'"),
    ],
)
def test_invalid_settings_are_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pusht_spec("replay", **change)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("push", {}, "unknown env 'push': did you mean 'pusht'"),
        ("pusht", {"pushr": "disc"}, "unknown option of env 'pusht' 'pushr': did you mean 'pusher'"),
        ("pusht", {"embodiment": "ur5e"}, "'embodiment'"),
        ("dualarm", {"pusher": "disc"}, "'pusher'"),
        ("dualarm", {"embodiment": "panda"}, "'panda'"),
    ],
)
def test_options_of_another_env_are_errors(env: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EvalSpec(AgentConfig("hold"), env, options)


def test_spec_from_json_with_missing_or_unknown_keys_is_an_error() -> None:
    values = SPEC.to_json()
    with pytest.raises(InputError, match="`agent`"):
        EvalSpec.from_json({k: v for k, v in values.items() if k != "agent"})
    before = {k: v for k, v in values.items() if k != "pose_noise"}
    assert EvalSpec.from_json(before) == SPEC, "older runs lack newer settings and are still read"
    with pytest.raises(InputError, match="unknown key 'colour'"):
        EvalSpec.from_json({**values, "colour": 1})
    with pytest.raises(InputError, match=r"unknown key 'agent\.mode'"):
        EvalSpec.from_json({**values, "agent": {**values["agent"], "mode": "single"}})
    with pytest.raises(InputError, match=r"mine\.yaml"):
        EvalSpec.from_json([], "mine.yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seeds", 3),
        ("seeds", ["500"]),
        ("agent.denoising_steps", "two"),
        ("agent.residual", "false"),  # any non-empty string would be true
        ("agent.residual", 1),
        ("agent.reaction", 5),
        ("max_steps", True),
        ("pose_noise", "4"),
        ("pose_noise", [4.0]),
        ("env", 5),
        ("options", ["disc"]),
    ],
)
def test_spec_from_json_with_values_of_another_type_is_an_error(key: str, value: object) -> None:
    values: Any = SPEC.to_json()
    *outer, last = key.split(".")
    inner = values["agent"] if outer else values
    inner[last] = value
    with pytest.raises(InputError, match=f"cannot be read at '{key}"):
        EvalSpec.from_json(values)


def test_with_agent_changes_only_the_agent() -> None:
    other = arms_spec("expert", tasks=("lift_pot",)).with_agent(policy="replay", n_action_steps=4)
    assert other == arms_spec("replay", tasks=("lift_pot",), n_action_steps=4)
