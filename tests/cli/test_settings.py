"""Options generated from configuration fields, and dotted options such as --env.pusher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click
import pytest

from recap.agent_config import AgentConfig
from recap.cli.evaluate import evaluate
from recap.cli.serving import serve
from recap.cli.settings import HELP, DottedCommand, agent_options, dotted
from recap.errors import InputError
from recap_client.options import as_scalar, named_numbers


@click.command(cls=DottedCommand, prefix="env")
@click.argument("words", nargs=-1)
@click.option("--env")
@agent_options("mask")
def command(words: tuple[str, ...], env: str | None, agent: Callable[[str], AgentConfig]) -> Any:
    """Returns what was given."""
    return words, env, dotted(), agent("replay")


def given(*words: str) -> Any:
    return command.main(list(words), standalone_mode=False)


def test_every_agent_config_field_has_an_option() -> None:
    assert set(HELP) == {field.name for field in fields(AgentConfig)} - {"policy"}
    for one, left_out in ((evaluate, set()), (serve, {"settings_of", "matching", "mask"})):
        assert set(HELP) - {param.name for param in one.params} == left_out


def test_without_options_the_config_has_its_defaults() -> None:
    assert given() == ((), None, {}, AgentConfig("replay"))


def test_options_have_the_types_of_their_fields() -> None:
    words = ["--candidates", "5", "--action-steps=2", "--min-confidence", "0.5", "--no-residual"]
    words += ["--subtrajectories", "--temperature", "0", "--noise-seed", "-1", "--retrieval", "contact"]
    assert given(*words)[-1] == AgentConfig(
        "replay",
        n_candidates=5,
        n_action_steps=2,
        min_confidence=0.5,
        residual=False,
        subtrajectories=True,
        temperature=0.0,
        noise_seed=-1,
        retrieval="contact",
    )
    assert given("--no-subtrajectories")[-1].subtrajectories is False
    with pytest.raises(click.UsageError, match="--mask"):
        given("--mask", "sham@all")
    with pytest.raises(click.BadParameter, match="'two' is not a valid"):
        given("--candidates", "two")
    with pytest.raises(InputError, match="unknown reaction 'halt'"):
        given("--reaction", "halt")


def test_dotted_options_are_parsed() -> None:
    words, env, options, _ = given(
        "one", "--env", "mine", "--env.pusher", "disc", "two", "--env.goal-angle=-30", "--env.share=0.5"
    )
    assert (words, env) == (("one", "two"), "mine")
    assert options == {"pusher": "disc", "goal_angle": -30, "share": 0.5}
    assert given("--env.angle", "-30")[2] == {"angle": -30}
    assert given("--env.empty=")[2] == {"empty": ""}
    assert given("--env.a=b=c")[2] == {"a": "b=c"}
    assert given("--env.a", "1", "--env.a", "2")[2] == {"a": 2}, (
        "the last value counts, as with other options"
    )
    assert given("--", "--env.a", "1")[:3] == (("--env.a", "1"), None, {}), "arguments after a double dash"


def test_dotted_options_do_not_leak_into_the_next_call() -> None:
    given("--env.a", "1")
    assert given()[2] == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env.a"], "option --env.a needs a value"),
        (["--env.a", "--env", "x"], "option --env.a needs a value"),
        (["--robot.a", "1"], "--robot.a"),
        (["--environment.a", "1"], "--environment.a"),
    ],
)
def test_an_unknown_or_incomplete_dotted_option_is_named(words: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        given(*words)


def test_dotted_values_are_converted_to_int_float_or_bool() -> None:
    texts = ["3", "-3", "0.5", "1e3", "true", "False", "disc", "", "3 px"]
    values = [3, -3, 0.5, 1000.0, True, False, "disc", "", "3 px"]
    assert [(as_scalar(text), type(as_scalar(text))) for text in texts] == [(v, type(v)) for v in values]


def test_named_numbers_are_parsed() -> None:
    assert named_numbers(("position=60", "gripper=0.5"), "--max-step") == {"position": 60.0, "gripper": 0.5}
    for bad in ("position", "=3", "position=fast"):
        with pytest.raises(InputError, match=f"cannot read --max-step '{bad}'"):
            named_numbers((bad,), "--max-step")
