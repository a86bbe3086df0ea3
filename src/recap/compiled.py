"""numba with types: compiled once, cached on disk beside the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile to machine code at the first call; the plain function stays at `.py_func`."""
    return numba.njit(cache=True)(function)  # type: ignore[no-any-return]


def compiled_reordering(function: F) -> F:
    """As `compiled`, but sums may be taken in another order, so that loops over them vectorise."""
    return numba.njit(cache=True, fastmath={"reassoc", "contract"})(function)  # type: ignore[no-any-return]
