"""What a robot's side of the wire can raise; every message says what, why and what to do."""

from __future__ import annotations


class RecapError(Exception):
    """Something the user can fix; the command line shows it as one line and exits with 2.

    Args:
        message: what, why and what to do.
        code: a stable name for programs; the class's own unless given.
    """

    code = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code


class InputError(RecapError):
    """A value that was given cannot be used."""

    code = "input"


class WireError(RecapError):
    """A message is not what the wire allows."""

    code = "wire"


class ServerError(RecapError):
    """A policy server cannot be reached, or refuses."""

    code = "server"


class UnreachableError(ServerError):
    """A policy server is gone; it may come back."""

    code = "server.unreachable"


class BusyError(ServerError):
    """A policy server has too much to do just now; asking again helps."""

    code = "server.busy"
