"""Removes old versions, or episodes from all versions.

Both remove versions by Lance's own clean-up. A removed version keeps its seal, which lists its files that
are still in use, so that `verify` and readers can check them. Every step can be repeated: the same call
completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from recap.errors import DatasetError, InputError
from recap.pool.compaction import rewrite
from recap.pool.derived import read_shard, write_shard
from recap.pool.files import forget_copy, sealed, sha256
from recap.pool.seals import PRUNED, Seal, pruned_up_to, read_seals, rows_by_file, seal_name
from recap.pool.table import Damage, Table, fragment_files, reading

if TYPE_CHECKING:
    from recap.pool.store import Pool


def prune(pool: Pool, keep: int, older_than: timedelta, dry_run: bool) -> list[int]:
    """Remove versions that are not among the newest `keep`, have no tag and were not recently the newest."""
    if keep < 1:
        raise InputError(f"keep is {keep}: give 1 or more, for the newest version always stays")
    with pool.files.turn():
        _refuse_damage(pool)
        known, now, gone = pool.versions(), datetime.now(UTC), []
        for version, next_one in list(pairwise(known))[: len(known) - keep]:
            age = None if next_one.time is None else now - next_one.time  # since it was replaced
            if not version.tags and age is not None and age >= older_than:
                gone.append(version.version)
        if not dry_run:
            _remove(pool, gone)
        return gone


def forget(pool: Pool, ids: Sequence[str], with_tags: bool) -> list[int]:
    """Delete episodes with their videos, descriptors and all versions that have them; return the versions."""
    files, table, names = pool.files, pool.table, set(ids)
    with files.turn():
        _refuse_damage(pool)
        for version in table.versions():
            table.seal_late(version)
        seals = read_seals(files)
        for name in ids:
            if not any(name in seal.added for seal in seals.values()):
                raise pool._no_episode(name)
        held = {file for file, rows in rows_by_file(seals).items() if names & rows.keys()}
        having = [v for v in table.versions() if held & _files_of(table.at(v))]
        tags = {tag: v for tag, v in pool.tags().items() if v in having}
        if tags and not with_tags:
            shown = ", ".join(f"'{tag}' (version {v})" for tag, v in sorted(tags.items()))
            raise InputError(f"tagged versions have it: {shown}; give --with-tags to remove these too")
        head = table.head()
        old = [f.fragment_id for f in head.get_fragments() if fragment_files(f.metadata)[0] in held]
        if old:  # write new files in place of those with the episodes
            rewrite(table, head, old, lambda row: None if row.id in names else row, "forget")
        for tag in tags:
            pool.untag(tag)
        _remove(pool, having)
        _clear_descriptors(pool, names)
        for file in files.names("quarantine"):
            mentioned = any(name.encode("utf-8") in files.read(file) for name in names)
            if mentioned or file.removeprefix("quarantine/files/") in held:
                files.remove(file)
        for seal in read_seals(files).values():
            _rewrite(pool, seal, _without(seal, names))
    table.forget()
    return having


def _refuse_damage(pool: Pool) -> None:
    head = pool.table.head()
    if pool.table.damaged or pool.table.index(head).unreadable:
        raise DatasetError(f"pool {pool.uri} is damaged: run recap pool verify --repair first")


def _files_of(dataset: Any) -> set[str]:
    """The table's files that a version needs, without its manifest."""
    return {name for fragment in dataset.get_fragments() for name in fragment_files(fragment.metadata)}


def needed_files(table: Table, versions: Iterable[int]) -> set[str]:
    """The table's files that the readable versions need."""
    found: set[str] = set()
    for version in versions:
        with suppress(Damage):
            found |= _files_of(table.at(version))
    return found


def _remove(pool: Pool, gone: Sequence[int]) -> None:
    """Remove versions and the files that only they needed."""
    files, table = pool.files, pool.table
    head = table.head()
    if gone:  # written first: readers of older versions then look for the newest version by name
        newest = max(*gone, pruned_up_to(files))
        files.write(PRUNED, sealed({"version": newest, "removing": [*gone]}))
        local = "://" not in pool.uri  # writers take turns, so files of no version are leftovers
        with reading("clean-up"):
            head.cleanup_old_versions(
                versions=list(gone), delete_unverified=local, error_if_tagged_old_versions=False
            )
        files.write(PRUNED, sealed({"version": newest}))
    left = table.versions()
    kept = [table.at(version) for version in left]
    needed = {name for dataset in kept for name in _files_of(dataset)}
    for seal in read_seals(files).values():
        if seal.version not in left and seal.version <= pruned_up_to(files):
            _rewrite(pool, seal, _only(seal, needed))
    films = {digest for dataset in kept for digest in _films_of(dataset)}
    for name in files.names("blobs"):
        digest = name.rpartition("/")[2].partition(".")[0]
        if digest not in films:
            files.remove(name)
            forget_copy(name)


def _films_of(dataset: Any) -> set[str]:
    with reading(f"version {dataset.version}"):
        column = dataset.scanner(columns=["camera_sha256"]).to_table()["camera_sha256"]
        return {digest for digests in column.to_pylist() for digest in digests or ()}


def _only(seal: Seal, needed: set[str]) -> Seal:
    """The seal of a removed version, reduced to files that are still needed."""
    return replace(
        seal,
        rows={file: rows for file, rows in seal.rows.items() if file in needed},
        files={file: digest for file, digest in seal.files.items() if file in needed},
    )


def _without(seal: Seal, ids: set[str]) -> Seal:
    """The seal without these episodes."""
    keep: Callable[[Any], dict[str, str]] = lambda part: {k: v for k, v in part.items() if k not in ids}  # noqa: E731
    return replace(
        seal,
        added=keep(seal.added),
        removed=tuple(name for name in seal.removed if name not in ids),
        rows={file: keep(rows) for file, rows in seal.rows.items()},
    )


def _rewrite(pool: Pool, seal: Seal, new: Seal) -> None:
    if new != seal:
        pool.files.write(seal_name(seal.version), sealed(asdict(new)))


def _clear_descriptors(pool: Pool, ids: set[str]) -> None:
    files = pool.files
    for name in (name for name in files.names("derived") if name.endswith(".safetensors")):
        if name.startswith(("derived/rows-", "derived/confidence-")):
            files.remove(name)  # covers all episodes; it is computed again
            continue
        header, terms = read_shard(files.read(name))
        if not ids & {episode for episode, _, _ in header["episodes"]}:
            continue
        keys, rows, start = [], [], 0
        for episode, digest, n in header["episodes"]:
            if episode not in ids:
                keys.append((episode, digest))
                rows.append({term: values[start : start + n] for term, values in terms.items()})
            start += n
        if keys:
            maker: Any = SimpleNamespace(fingerprint=header["fingerprint"], dims=header["dims"])
            data = write_shard(maker, keys, rows)
            files.write(f"{name.rpartition('/')[0]}/{sha256(data)}.safetensors", data)
        files.remove(name)
    pool._loader.derived.forget()
