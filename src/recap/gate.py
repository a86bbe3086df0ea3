"""Builds the progress gate of a robot from the kinds of its features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recap.agent_config import PATIENCE, AgentConfig
from recap.body import KINDS
from recap.errors import InputError, one_of
from recap.robot import RobotSpec
from recap_client.gate import Gate


def gate_of(robot: RobotSpec, tolerance: Mapping[str, float] | None = None, patience: int = PATIENCE) -> Gate:
    """A gate that waits for the features that have a tolerance and are measured by proprioception.

    Args:
        tolerance: feature -> tolerance, which replaces that of the description or of the kind.
    """
    if robot.action_mode == "delta":
        raise InputError(
            f"actions of robot '{robot.name}' are changes (delta), which name no place to wait for: "
            "leave --gate out",
            code="gate.delta",
        )
    given = {**robot.gate_tolerance, **(tolerance or {})}
    parts = []
    for name, most in given.items():
        one_of(f"feature of robot '{robot.name}'", name, [feature.name for feature in robot.action])
        if not most > 0:
            raise InputError(f"the gate's tolerance of '{name}' is {most}: give more than 0")
    for feature, at in robot.act.spans:
        usual = KINDS[feature.kind].tolerances
        most = given.get(feature.name, usual.get(feature.unit, usual.get("", 0.0)))
        is_measured = bool((robot.measured[at] >= 0).all())
        if most and is_measured:
            kind = "angle/deg" if (feature.kind, feature.unit) == ("angle", "deg") else feature.kind
            parts.append((kind, at.start, at.stop, float(most)))
        elif feature.name in given:
            raise InputError(
                f"'{feature.name}' is not measured by robot '{robot.name}': its gate cannot wait for it",
                code="gate.nothing",
            )
    if not parts:
        raise InputError(
            f"robot '{robot.name}' has nothing that a gate can wait for: give the tolerance of a feature "
            f"that it measures, such as --gate-tolerance {robot.action[0].name}=0.01",
            code="gate.nothing",
        )
    return Gate(tuple(parts), tuple(robot.measured.tolist()), patience)


def gate_metadata(robot: RobotSpec, config: AgentConfig) -> dict[str, Any] | None:
    """The gate for a server's metadata, since the client does the waiting; None if there can be no gate."""
    try:
        return gate_of(robot, config.gate_tolerance, config.gate_patience).plain(config.gate)
    except InputError:
        if config.gate:
            raise
        return None
