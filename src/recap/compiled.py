"""Typed decorators for numba; compiled functions are cached on disk next to their module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

try:
    import numba
except ModuleNotFoundError:  # the base install does not include it
    numba = None

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile to machine code at the first call; `.py_func` is the plain function.

    Without numba, the import works and the call raises ModuleNotFoundError.
    """
    if numba is None:

        def refused(*values: object) -> object:
            raise ModuleNotFoundError("No module named 'numba'", name="numba")

        return refused  # type: ignore[return-value]
    return numba.njit(cache=True)(function)  # type: ignore[no-any-return]


def compiled_or(plain: F) -> Callable[[F], F]:
    """Like `compiled`, but the order of additions may change, so that sums can be vectorised.

    Args:
        plain: the same in numpy, several times slower; used if numba is not installed.
    """

    def compile_it(function: F) -> F:
        if numba is None:
            return plain
        return numba.njit(cache=True, fastmath={"reassoc", "contract"})(function)  # type: ignore[no-any-return]

    return compile_it
