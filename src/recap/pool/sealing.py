"""Sealing a version: hashing the files it brought and noting what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recap.pool.files import sha256
from recap.pool.seals import Seal, write_seal
from recap.pool.table import Table, fragment_files, manifest_name


def seal_version(
    table: Table, dataset: Any, before: Any, op: Mapping[str, Any], lost: Iterable[str] = ()
) -> None:
    """Seal a version against the one it was built on; `lost` names rows that could not be read there."""
    old = {name for f in before.get_fragments() for name in fragment_files(f.metadata)} if before else set()
    index = table.index(dataset)
    names = [manifest_name(dataset.version)]
    rows = {}
    for fragment in dataset.get_fragments():
        new = [name for name in fragment_files(fragment.metadata) if name not in old]
        names += new
        if new and "/data/" in new[0]:
            number = fragment.fragment_id
            rows[new[0]] = {key.id: key.sha256 for key in index.keys if key.fragment == number}
    transaction = table.transaction_name(dataset)
    if transaction is not None and table.files.exists(transaction):
        table.files.sync([transaction])
        names.append(transaction)
    was = table.index(before).by_id if before else {}
    now = index.by_id
    added = {k.id: k.sha256 for k in index.keys if k.id not in was or was[k.id].sha256 != k.sha256}
    removed = tuple(name for name in [*was, *(name for name in lost if name not in was)] if name not in now)
    hashes = {name: sha256(table.files.read(name)) for name in names}
    write_seal(table.files, Seal(dataset.version, op, added, removed, rows, hashes))
