"""The client's exceptions; every message says what failed, why, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RecapError(Exception):
    """An error that the user can fix; the command line prints it as one line and exits with 2.

    Args:
        message: what, why and what to do.
        code: a stable name for programs; default: that of the class.
    """

    code = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code


class InputError(RecapError):
    """A given value cannot be used."""

    code = "input"


class WireError(RecapError):
    """A message is not valid in the wire format."""

    code = "wire"


class ServerError(RecapError):
    """A policy server cannot be reached, or refuses."""

    code = "server"


class UnreachableError(ServerError):
    """A policy server cannot be reached; it may come back."""

    code = "server.unreachable"


class BusyError(ServerError):
    """A policy server is overloaded; try again later."""

    code = "server.busy"


def in_short(error: BaseException) -> str:
    """Another library's error, shortened for use in a message."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """`did you mean 'x'?` if a choice is similar, else the list of choices."""
    names = list(choices)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"choose one of {', '.join(names)}"


def one_of(what: str, given: str, choices: Iterable[str]) -> str:
    """Return `given` if it is one of `choices`, else raise an InputError with a suggestion."""
    names = list(choices)
    if given not in names:
        raise InputError(f"unknown {what} '{given}': {did_you_mean(given, names)}", code="input.unknown")
    return given
