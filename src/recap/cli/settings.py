"""Options that several commands share, made from the configuration's own fields."""

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

# Field of `AgentConfig` -> what its option does. A field without a line here has no option.
HELP = {
    "settings_of": "Replay with this policy's settings: its equal control.",
    "retrieval": "How to retrieve, by name or file.  [default: the policy's, or the env's]",
    "subtrajectories": "Retrieve parts of demonstrations too.  [default: the policy's]",
    "n_candidates": "Trajectories that stage 1 keeps.  [default: the retrieval's]",
    "reach": "Cost of a moment whose chunk the robot cannot reach.  [default: the retrieval's, mostly 0]",
    "reach_ahead": "Frames that must be within reach; 0: the chunk.  [default: the retrieval's]",
    "n_action_steps": "Actions of a chunk to execute.  [default: the policy's]",
    "reaction": "To nothing retrieved or low confidence: hold, stop, ignore.",
    "min_confidence": "Below it, react.",
    "matching": "What a policy is given: retrieved, random, none.",
    "residual": "Without it what is retrieved is executed as it is.",
    "residual_halflife": "Distance of a match at which the residual counts half; 0: it counts whole.",
    "denoising_steps": "Of a policy.  [default: its own]",
    "temperature": "Of a policy's noise.  [default: its own]",
    "sampler": "Of a policy: euler or unipc.  [default: its own]",
    "device": "Where a policy computes.",
    "gate": "Send the next action when the robot is where the last one sent it, not by the clock.",
    "gate_patience": "Extra steps that the gate waits an action at most.",
    "gate_tolerance": "Of the gate, in the feature's unit.  [default: the robot's, or 5 mm and 0.06 rad]",
    "mask": "Block a policy's attention: retrieved@3, sham@all.",
    "noise_seed": "Other noise, the same starts.",
}
DOTTED = "recap.dotted"  # in what a click context keeps
SHORT = {"n_candidates": "candidates", "n_action_steps": "action-steps"}


def agent_options(*left_out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the command gets `agent`, a function of the policy's name that returns an AgentConfig."""
    chosen = [field for field in fields(AgentConfig) if field.name in HELP and field.name not in left_out]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            given = {field.name: kwargs.pop(field.name) for field in chosen}
            settings = {name: value for name, value in given.items() if value is not None}
            if "gate_tolerance" in settings:
                settings["gate_tolerance"] = named_numbers(settings["gate_tolerance"], "--gate-tolerance")
            return command(*args, agent=lambda policy: AgentConfig(policy, **settings), **kwargs)

        for field in reversed(chosen):
            run = _option(field.name, field.default)(run)
        return run

    return decorate


def _option(name: str, default: Any) -> Callable[[Any], Any]:
    hint = get_type_hints(AgentConfig)[name]
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind, *_) = [option for option in options if option is not NoneType]
    flag = SHORT.get(name, name.replace("_", "-"))
    if get_origin(kind) is Mapping:
        return click.option(f"--{flag}", name, multiple=True, metavar="FEATURE=N", help=HELP[name])
    if kind is bool:
        return click.option(f"--{flag}/--no-{flag}", name, default=default, help=HELP[name])
    plain = str if get_origin(kind) is Literal else kind
    shown = default is not None and default != ""
    return click.option(
        f"--{flag}", name, type=plain, default=default or None, show_default=shown, help=HELP[name]
    )


class DottedCommand(click.Command):
    """A command that takes `--PREFIX.NAME VALUE` for whatever options a world or a robot has."""

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
    """The options that were given as `--PREFIX.NAME VALUE`."""
    return {name: as_scalar(text) for name, text in dotted_text().items()}


def dotted_text() -> dict[str, str]:
    """The same as they were typed."""
    return dict(click.get_current_context().meta.get(DOTTED, {}))
