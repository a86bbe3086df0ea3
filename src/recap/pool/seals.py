"""Seals: for each version, the hashes of the files it brought and what it changed, kept outside of Lance.

Lance checks nothing it reads. A seal lets `verify` find any changed byte, name the episodes of a file that
can no longer be read, and lets `repair` do a lost commit again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recap.pool.files import Files, sha256


@dataclass(frozen=True, slots=True)
class Seal:
    """What one version brought."""

    version: int
    op: Mapping[str, Any]  # what was asked for
    added: Mapping[str, str]  # id -> sha256
    removed: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]  # new data file -> id -> sha256 of its rows
    files: Mapping[str, str]  # name -> sha256


def new_op(name: str, **details: int) -> dict[str, Any]:
    """What a commit says of itself; no two say the same."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"op": name, **details, "time": now, "token": secrets.token_hex(8)}


def seal_name(version: int) -> str:
    """Where the seal of a version lies."""
    return f"seals/{version:010d}.json"


def write_seal(files: Files, seal: Seal) -> None:
    """Write a seal; it carries its own hash."""
    body = {
        "version": seal.version,
        "op": dict(seal.op),
        "added": dict(seal.added),
        "removed": list(seal.removed),
        "rows": {name: dict(rows) for name, rows in seal.rows.items()},
        "files": dict(seal.files),
    }
    files.write(seal_name(seal.version), sealed(body))


def read_seal(files: Files, version: int) -> Seal | None:
    """The seal of a version; None where it is missing or damaged itself."""
    try:
        body = unsealed(files.read(seal_name(version)))
    except (FileNotFoundError, ValueError):
        return None
    if body.get("version") != version:
        return None
    return Seal(version, body["op"], body["added"], tuple(body["removed"]), body["rows"], body["files"])


def sealed(body: Mapping[str, Any]) -> bytes:
    """JSON behind its hash, for small files that have no name of their own contents."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return sha256(text).encode() + b"\n" + text + b"\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """The inverse of `sealed`; ValueError where a byte has changed."""
    digest, _, text = data.partition(b"\n")
    if not text.endswith(b"\n") or sha256(text[:-1]).encode() != digest:
        raise ValueError("its contents have changed")
    body: dict[str, Any] = json.loads(text)
    return body
