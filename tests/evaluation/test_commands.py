"""An evaluation spec as a command, and the command parsed back to the same spec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.assembly import MATCHINGS, REACTIONS, AgentConfig
from recap.cli import cli
from recap.evaluation import runner
from recap.evaluation.settings import command_of, control_of, seeds_text
from recap.evaluation.spec import EvalSpec
from recap_worlds.dualarm.robotwin_tasks import SEEN, UNSEEN
from specs import arms_spec, pusht_spec


class Parsed(Exception):  # noqa: N818 - not an error
    """Raised when the command line has built its spec."""


def parsed(command: str) -> EvalSpec:
    """The spec that `recap eval` would run."""

    def stop(spec: EvalSpec, *_: object, **__: object) -> None:
        raise Parsed(spec)

    program, *words = shlex.split(command)
    assert program == "recap"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "evaluate", stop)
        with pytest.raises(Parsed) as caught:
            cli.main(words, standalone_mode=False)
    (spec,) = caught.value.args
    assert isinstance(spec, EvalSpec)
    return spec


def some(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any subset of these settings."""
    return st.fixed_dictionaries({}, optional=strategies)


OF_THE_AGENT = some(
    retrieval=st.sampled_from(["contact", "pusht-object", "world", "my/retrieval.yaml"]),
    subtrajectories=st.booleans(),
    n_candidates=st.integers(1, 500),
    n_action_steps=st.integers(1, 16),
    reaction=st.sampled_from(REACTIONS),
    min_confidence=st.floats(0, 1, exclude_max=True),
    matching=st.sampled_from(MATCHINGS),
    residual=st.booleans(),
    residual_halflife=st.floats(0, 1e6),
    denoising_steps=st.integers(1, 9),
    temperature=st.floats(0, 2),
    sampler=st.sampled_from(["euler", "unipc"]),
    device=st.sampled_from(["cpu", "cuda", "cuda:1"]),
    mask=st.sampled_from(["retrieved@3", "sham@all"]),
    noise_seed=st.integers(-3, 10**9),
    gate=st.booleans(),
    gate_patience=st.integers(0, 20),
    gate_tolerance=st.dictionaries(st.sampled_from(["position", "left.rotation"]), st.floats(1e-3, 50)),
)
OF_THE_RUN = some(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True).map(tuple),
    max_steps=st.integers(1, 1000),
    pool=st.sampled_from(["pusht-9x100", "pools/my own", "s3://bucket/pool", "-odd"]),
    thresholds=st.lists(st.floats(0, 1), min_size=1, max_size=3, unique=True).map(lambda v: tuple(sorted(v))),
    pose_noise=st.tuples(st.floats(0, 50), st.floats(0, 50)),
)
OF_THE_BOARD = some(
    pusher=st.sampled_from(["disc", "triangle"]),
    block=st.sampled_from(["tee", "ell"]),
    angles=st.lists(st.integers(-23, 24), min_size=1, max_size=4, unique=True).map(
        lambda numbers: [7.5 * n for n in numbers]
    ),
)
OF_THE_TABLE = some(
    embodiment=st.sampled_from(["viperx", "ur5e"]),
    split=st.sampled_from(["clean", "randomised"]),
    wording=st.sampled_from(["seen", "unseen"]),
    tasks=st.lists(st.sampled_from([*SEEN, *UNSEEN]), min_size=1, unique=True).map(tuple),
)


@given(
    policy=st.sampled_from(["replay", "pusht-nano", "toy_agents:Wanderer", "some/policy dir"]),
    agent=OF_THE_AGENT,
    run=OF_THE_RUN,
    board=OF_THE_BOARD,
)
def test_a_pusht_command_parses_to_the_same_spec(
    policy: str, agent: dict[str, Any], run: dict[str, Any], board: dict[str, Any]
) -> None:
    spec = pusht_spec(policy, **agent, **run, **board)
    assert parsed(command_of(spec)) == spec


@given(agent=OF_THE_AGENT, run=OF_THE_RUN, table=OF_THE_TABLE)
def test_a_dualarm_command_parses_to_the_same_spec(
    agent: dict[str, Any], run: dict[str, Any], table: dict[str, Any]
) -> None:
    spec = arms_spec("replay", **agent, **run, **table)
    assert parsed(command_of(spec)) == spec


@pytest.mark.parametrize(
    "spec",
    [
        pusht_spec(objects="pixels"),
        pusht_spec(settings_of="pusht-small", retrieval="contact"),
        EvalSpec(AgentConfig("hold"), "robots.one_arm:OneArmEnv"),
        control_of(pusht_spec("pusht-small", pusher="triangle", temperature=0.0, angles=(0.1, -7.25))),
    ],
)
def test_other_commands_parse_to_the_same_spec(spec: EvalSpec) -> None:
    assert parsed(command_of(spec)) == spec


def test_an_observation_map_is_part_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "my map.yaml").write_text("tasks: [lift, press]\n", "utf-8")
    file = str(tmp_path / "my map.yaml")
    spec = EvalSpec(AgentConfig("hold"), "robots.one_arm:OneArmEnv", env_map=file, tasks=("press",))
    assert parsed(command_of(spec)) == spec


@pytest.mark.parametrize(
    "words", ["pusht-nano", "replay --settings-of pusht-nano", "replay --retrieval pusht-object"]
)
def test_the_env_defaults_to_that_of_the_policy_or_retrieval(words: str) -> None:
    assert parsed(f"recap eval {words} --seeds 500").env == "pusht"


def test_default_settings_are_left_out_of_the_command() -> None:
    assert command_of(pusht_spec("hold", angles=(0.0, -30.0), seeds=(7, 9))) == (
        "recap eval hold --env pusht --tasks=0,-30 --seeds 7,9"
    )


def test_seeds_text_uses_ranges() -> None:
    assert [seeds_text(seeds) for seeds in ((5,), (5, 6, 7), (5, 7), (6, 5))] == ["5", "5:8", "5,7", "6,5"]
