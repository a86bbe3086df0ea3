"""Finds the robot to drive by its name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from recap_client.errors import InputError, did_you_mean
from recap_client.options import as_scalar
from recap_client.plugins import import_factory
from recap_client.robot_loop import Robot

LEROBOT = "lerobot:"


def make_robot(
    name: str,
    metadata: Mapping[str, Any],
    options: Mapping[str, Any],
    rename: Mapping[str, str] | None = None,
    same_units: bool = False,
) -> Robot:
    """Make a LeRobot robot by its type, a robot of an installed package by its name, or one by a factory.

    Args:
        name: `lerobot:TYPE`, a name of the entry point group `recap.robots`, or `package.module:factory`.
        metadata: the server's metadata; a factory is called with it.
        options: options of the robot's config, or keyword arguments of the factory; text or values.
        rename: LeRobot: the robot's name of a motor or camera -> the policy's name.
        same_units: LeRobot: do not convert units.
    """
    if name.startswith(LEROBOT):
        from recap_client.lerobot import connect_lerobot

        return connect_lerobot(name.removeprefix(LEROBOT), metadata, options, rename or {}, same_units)
    if rename or same_units:
        raise InputError(f"--rename and --same-units are of LeRobot's robots: leave them out for '{name}'")
    known = {entry.name: entry for entry in entry_points(group="recap.robots")}
    if name not in known and ":" not in name:
        hint = did_you_mean(name, known) if known else "none is installed"
        raise InputError(
            f"unknown robot '{name}': {hint} (LeRobot's are lerobot:TYPE, your own package.module:factory)"
        )
    factory = known[name].load() if name in known else import_factory(name, "robot")
    given = {key: as_scalar(value) if isinstance(value, str) else value for key, value in options.items()}
    if given:
        try:
            inspect.signature(factory).bind(metadata, **given)
        except TypeError as error:
            raise InputError(f"robot '{name}' has other options than given: {error}") from None
    made = factory(metadata, **given)
    if not isinstance(made, Robot):
        raise InputError(f"robot '{name}' is a {type(made).__name__} without observe and act: return a robot")
    return made
