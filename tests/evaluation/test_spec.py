"""What an evaluation is asked for, and how a run directory keeps it."""

import json
import math
from dataclasses import replace

import pytest

from recap.errors import InputError
from recap.evaluation.spec import EvalSpec

SPEC = EvalSpec("toy_agents:Wanderer", angles=(-30.0, 45.0), seeds=tuple(range(500, 507)), max_steps=30)


def test_spec_round_trip_and_trials() -> None:
    spec = EvalSpec("still", pusher="triangle", angles=(7.5, 0.0), seeds=(3, 1))
    assert EvalSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert [(t.task, t.seed) for t in spec.trials()] == [("+7.5", 3), ("+7.5", 1), ("0", 3), ("0", 1)]
    assert len(EvalSpec("still").trials()) == 450


def test_settings_of_a_policy_survive_json() -> None:
    spec = EvalSpec(
        "pusht-nano",
        n_action_steps=2,
        denoising_steps=5,
        temperature=0.0,
        sampler="unipc",
        matching="random",
        hindsight=False,
        residual=False,
        half_at=15.0,
        device="cuda",
    )
    assert EvalSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert EvalSpec.from_json({"agent": "pusht-nano"}) == EvalSpec("pusht-nano"), "None stays None"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": "push"}, "unknown env 'push': did you mean 'pusht'"),
        ({"pusher": "disk"}, "unknown pusher 'disk': did you mean 'disc'"),
        ({"block": "te"}, "unknown block 'te': did you mean 'tee'"),
        ({"half_at": math.inf}, "half_at inf is no distance"),
        ({"angles": (math.nan,)}, "goal angle nan is not a number"),
        ({"angles": ()}, "no angles to evaluate"),
        ({"angles": (45.0, 45.0)}, r"angle \+45 is given twice"),
        ({"seeds": ()}, "no seeds to evaluate"),
        ({"seeds": (42, 43, 42)}, "seed 42 is given twice"),
        ({"seeds": (-1,)}, "seed -1 is negative"),
        ({"max_steps": 0}, "max_steps 0"),
        ({"thresholds": (0.95, 0.85)}, "not rising fractions"),
        ({"thresholds": ()}, "not rising fractions"),
        ({"matching": "retrieve"}, "unknown matching 'retrieve': did you mean 'retrieved'"),
        ({"reaction": "halt"}, "unknown reaction 'halt'"),
    ],
)
def test_spec_refuses(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SPEC, **change)  # type: ignore[arg-type]


def test_spec_from_json_refuses_other_things() -> None:
    values = SPEC.to_json()
    with pytest.raises(InputError, match="lacks key 'agent'"):
        EvalSpec.from_json({k: v for k, v in values.items() if k != "agent"})
    before_modes = {k: v for k, v in values.items() if k != "mode"}
    assert EvalSpec.from_json(before_modes) == SPEC, "a run from before a setting was there is still read"
    with pytest.raises(InputError, match="unknown key 'colour'"):
        EvalSpec.from_json({**values, "colour": 1})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seeds", 3, "seeds is 3, not a list of int"),
        ("seeds", ["500"], r"seeds is \['500'\], not a list of int"),
        ("denoising_steps", "two", "denoising_steps is 'two', not int"),
        ("residual", "false", "residual is 'false', not bool"),  # any text would be true
        ("residual", 1, "residual is 1, not bool"),
        ("max_steps", True, "max_steps is True, not int"),
        ("max_steps", None, "max_steps is None, not int"),
        ("pose_noise_px", "4", "pose_noise_px is '4', not float"),
        ("block", 5, "block is 5, not str"),
    ],
)
def test_spec_from_json_refuses_values_of_another_kind(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EvalSpec.from_json({**SPEC.to_json(), key: value})
