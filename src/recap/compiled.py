"""numba with types: compiled once, cached on disk beside the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

try:
    import numba
except ModuleNotFoundError:  # the base install has none
    numba = None

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile to machine code at the first call; the plain function stays at `.py_func`.

    Without numba the call is refused, not the import.
    """
    if numba is None:

        def refused(*values: object) -> object:
            raise ModuleNotFoundError("No module named 'numba'", name="numba")

        return refused  # type: ignore[return-value]
    return numba.njit(cache=True)(function)  # type: ignore[no-any-return]


def compiled_or(plain: F) -> Callable[[F], F]:
    """As `compiled`, but sums may be taken in another order, so that loops over them vectorise.

    Args:
        plain: does the same by numpy where numba is not installed, several times slower.
    """

    def compile_it(function: F) -> F:
        if numba is None:
            return plain
        return numba.njit(cache=True, fastmath={"reassoc", "contract"})(function)  # type: ignore[no-any-return]

    return compile_it
