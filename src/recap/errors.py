"""One small exception tree; every message says what, why and what to do."""

from __future__ import annotations

from recap_client.errors import (
    BusyError,
    InputError,
    RecapError,
    ServerError,
    UnreachableError,
    WireError,
    did_you_mean,
    one_of,
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
    "cause",
    "did_you_mean",
    "one_of",
]


class DatasetError(RecapError):
    """A dataset on disk is missing, damaged or of another kind than expected."""

    code = "dataset"


class RunDirectoryError(RecapError):
    """An output directory is in use, or holds something else."""

    code = "run-directory"


def cause(error: BaseException, most: int = 200) -> str:
    """What went wrong in another library, on one line."""
    return " ".join(str(error).split())[:most] or type(error).__name__
