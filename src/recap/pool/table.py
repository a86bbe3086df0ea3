"""The Lance table of a pool: versions, rows, and how a change is committed and sealed.

Every commit is strict: it succeeds only on top of the version it was prepared for. An append is written as
Lance's `Merge`, which conflicts with every other change; a plain `Append` would let two processes add the
same id. Only this module uses Lance's API.

Lance does not verify what it reads, so each version is sealed: see `recap.pool.seals`.
"""

from __future__ import annotations

import errno
import json
import logging
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import numpy as np

from recap.errors import DatasetError, cause
from recap.lazy import Made
from recap.pool.files import Files, sealed, sha256
from recap.pool.keys import Index, Key
from recap.pool.schema import KEYS, SCHEMA, ArrowRows, Row
from recap.pool.seals import Hashes, Seal, pruned_up_to, read_seal, seal_name

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lance
    from lance import LanceDataset, LanceOperation
    from lance.commit import CommitConflictError
    from lance.file import LanceFileReader
    from lance.fragment import write_fragments

FOLDER = "episodes.lance"
Conflict = CommitConflictError
log = logging.getLogger("recap.pool")
_lance: Any = lance  # only partly typed

N_OPEN = 64  # data files that are held open
N_NEAR = 64  # rows that are read together
_LAST = 2**64 - 1  # manifests are named so that the newest sorts first


class Damage(Exception):  # noqa: N818
    """Lance could not read something, or a file has changed."""


def new_op(name: str, **details: int) -> dict[str, Any]:
    """The note of a commit: operation, time and a unique token."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"op": name, **details, "time": now, "token": secrets.token_hex(8)}


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of Lance on damaged data into `Damage`, including panics of its Rust code."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, PermissionError, Damage):
        raise
    except BaseException as error:  # a panic is not an Exception
        if _is_passing(error):
            if isinstance(error, OSError):
                raise
            raise OSError(str(error)) from error
        raise Damage(f"{what}: {cause(error, 160)}") from error


def _is_passing(error: BaseException) -> bool:
    """True for an error of the network or the system, which says nothing about the data."""
    text = str(error).lower()
    if "error performing" in text and "not found" not in text:  # Lance's error for an unreachable store
        return True
    system = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EINTR)
    return isinstance(error, OSError) and error.errno in system


class Table:
    """Versions of the episode table."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.uri = f"{files.uri}/{FOLDER}"
        self._session = _lance.Session()
        self._head: Any = None
        self.damaged: tuple[int, ...] = ()  # versions newer than the head that cannot be read
        self._fragments: dict[tuple[str, ...], Index] = {}  # by files, which never change
        self._indices: dict[int, Index] = {}
        self._whole: dict[str, Any] = {}  # files that were compared with their seals: their stamps then
        self._open = lru_cache(N_OPEN)(partial(stored, files))

    @classmethod
    def create(cls, files: Files) -> Table:
        """Create an empty table; raises an OSError if there is one."""
        op = new_op("create")
        lance.write_dataset(
            SCHEMA.empty_table(),
            f"{files.uri}/{FOLDER}",
            schema=SCHEMA,
            storage_options=files.options,
            commit_message=json.dumps(op),
        )
        table = cls(files)
        table.seal(table.head(), None, op)
        return table

    def versions(self) -> list[int]:
        """Every version with a manifest, oldest first."""
        names = self.files.names(f"{FOLDER}/_versions")
        stems = [name.rpartition("/")[2].removesuffix(".manifest") for name in names]
        return sorted(_LAST - int(stem) for stem in stems if stem.isdigit())

    def at(self, version: int) -> Any:
        """One version, checked against its seal if it has one."""
        if self._head is not None and self._head.version == version:
            return self._head
        with reading(f"version {version}"):
            seal = read_seal(self.files, version, Hashes)
            if seal is not None:
                data = self.files.read(manifest_name(version))
                if seal.files.get(manifest_name(version)) != sha256(data):
                    raise Damage(f"version {version}: its manifest has changed")
            return lance.dataset(
                self.uri, version=version, session=self._session, storage_options=self.files.options
            )

    def head(self) -> Any:
        """The newest readable version; cheap if nothing changed."""
        if self._head is None:
            versions = self.versions()
        else:
            known = self._head.version
            versions = list(range(known, self._newest() + 1))
            if len(versions) == 1:
                return self._head
        damaged = []
        for version in reversed(versions):
            try:
                head = self.at(version)
            except Damage as error:
                damaged.append(version)
                if version not in self.damaged:
                    log.warning("pool %s: %s; using the last version that is whole", self.files.uri, error)
                continue
            self._head, self.damaged = head, tuple(sorted(damaged))
            return head
        raise DatasetError(f"pool {self.files.uri} has no readable version: restore its files from a copy")

    def _newest(self) -> int:
        version = int(self._head.version)
        if "://" in self.uri:
            return max(version, int(self._head.latest_version))
        if version <= pruned_up_to(self.files):
            return max(version, *self.versions())
        while self.files.exists(manifest_name(version + 1)):  # one stat call, far cheaper than a listing
            version += 1
        return version

    def forget(self) -> None:
        """Drop all caches, as in a new process."""
        self._head, self.damaged, self._session = None, (), _lance.Session()
        for known in (self._fragments, self._indices, self._whole):
            known.clear()
        self._open.cache_clear()

    def index(self, dataset: Any) -> Index:
        """The live rows of a version; only fragments not seen before are read."""
        if dataset.version in self._indices:
            return self._indices[dataset.version]
        parts, unreadable = self._parts(dataset)
        index = Index.of(list(parts.values()), unreadable)
        self._indices = {k: v for k, v in self._indices.items() if k > dataset.version - 2}
        if not unreadable:
            self._indices[dataset.version] = index
        if len(self._fragments) > 2 * len(parts) + 64:  # forget what compactions have replaced
            self._fragments = parts
        return index

    def _parts(self, dataset: Any) -> tuple[dict[tuple[str, ...], Index], dict[int, str]]:
        """The rows of each fragment of a version by its files, and of those that cannot be read, why."""
        unreadable: dict[int, str] = {}
        parts = {}
        for fragment in dataset.get_fragments():
            name = tuple(fragment_files(fragment.metadata))
            try:
                if name not in self._fragments:
                    self._fragments[name] = self._read_keys(dataset, fragment)
                parts[name] = self._fragments[name]
            except Damage as error:
                unreadable[fragment.metadata.id] = str(error)
        return parts, unreadable

    def _read_keys(self, dataset: Any, fragment: Any) -> Index:
        with reading(f"fragment {fragment.fragment_id}"):
            self._check(fragment.metadata)
            scan = dataset.scanner(columns=list(KEYS), fragments=[fragment], with_row_address=True)
            table, number = scan.to_table(), fragment.fragment_id
            if len(table) != fragment.metadata.num_rows or any(table[key].null_count for key in KEYS):
                raise Damage(f"fragment {number}: rows are missing")
            ids, digests = (table[key].to_numpy() for key in KEYS[:2])
            offsets = table["_rowaddr"].to_numpy() & 0xFFFFFFFF
            places = np.column_stack([table["seq"].to_numpy(), np.full(len(table), number), offsets])
            return Index(tuple(ids.tolist()), digests.astype("S64"), places.astype(np.int64))

    def _check(self, meta: Any) -> None:
        """Keep Lance from reading changed files, because some damage makes it abort the whole process."""
        for name in fragment_files(meta):
            # The version that wrote the file: a fragment has its number, a deletion file the number before.
            deleted = "/_deletions/" in name
            version = int(name.rpartition("/")[2].split("-")[1]) + 1 if deleted else meta.id
            seal = read_seal(self.files, version, Hashes)
            stamp = None if "://" in self.uri else self.files.stamp(name)
            if seal is not None and seal.files.get(name, "") != sha256(self.files.read(name)):
                raise Damage(f"fragment {meta.id}: {name} has changed")
            if seal is not None:
                self._whole[name] = stamp

    def stored_rows(self, data_file: str, at_once: bool = True) -> tuple[Sequence[Row], bool]:
        """Every row of a data file by its offset, deleted ones too; and whether a seal vouches for them.

        Unless `at_once` they are read when asked for, if it can be told whether the file has changed.
        """
        with reading(data_file):
            file, stamp = stored(self.files, data_file), self._whole.get(data_file)
            n = file.num_rows()
            if at_once or stamp is None:
                return ArrowRows(file.read_all(batch_size=n).to_table()), data_file in self._whole

        @lru_cache(1)
        def some(number: int) -> ArrowRows:
            with reading(data_file):
                if self.files.stamp(data_file) != stamp:
                    raise Damage(f"{data_file} has changed")
                first = number * N_NEAR
                return ArrowRows(self._open(data_file).read_range(first, min(N_NEAR, n - first)).to_table())

        return Made(n, lambda number: some(number // N_NEAR)[number % N_NEAR]), True

    def fragment_rows(self, dataset: Any, fragment: int) -> list[Row]:
        """All live rows of one fragment."""
        with reading(f"fragment {fragment}"):
            return list(ArrowRows(dataset.get_fragment(fragment).to_table(columns=SCHEMA.names)))

    def row(self, dataset: Any, key: Key) -> Row:
        with reading(f"episode {key.id!a}"):
            fragment = dataset.get_fragment(key.fragment)
            number = self._fragments[tuple(fragment_files(fragment.metadata))].number_of[key.id]
            (row,) = ArrowRows(fragment.take([number], columns=SCHEMA.names))
            if (row.id, row.sha256) != (key.id, key.sha256):
                raise Damage(f"episode {key.id!a}: another episode is in its place")
            return row

    def write(self, dataset: Any, rows: Any) -> Any:
        """Write rows as a new fragment that belongs to no version yet."""
        (fragment,) = write_fragments(
            rows, dataset, schema=SCHEMA, storage_options=self.files.options, session=self._session
        )
        fragment.id = dataset.version + 1  # never used before, because versions only grow
        self.files.sync(fragment_files(fragment))
        return fragment

    def append(self, dataset: Any, fragment: Any) -> Any:
        """Commit an additional fragment; if another writer was first, its files are removed."""
        fragments = [f.metadata for f in dataset.get_fragments()]
        operation = LanceOperation.Merge([*fragments, fragment], dataset.lance_schema)
        try:
            return self._commit(dataset, operation, new_op("add", n=fragment.num_rows))
        except Conflict:
            for name in fragment_files(fragment):
                self.files.remove(name)
            raise

    def delete(self, dataset: Any, keys: Sequence[Key], what: str = "remove") -> Any:
        """Commit without these rows."""
        changed, gone = [], []
        for number in sorted({key.fragment for key in keys}):
            offsets = [key.offset for key in keys if key.fragment == number]
            rest = dataset.get_fragment(number).delete_rows(offsets)
            if rest is None:
                gone.append(number)
            else:
                changed.append(rest)
                self.files.sync(fragment_files(rest)[1:])
        operation: Any = LanceOperation.Delete(changed, gone, "true")
        if not gone:  # Lance moves a `Delete` on top of one of other fragments, where no seal knows its files
            left = {meta.id: meta for meta in changed}
            metas = [left.get(f.fragment_id, f.metadata) for f in dataset.get_fragments()]
            operation = LanceOperation.Merge(metas, dataset.lance_schema)
        return self._commit(dataset, operation, new_op(what, n=len(keys)))

    def replace(
        self, dataset: Any, gone: Sequence[int], new: Any, lost: Iterable[str], what: str = "repair"
    ) -> Any:
        """Commit without some fragments, readable or not, and with one new fragment or none."""
        fragments = [] if new is None else [new]
        operation = LanceOperation.Update(removed_fragment_ids=list(gone), new_fragments=fragments)
        n = 0 if new is None else new.num_rows
        return self._commit(dataset, operation, new_op(what, n=n), lost)

    def rewrite(self, dataset: Any, old: Sequence[Any], new: Any) -> Any:
        """Commit one fragment in place of several adjacent ones."""
        operation = LanceOperation.Rewrite([LanceOperation.RewriteGroup(list(old), [new])], [])
        return self._commit(dataset, operation, new_op("compact", n=len(old)))

    def restore(self, dataset: Any, version: int) -> Any:
        """Commit an older version again, and then any concurrent additions that this has undone."""
        new = self._commit(dataset, LanceOperation.Restore(version), new_op("rollback", to=version))
        if new.version == dataset.version + 1:
            return new
        # On an object store writers do not take turns, and Lance moves a `Restore` on top of an addition.
        between = self.at(new.version - 1)
        seen = {fragment.fragment_id for fragment in dataset.get_fragments()}
        was, now = self.index(between), self.index(new).number_of
        seen |= {place[1] for name, place in zip(was.ids, was.places.tolist(), strict=True) if name in now}
        undone = [f.metadata for f in between.get_fragments() if f.fragment_id not in seen]
        while undone:
            whole = [*(f.metadata for f in new.get_fragments()), *undone]
            n = sum(meta.num_rows for meta in undone)
            try:
                return self._commit(new, LanceOperation.Merge(whole, new.lance_schema), new_op("add", n=n))
            except Conflict:
                new = self.head()
        return new

    def _commit(self, dataset: Any, operation: Any, op: Mapping[str, Any], lost: Iterable[str] = ()) -> Any:
        try:
            new = LanceDataset.commit(
                dataset,
                operation,
                read_version=dataset.version,
                max_retries=0,
                storage_options=self.files.options,
                commit_message=json.dumps(op),
            )
        except Conflict:
            # After a slow answer Lance asks the store again, and then conflicts with its own first attempt.
            if self.message(dataset.version + 1) != op:
                raise
            new = self.at(dataset.version + 1)
        self.files.sync([manifest_name(new.version)])
        self._head = new
        self.seal(new, dataset, op, lost)
        return new

    def seal(self, dataset: Any, before: Any, op: Mapping[str, Any], lost: Iterable[str] = ()) -> None:
        """Seal a version against the one it was built on; `lost` names rows that could not be read there."""
        old, now = self._parts(before)[0] if before else {}, self._parts(dataset)[0]
        files = {n for f in before.get_fragments() for n in fragment_files(f.metadata)} if before else set()
        names = [manifest_name(dataset.version)]
        rows = {}
        for fragment in dataset.get_fragments():
            key = tuple(fragment_files(fragment.metadata))
            new = [name for name in key if name not in files]
            names += new
            if new and "/data/" in new[0]:
                rows[new[0]] = now[key].state() if key in now else {}
        transaction = self.transaction_name(dataset)
        if transaction is not None and self.files.exists(transaction):
            self.files.sync([transaction])
            names.append(transaction)
        # Of the rows only those of fragments that came or went: there may be a million others.
        came, went = (
            Index.of([part for key, part in one.items() if key not in other]).state()
            for one, other in ((now, old), (old, now))
        )
        added = {name: digest for name, digest in came.items() if went.get(name) != digest}
        removed = tuple(name for name in went if name not in came)
        there = self.index(dataset).number_of if lost else {}
        removed += tuple(name for name in dict.fromkeys(lost) if name not in there and name not in removed)
        hashes = {name: sha256(self.files.read(name)) for name in names}
        body = asdict(Seal(dataset.version, op, added, removed, rows, hashes))
        self.files.write(seal_name(dataset.version), sealed(body))

    def seal_late(self, version: int) -> None:
        """Seal a version whose writer died between commit and seal."""
        if not self.files.exists(seal_name(version)):
            before = self.at(version - 1) if version > 1 else None
            self.seal(self.at(version), before, self.message(version))

    def message(self, version: int) -> dict[str, Any]:
        """The note of a commit; empty if it is unreadable."""
        try:
            with reading(f"version {version}"):
                properties = self.at(version).read_transaction(version).transaction_properties
                message: dict[str, Any] = json.loads(properties["__lance_commit_message"])
                return message
        except Damage:
            return {}

    def transaction_name(self, dataset: Any) -> str | None:
        """The transaction file of a version."""
        try:
            with reading("transaction"):
                done = dataset.read_transaction(dataset.version)
        except Damage:
            return None
        return f"{FOLDER}/_transactions/{done.read_version}-{done.uuid}.txn"


def manifest_name(version: int) -> str:
    """The file that lists the fragments of a version."""
    return f"{FOLDER}/_versions/{_LAST - version:020d}.manifest"


def fragment_files(meta: Any) -> list[str]:
    """The data file of a fragment, and the file of its deleted rows if there is one."""
    names = [f"{FOLDER}/data/{file.path}" for file in meta.files]
    if meta.deletion_file is not None:
        names.append(f"{FOLDER}/{meta.deletion_file.path(meta.id)}")
    return names


def stored(files: Files, data_file: str) -> Any:
    """Lance's reader of a data file, which returns all rows, including deleted ones."""
    return LanceFileReader(f"{files.uri}/{data_file}", storage_options=files.options)
