"""What a user brings along: functions by `package.module:name`."""

from __future__ import annotations

from recap_client.plugins import import_factory

__all__ = ["import_factory"]
