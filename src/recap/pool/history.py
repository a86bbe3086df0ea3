"""The history of a pool: its versions, their names, and how they came to be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recap.errors import InputError, did_you_mean
from recap.pool.files import Files, sha256
from recap.pool.seals import read_seal, sealed, unsealed
from recap.pool.table import Table


@dataclass(frozen=True, slots=True)
class Version:
    """One version, and how it came to be."""

    version: int
    time: datetime | None  # None where its writer died and its transaction is lost
    op: str  # create, add, remove, rollback, compact, repair
    n_added: int
    n_removed: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """What lies between two versions."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class History:
    """What can be said of versions without reading their rows."""

    def __init__(self, files: Files, table: Table) -> None:
        self.files, self.table = files, table

    def tag(self, name: str, version: int | str | None = None, *, move: bool = False) -> int:
        """Give a version a name; a name that means another version moves only when told to."""
        if not name:
            raise InputError("an empty name cannot name a version: give one")
        target = int(self.table.head().version) if version is None else self.resolve(version)
        with self.files.turn():
            was = self.tags().get(name)
            if was is not None and was != target and not move:
                raise InputError(f"tag '{name}' means version {was} already: choose another, or move it")
            self.files.write(tag_name(name), sealed({"name": name, "version": target}))
        return target

    def tags(self) -> dict[str, int]:
        """Name -> version."""
        found = {}
        for file in self.files.names("tags"):
            try:
                body = unsealed(self.files.read(file))
            except (FileNotFoundError, ValueError):
                continue  # `verify` names it
            found[str(body["name"])] = int(body["version"])
        return found

    def resolve(self, version: int | str) -> int:
        """The number of a version or tag."""
        if isinstance(version, str):
            tags = self.tags()
            if version in tags:
                return tags[version]
            if not version.isdecimal():
                hint = did_you_mean(version, tags) if tags else "there are no tags"
                raise InputError(f"pool {self.files.uri} has no version '{version}': {hint}")
        number = int(version)
        versions = self.table.versions()
        if number not in versions:
            raise InputError(f"pool {self.files.uri} has no version {number}: the newest is {versions[-1]}")
        return number

    def versions(self) -> list[Version]:
        """Every version, oldest first, and what it changed."""
        names: dict[int, list[str]] = {}
        for name, number in self.tags().items():
            names.setdefault(number, []).append(name)
        found = []
        for number in self.table.versions():
            seal = read_seal(self.files, number)
            op = seal.op if seal is not None else self.table.message(number)
            n_added = len(seal.added) if seal is not None else int(op.get("n", 0)) * (op.get("op") == "add")
            n_removed = len(seal.removed) if seal else int(op.get("n", 0)) * (op.get("op") == "remove")
            when = datetime.fromisoformat(op["time"]) if "time" in op else None
            tags = tuple(sorted(names.get(number, [])))
            found.append(Version(number, when, str(op.get("op", "?")), n_added, n_removed, tags))
        return found


def tag_name(name: str) -> str:
    """The file of a tag; by hash, for names are free text and stores differ in what they allow."""
    return f"tags/{sha256(name.encode('utf-8'))[:32]}.json"
