"""One small exception tree; every message says what, why and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from recap_client.errors import (
    BusyError,
    InputError,
    RecapError,
    ServerError,
    UnreachableError,
    WireError,
)

__all__ = [
    "BusyError",
    "DatasetError",
    "InputError",
    "RecapError",
    "RunDirectoryError",
    "ServerError",
    "UnreachableError",
    "WireError",
    "did_you_mean",
    "one_of",
]


class DatasetError(RecapError):
    """A dataset on disk is missing, damaged or of another kind than expected."""

    code = "dataset"


class RunDirectoryError(RecapError):
    """An output directory is in use, or holds something else."""

    code = "run-directory"


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """`did you mean 'x'?` when something close exists, else the list of choices."""
    names = list(choices)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"choose one of {', '.join(names)}"


def one_of(what: str, given: str, choices: Iterable[str]) -> str:
    """Return `given` if it is one of `choices`, else raise an InputError that helps."""
    names = list(choices)
    if given not in names:
        raise InputError(f"unknown {what} '{given}': {did_you_mean(given, names)}", code="input.unknown")
    return given
