"""The versions of a pool: how each was created, and how two of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recap.errors import InputError
from recap.pool.files import Files, sha256
from recap.pool.keys import Index
from recap.pool.seals import read_seal
from recap.pool.table import Table

if TYPE_CHECKING:
    from recap.pool.store import Pool

MAX_TAG = 200  # characters


@dataclass(frozen=True, slots=True)
class Version:
    """One version and how it was created."""

    version: int
    time: datetime | None  # None if its writer died and its transaction is lost
    op: str  # create, add, remove, rollback, compact, repair
    n_added: int
    n_removed: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between two versions."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def refuse_odd_tag(name: str) -> None:
    """Raise an InputError unless a tag is one line of plain text that does not look like a number."""
    if not name.strip() or len(name) > MAX_TAG or not name.isprintable():
        raise InputError(f"{name[:80]!a} cannot name a version: give up to {MAX_TAG} plain characters")
    if name.strip().lstrip("+-").isdecimal():
        raise InputError(f"'{name}' looks like a version and cannot name one: give a word")


def tag_file(name: str) -> str:
    """The file of a tag; the tag is free text, so it is hashed."""
    return f"tags/{sha256(name.encode('utf-8'))[:32]}.json"


def history(files: Files, table: Table, tags: Mapping[str, int]) -> list[Version]:
    """Every version and its changes, oldest first."""
    names: dict[int, list[str]] = {}
    for name, number in tags.items():
        names.setdefault(number, []).append(name)
    found = []
    for number in table.versions():
        seal = read_seal(files, number)
        op = seal.op if seal is not None else table.message(number)
        n_added = len(seal.added) if seal is not None else int(op.get("n", 0)) * (op.get("op") == "add")
        n_removed = len(seal.removed) if seal else int(op.get("n", 0)) * (op.get("op") == "remove")
        when = datetime.fromisoformat(op["time"]) if "time" in op else None
        named = tuple(sorted(names.get(number, [])))
        found.append(Version(number, when, str(op.get("op", "?")), n_added, n_removed, named))
    return found


def difference(before: Index, after: Index) -> Diff:
    """What the second has that the first has not, and the other way round."""
    old, new = (index.state() for index in (before, after))
    return Diff(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )


def counts(pool: Pool) -> dict[str, Any]:
    """The contents of a pool in numbers."""
    view = pool.view()
    episodes = list(view)
    keys = ("task", "embodiment", "source")
    return {
        "version": view.version,
        "n_episodes": len(episodes),
        "n_frames": sum(map(len, episodes)),
        "n_successes": sum(episode.success for episode in episodes),
        "n_scenes": len({episode.scene_id for episode in episodes}),
        **{key: dict(Counter(getattr(episode, key) for episode in episodes)) for key in keys},
        "n_versions": len(pool.table.versions()),
        "n_fragments": len(pool.table.head().get_fragments()),
        "n_blobs": len(pool.files.names("blobs")),
        "tags": pool.tags(),
        "derived": sorted({name.split("/")[1] for name in pool.files.names("derived")}),
    }
