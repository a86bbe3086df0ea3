"""What a user brings along: functions by `package.module:name`, and entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from recap_client.plugins import import_factory

__all__ = ["import_factory", "plugins"]


def plugins(group: str) -> dict[str, EntryPoint]:
    """What installed packages add to a group of entry points, by name."""
    return {entry.name: entry for entry in entry_points(group=group)}
