"""Seals: the file hashes and the changes of each version, stored outside Lance.

With seals, `verify` detects any changed byte and names the episodes of an unreadable file, and `repair` can
repeat a lost commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from recap.pool.files import Files, unsealed

PRUNED = "seals/pruned.json"  # the newest version that was removed
UNKNOWN = 2**62  # where that is damaged: there may be gaps anywhere
T = TypeVar("T", "Seal", "Hashes")


@dataclass(frozen=True, slots=True)
class Seal:
    """The files and changes of one version."""

    version: int
    op: Mapping[str, Any]  # the operation
    added: Mapping[str, str]  # id -> sha256
    removed: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]  # new data file -> id -> sha256 of its rows
    files: Mapping[str, str]  # name -> sha256

    def apply(self, state: dict[str, str]) -> None:
        """Apply the changes of this version to id -> sha256."""
        for name in self.removed:
            state.pop(name, None)
        state.update(self.added)


def seal_name(version: int) -> str:
    """The file of a version's seal."""
    return f"seals/{version:010d}.json"


def pruned_up_to(files: Files) -> int:
    """The newest version that was removed; all later versions exist."""
    try:
        return int(unsealed(files.read(PRUNED))["version"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError):
        return UNKNOWN


def being_removed(files: Files) -> frozenset[int]:
    """Versions that a prune has begun to remove; none if it has ended."""
    try:
        return frozenset(unsealed(files.read(PRUNED)).get("removing", ()))
    except (FileNotFoundError, ValueError):
        return frozenset()


class Hashes(msgspec.Struct):
    """What a reader needs of a seal: the rest, which names every row, is passed over."""

    version: int
    files: dict[str, str]


def read_seal(files: Files, version: int, kind: type[T] = Seal) -> T | None:  # type: ignore[assignment]
    """The seal of a version; None where it is missing or damaged itself."""
    try:
        found: T = unsealed(files.read(seal_name(version)), kind)
    except (FileNotFoundError, ValueError):
        return None
    return found if found.version == version else None


def read_seals(files: Files) -> dict[int, Seal]:
    """All intact seals, by version."""
    found = {}
    for name in files.names("seals"):
        stem = name.removeprefix("seals/").removesuffix(".json")
        seal = read_seal(files, int(stem)) if stem.isdecimal() else None
        if seal is not None:
            found[seal.version] = seal
    return found


def logical_state(seals: Mapping[int, Seal], version: int) -> dict[str, str] | None:
    """Id -> hash of a version, from seals only, in the order of adding; None if a seal is missing."""
    state: dict[str, str] = {}
    for number in range(1, version + 1):
        if number not in seals:
            return None
        seals[number].apply(state)
    return state


def rows_by_file(seals: Mapping[int, Seal]) -> dict[str, Mapping[str, str]]:
    """Data file -> id -> sha256 of its rows."""
    return {name: rows for seal in seals.values() for name, rows in seal.rows.items()}
