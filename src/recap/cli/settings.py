"""Options that several commands share, made from the fields of the configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from recap.agent_config import AgentConfig
from recap.errors import InputError
from recap_client.options import as_scalar, named_numbers, take_dotted

if TYPE_CHECKING:
    from recap.types import Scalar

# Field of `AgentConfig` -> help of its option. A field that is not listed has no option.
HELP = {
    "settings_of": "Replay with this policy's settings, as its control.",
    "retrieval": "How to retrieve, by name or file.  [default: the policy's, or the env's]",
    "subtrajectories": "Retrieve parts of demonstrations too.  [default: the policy's]",
    "n_candidates": "Demonstrations that stage 1 selects.  [default: the retrieval's]",
    "reach": "Cost of a moment whose chunk the robot cannot reach.  [default: the retrieval's, mostly 0]",
    "reach_ahead": "Frames that must be within reach; 0 for the whole chunk.  [default: the retrieval's]",
    "n_action_steps": "Actions of each chunk to execute.  [default: the policy's]",
    "reaction": "What to do if nothing is retrieved or confidence is low.",
    "min_confidence": "Confidence below which --reaction applies.",
    "matching": "Which moment of the pool the policy receives.",
    "residual": "Add the network's residual to the retrieved actions.",
    "residual_halflife": "Match distance that halves the residual; 0: off.",
    "denoising_steps": "Denoising steps of the policy.  [default: its own]",
    "temperature": "Scale of the policy's noise.  [default: its own]",
    "sampler": "Sampler of the policy: euler or unipc.  [default: its own]",
    "device": "Device of the policy.",
    "gate": "Wait for the robot to reach each action before sending the next.",
    "gate_patience": "Maximum extra steps to wait per action.",
    "gate_tolerance": "Tolerance, in the feature's unit.  [default: the robot's, or 5 mm and 0.06 rad]",
    "mask": "Mask the policy's attention: retrieved@3, sham@all.",
    "noise_seed": "Seed of the noise; starts stay the same.",
}
DOTTED = "recap.dotted"  # key in the metadata of a click context
SHORT = {"n_candidates": "candidates", "n_action_steps": "action-steps"}


def agent_options(*left_out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that passes `agent` to a command: a function from a policy's name to an AgentConfig."""
    chosen = {name: text for name, text in HELP.items() if name not in left_out}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(settings: Mapping[str, Any], **others: Any) -> Any:
            return command(agent=lambda policy: AgentConfig(policy, **settings), **others)

        return config_options(AgentConfig, chosen)(functools.wraps(command)(run))

    return decorate


def config_options(
    config: type[Any], helps: Mapping[str, str], metavars: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds an option for each field in `helps`; the command gets `settings`, those given."""
    defaults = {field.name: field.default for field in fields(config)}
    hints = get_type_hints(config)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**kwargs: Any) -> Any:
            given = {name: _value(hints[name], kwargs.pop(name), _flag(name)) for name in helps}
            settings = {name: value for name, value in given.items() if value is not None}
            return command(settings=settings, **kwargs)

        for name in reversed(list(helps)):
            shape = _shape(hints[name], defaults[name])
            if name in (metavars or {}):
                shape["metavar"] = (metavars or {})[name]
            flag = f"--{_flag(name)}" + (f"/--no-{_flag(name)}" if _kind(hints[name]) is bool else "")
            run = click.option(flag, name, help=helps[name], **shape)(run)
        return run

    return decorate


def _flag(name: str) -> str:
    return SHORT.get(name, name.replace("_", "-"))


def _kind(hint: Any) -> Any:
    """The type of an option, without None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next(option for option in options if option is not NoneType)


def _shape(hint: Any, default: Any) -> dict[str, Any]:
    kind = _kind(hint)
    if get_origin(kind) is Mapping:
        return {"multiple": True, "metavar": "FEATURE=N"}
    if get_origin(kind) is tuple:
        return {"metavar": "N,N"}
    if kind is bool:
        return {"default": default}
    shown = default is not None and default != ""
    if get_origin(kind) is Literal:  # checked by the configuration itself, for Python too
        return {"metavar": "|".join(get_args(kind)), "default": default, "show_default": shown}
    return {"type": kind, "default": default or None, "show_default": shown}


def _value(hint: Any, given: Any, flag: str) -> Any:
    """Convert an option to the type of its field: `FEATURE=N`, or numbers separated by commas."""
    origin = get_origin(_kind(hint))
    if origin is Mapping:
        return named_numbers(given, f"--{flag}")
    if origin is not tuple or given is None:
        return given
    try:
        return tuple(float(part) for part in given.split(","))
    except ValueError:
        raise InputError(f"--{flag} is '{given}': give numbers separated by commas") from None


class DottedCommand(click.Command):
    """A command that accepts `--PREFIX.NAME VALUE` for options of a world or a robot."""

    def __init__(self, *args: Any, prefix: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prefix = prefix

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the dotted options out before click reads the rest."""
        try:
            left, found = take_dotted(args, self.prefix)
        except InputError as error:
            raise click.UsageError(str(error)) from None
        ctx.meta[DOTTED] = found
        return super().parse_args(ctx, left)


def dotted() -> dict[str, Scalar]:
    """The options given as `--PREFIX.NAME VALUE`, converted to numbers and booleans where possible."""
    return {name: as_scalar(text) for name, text in dotted_text().items()}


def dotted_text() -> dict[str, str]:
    """The same options as text."""
    return dict(click.get_current_context().meta.get(DOTTED, {}))
