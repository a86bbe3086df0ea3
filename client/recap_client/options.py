"""The options of `recap-client run` and `recap run`, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recap_client.errors import InputError


@dataclass(frozen=True)
class Option:
    """One option of a command line.

    Args:
        flag: the name without dashes.
        kind: `bool` is a switch; `tuple` may be given several times, each time as text.
        default: value if the option is not given.
        unless: default in words, if `default` does not say it.
    """

    flag: str
    kind: type
    help: str
    metavar: str = ""
    default: Any = None
    unless: str = ""

    @property
    def name(self) -> str:
        """The name as a variable."""
        return self.flag.replace("-", "_")

    @property
    def text(self) -> str:
        """The help text with the default."""
        unless = self.unless or ("" if self.default in (None, False, "") else f"{self.default}")
        return f"{self.help}  [default: {unless}]" if unless else self.help


RUN_OPTIONS = (
    Option("url", str, "Address of the policy server.", "URL", "ws://127.0.0.1:8000"),
    Option("token", str, "Token of the server.", "KEY", unless="the variable RECAP_TOKEN, or none"),
    Option("task", str, "The instruction.", "TEXT", unless="the robot's, or the server's"),
    Option(
        "steps",
        int,
        "Number of control steps.",
        "N",
        unless="until it is done, or Ctrl-C; one chunk in a dry run",
    ),
    Option("dry-run", bool, "Show the actions without sending them."),
    Option("rate", float, "Rate of the control loop.", "HZ", unless="the server's"),
    Option("speed", float, "Fraction of the speed limits to use.", "SHARE", 1.0),
    Option("limit", tuple, "Narrower limits for an action feature.", "FEATURE=LOW:HIGH"),
    Option("max-step", tuple, "Tighter limit on the change per control step, by feature.", "FEATURE=N"),
    Option("gate", str, "Wait for the robot to reach each action: on or off.", "WHEN", None, "the server's"),
    Option(
        "rename", tuple, "LeRobot: map a motor or camera name of the robot to its name here.", "THEIRS=OURS"
    ),
    Option("same-units", bool, "LeRobot: send the robot's numbers unchanged, whatever their unit."),
    Option("delay-ms", float, "Artificial delay of every reply.", "MS", 0.0, "0"),
    Option("patience", float, "Seconds to wait for a lost server.", "S", 10.0),
    Option("seed", int, "Seed of the noise, and of a simulator's start.", "N", 500),
    Option("report", str, "Write a report as JSON.", "FILE"),
)


def take_dotted(words: Sequence[str], prefix: str) -> tuple[list[str], dict[str, str]]:
    """Separate the options `--PREFIX.NAME VALUE` from a command line: the other words, and name -> text."""
    left: list[str] = []
    found: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":  # only arguments follow
            return [*left, word, *waiting], found
        if not word.startswith(f"--{prefix}."):
            left.append(word)
            continue
        option, sign, value = word.partition("=")
        if not sign:
            if not waiting or waiting[0].startswith("--"):
                raise InputError(f"option {option} needs a value: give {option} VALUE")
            value = waiting.pop(0)
        found[option.removeprefix(f"--{prefix}.").replace("-", "_")] = value
    return left, found


def as_scalar(text: str) -> str | int | float | bool:
    """Convert text to a boolean or number if it is one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def named(given: Sequence[str], option: str) -> dict[str, str]:
    """Parse `NAME=VALUE` pairs."""
    found = {}
    for pair in given:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise InputError(f"cannot read {option} '{pair}': give NAME=VALUE")
        found[name] = value
    return found


def named_numbers(given: Sequence[str], option: str) -> dict[str, float]:
    """Parse `NAME=NUMBER` pairs."""
    try:
        return {name: float(value) for name, value in named(given, option).items()}
    except ValueError:
        raise InputError(f"cannot read {option} '{', '.join(given)}': give NAME=NUMBER") from None


def named_ranges(given: Sequence[str], option: str) -> dict[str, tuple[float, float]]:
    """Parse `NAME=LOW:HIGH` pairs."""
    found = {}
    for name, value in named(given, option).items():
        try:
            low, high = map(float, value.split(":"))
        except ValueError:
            raise InputError(f"cannot read {option} '{name}={value}': give NAME=LOW:HIGH") from None
        found[name] = (low, high)
    return found
