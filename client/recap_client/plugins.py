"""Imports a user's functions by `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recap_client.errors import InputError, did_you_mean


def import_factory(name: str, what: str) -> Callable[..., Any]:
    """Import the function of that name, or raise an InputError with a hint; does not call it."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # installed commands do not search the current directory
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"cannot import '{module_name}' for {what} '{name}': {type(error).__name__}: {error}; "
            "run it from the directory that holds it, or install it"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise InputError(f"no function '{attribute}' in {module_name}: {did_you_mean(attribute, names)}")
    return factory  # type: ignore[no-any-return]
