"""The exceptions; every message says what failed, why, and what to do."""

from __future__ import annotations

import errno
import os
import re

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
    "explain_os_error",
    "one_of",
]

REMEDIES = {
    errno.ENOSPC: "free some space and run the same command again; what is done is kept",
    errno.EDQUOT: "free some space and run the same command again; what is done is kept",
    errno.EACCES: "give a place you may write to",
    errno.EROFS: "give a place you may write to",
}


class DatasetError(RecapError):
    """A dataset on disk is missing, damaged or of an unexpected kind."""

    code = "dataset"


class RunDirectoryError(RecapError):
    """An output directory is in use, or does not hold a matching run."""

    code = "run-directory"


def cause(error: BaseException, most: int = 200) -> str:
    """The message of another library's error, on one line."""
    return " ".join(str(error).split())[:most] or type(error).__name__


def explain_os_error(error: OSError) -> tuple[str, str]:
    """The operating system's message, and a remedy, which is empty if none is known."""
    match = re.search(r"\(os error (\d+)\)", str(error))  # Lance gives the errno only in the text
    number = int(match[1]) if match else error.errno
    what = os.strerror(int(match[1])) if match else error.strerror or str(error)
    return what, REMEDIES.get(number or 0, "")
