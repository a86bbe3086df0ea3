"""How a robot to be driven is found by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from recap.errors import InputError, did_you_mean
from recap.plugins import import_factory
from recap_client.robot_loop import Robot


def make_robot(name: str, metadata: Mapping[str, Any], options: Mapping[str, Any]) -> Robot:
    """A simulated one of an installed suite, or what a `package.module:factory` makes of the metadata.

    Args:
        options: keywords of the factory.
    """
    known = {entry.name: entry for entry in entry_points(group="recap.robots")}
    if name not in known and ":" not in name:
        hint = did_you_mean(name, known)
        raise InputError(f"unknown robot '{name}': {hint} (your own is package.module:factory)")
    factory = known[name].load() if name in known else import_factory(name, "robot")
    if options:
        try:
            inspect.signature(factory).bind(metadata, **options)
        except TypeError as error:
            raise InputError(f"robot '{name}' has other options than given: {error}") from None
    made = factory(metadata, **options)
    if not isinstance(made, Robot):
        raise InputError(f"robot '{name}' is a {type(made).__name__} without observe and act: return a robot")
    return made
