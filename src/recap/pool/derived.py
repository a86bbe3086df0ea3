"""Descriptors of a pool's episodes, stored by the fingerprint of their describer; lost ones are recomputed.

derived/<fingerprint>/table.json names the describer. Next to it are immutable safetensors files, each named
by its hash, with the descriptors of some episodes. A row belongs to an episode id and the hash of its
content. derived/rows-<fingerprint>/ holds the rows of a large pool as one retrieval compares them, see
`recap.retrieval.rows`; derived/confidence-… holds the distances that calibrate its confidence.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError, cause
from recap.pool.files import Files, RemoteFiles, is_intact, sealed, sha256, unsealed
from recap.sums import file_sha256
from recap.types import F32, Descriptors, Episode

if TYPE_CHECKING:
    from recap.pool.live import LiveView
    from recap.pool.view import Describer

MAPPED_BYTES = 2**21  # of one term's descriptors in memory: larger ones are mapped from a temporary file
N_TOGETHER = 256  # episodes that are described before they are written
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_KINDS = {"U8": "<u1", "I64": "<i8", "F32": "<f4", "F64": "<f8"}
log = logging.getLogger("recap.pool")


def folder_of(fingerprint: str) -> str:
    """The folder of a fingerprint; if it is no valid folder name, its hash is used."""
    name = fingerprint if _PLAIN.fullmatch(fingerprint) else sha256(fingerprint.encode("utf-8"))
    return f"derived/{name}"


def describe(describer: Describer, episode: Episode) -> dict[str, F32]:
    """The descriptors of an episode, checked against the describer's dims.

    An episode that lacks a required feature, such as an object, gets no rows: it is never retrieved and does
    not stop a running process.
    """
    try:
        found = describer.describe(episode)
    except Exception as error:  # a term may come from a plugin; one demonstration must not stop robots
        return _not_used(describer, episode, cause(error, 1000))
    if set(found) != set(describer.dims):
        raise DatasetError(f"{describer.fingerprint} describes {sorted(found)}, not {sorted(describer.dims)}")
    terms = {}
    for term, width in describer.dims.items():
        values = np.ascontiguousarray(found[term], np.float32)
        if values.shape != (len(episode), width):
            raise DatasetError(
                f"describer {describer.fingerprint}: '{term}' of episode {episode.id!a} is {values.shape}, "
                f"not ({len(episode)}, {width})"
            )
        if not np.isfinite(values).all():
            return _not_used(describer, episode, f"its '{term}' is not finite")
        terms[term] = values
    return terms


def _not_used(describer: Describer, episode: Episode, why: str) -> dict[str, F32]:
    """Return no rows and log the reason."""
    log.warning("demonstration %a is not used: %s", episode.id, why)
    return {term: np.empty((0, width), np.float32) for term, width in describer.dims.items()}


def assemble(
    describer: Describer, ids: Sequence[str], rows: Iterable[Mapping[str, F32]], n_frames: int | None = None
) -> Descriptors:
    """The descriptors of single episodes, concatenated.

    Args:
        n_frames: upper limit of the number of rows, so that `rows` may be an iterator.
    """
    if n_frames is None:
        rows = list(rows)
        n_frames = sum(len(next(iter(row.values()), ())) for row in rows)
    terms = {term: _new_table(n_frames, width) for term, width in describer.dims.items()}
    starts = [0]
    for row in rows:
        end = starts[-1] + len(next(iter(row.values()), ()))
        for term, values in terms.items():
            values[starts[-1] : end] = row[term]
        starts.append(end)
    terms = {term: values[: starts[-1]] for term, values in terms.items()}
    for values in terms.values():
        values.flags.writeable = False
    return Descriptors(describer.fingerprint, tuple(ids), np.array(starts, np.int64), terms)


def _new_table(n: int, width: int) -> F32:
    """An empty array (n, width); a large one is mapped from a temporary file, to save private memory."""
    size = 4 * n * width
    if size >= MAPPED_BYTES and hasattr(os, "posix_fallocate"):
        with suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is noticed here
            return np.asarray(np.memmap(file, np.float32, "r+", shape=(n, width)))
    return np.empty((n, width), np.float32)


def picked(found: Descriptors, ids: Sequence[str] | None) -> Descriptors:
    """The descriptors of some episodes in this order, or of all if `ids` is None."""
    if ids is None:
        return found
    number_of = {name: i for i, name in enumerate(found.episode_ids)}
    spans = [slice(*found.starts[number_of[name] : number_of[name] + 2]) for name in ids]
    lengths = [span.stop - span.start for span in spans]
    terms = {
        term: np.concatenate([values[:0], *(values[span] for span in spans)])
        for term, values in found.terms.items()
    }
    return Descriptors(found.fingerprint, tuple(ids), np.cumsum([0, *lengths], dtype=np.int64), terms)


@dataclass(slots=True)
class _Table:
    """The descriptors of one fingerprint in memory."""

    rows: dict[tuple[str, str], Mapping[str, F32]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)  # files of `read` that are not held in memory
    last: tuple[tuple[tuple[str, str], ...], Descriptors] | None = None  # of a complete version


class Derived:
    """Stored descriptors of a pool."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        self._tables.clear()

    def descriptors(
        self, view: LiveView, describer: Describer, ids: Sequence[str] | None = None
    ) -> Descriptors:
        """Descriptors of every frame of a version or of some episodes; missing ones are computed and kept."""
        with self._lock:
            table = self._tables.setdefault(describer.fingerprint, _Table())
            wanted = tuple((name, view.digests[name]) for name in (view.episode_ids if ids is None else ids))
            if table.last is not None and table.last[0] == wanted:
                return table.last[1]
            if any(key not in table.rows for key in wanted):
                self._check_owner(describer)
                self._read_new(table, describer)
                if sum(key not in table.rows for key in wanted) > N_TOGETHER and table.skipped:
                    table.read, table.skipped = table.read - table.skipped, set()
                    self._read_new(table, describer)
                self._compute([key for key in wanted if key not in table.rows], view, table, describer)
            rows = [table.rows[key] for key in wanted]
            found = assemble(describer, [name for name, _ in wanted], rows)
            if ids is None:
                table.last = wanted, found
            return found

    def let_go(self, fingerprint: str, files: Iterable[str] = ()) -> list[str]:
        """Drop descriptors from memory and mark files as not to be read; returns all such files."""
        with self._lock:
            table = self._tables.setdefault(fingerprint, _Table())
            table.rows, table.last = {}, None
            table.read |= set(files)
            table.skipped = set(table.read)
            return sorted(table.read)

    def map_arrays(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Arrays stored under a name, memory-mapped; None if missing or damaged."""
        for file in self.files.names(f"derived/{name}"):
            path = self.files.root / file
            if file_sha256(path) != path.stem:
                log.warning("pool %s: %s is damaged and made again", self.files.uri, file)
                continue
            raw = np.asarray(np.memmap(path, np.uint8, "c"))  # writes stay in this process
            size = int.from_bytes(raw[:8].tobytes(), "little")
            header, raw = json.loads(raw[8 : 8 + size].tobytes()), raw[8 + size :]
            return {
                key: raw[slice(*about["data_offsets"])].view(_KINDS[about["dtype"]]).reshape(about["shape"])
                for key, about in header.items()
            }
        return None

    def keep_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays for `map_arrays`, replacing those of that name; only on a local path."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        if isinstance(self.files, RemoteFiles):
            return
        folder = self.files.root / "derived" / name
        partial = folder / f".{os.getpid()}.partial"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(dict(arrays), partial)
            digest = file_sha256(partial)
            old = [path for path in folder.glob("*.safetensors") if path.stem != digest]
            partial.replace(folder / f"{digest}.safetensors")
            for path in old:
                path.unlink(missing_ok=True)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            log.warning("pool %s: what is laid out for search is not kept: %s", self.files.uri, error)

    def missing(self, view: LiveView, describer: Describer) -> list[tuple[str, str]]:
        """Id and hash of the episodes of a version that have no stored descriptors yet."""
        with self._lock:
            table = self._tables.setdefault(describer.fingerprint, _Table())
            self._check_owner(describer)
            table.read, table.skipped = table.read - table.skipped, set()
            self._read_new(table, describer)
            wanted = ((name, view.digests[name]) for name in view.episode_ids)
            return [key for key in wanted if key not in table.rows]

    def _check_owner(self, describer: Describer) -> None:
        name = f"{folder_of(describer.fingerprint)}/table.json"
        mine = {"fingerprint": describer.fingerprint, "dims": dict(describer.dims)}
        try:
            found = unsealed(self.files.read(name))
        except FileNotFoundError:
            self._keep(name, sealed(mine))
            return
        except ValueError:
            raise self._unusable(name, "is damaged") from None
        if found != mine:
            raise self._unusable(name, f"belongs to {found.get('fingerprint')} {found.get('dims')}")

    def _unusable(self, name: str, why: str) -> DatasetError:
        return DatasetError(f"{self.files.uri}/{name} {why}: remove its folder, it is computed again")

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file if possible: a pool on a read-only or full disk works without it."""
        try:
            self.files.write(name, data)
        except OSError as error:
            log.warning("pool %s: descriptors are not kept: %s", self.files.uri, error)

    def _read_new(self, table: _Table, describer: Describer) -> None:
        """Read new files; a damaged one counts as missing."""
        for name in self.files.names(folder_of(describer.fingerprint)):
            if not name.endswith(".safetensors") or name in table.read:
                continue
            table.read.add(name)
            try:
                data = self.files.read(name)
            except FileNotFoundError:
                continue
            if not is_intact(name, data):
                log.warning("pool %s: %s is damaged and computed again", self.files.uri, name)
                continue
            header, terms = read_shard(data)
            if header["fingerprint"] != describer.fingerprint or header["dims"] != dict(describer.dims):
                raise self._unusable(name, f"was made by {header['fingerprint']}")
            start = 0
            for episode_id, digest, n in header["episodes"]:
                row = {term: values[start : start + n] for term, values in terms.items()}
                table.rows.setdefault((episode_id, digest), row)
                start += n

    def _compute(
        self, missing: Sequence[tuple[str, str]], view: LiveView, table: _Table, describer: Describer
    ) -> None:
        for first in range(0, len(missing), N_TOGETHER):
            keys = missing[first : first + N_TOGETHER]
            name, data, rows = describe_some(describer, keys, [view.episode(name) for name, _ in keys])
            self._keep(name, data)
            table.read.add(name)
            table.rows.update(zip(keys, rows, strict=True))


def describe_some(
    describer: Describer, keys: Sequence[tuple[str, str]], episodes: Iterable[Episode]
) -> tuple[str, bytes, list[dict[str, F32]]]:
    """The descriptors of these episodes: file name, content and rows."""
    rows = [describe(describer, episode) for episode in episodes]
    data = write_shard(describer, keys, rows)
    return f"{folder_of(describer.fingerprint)}/{sha256(data)}.safetensors", data, rows


def write_shard(
    describer: Describer, keys: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, F32]]
) -> bytes:
    """Descriptors of some episodes as a safetensors file."""
    from safetensors.numpy import save

    described = assemble(describer, [name for name, _ in keys], rows)
    lengths = np.diff(described.starts).tolist()
    header = {
        "fingerprint": describer.fingerprint,
        "dims": dict(describer.dims),
        "episodes": [[name, digest, n] for (name, digest), n in zip(keys, lengths, strict=True)],
    }
    data: bytes = save(dict(described.terms), metadata={"recap": json.dumps(header, ensure_ascii=False)})
    return data


def read_shard(data: bytes) -> tuple[dict[str, Any], dict[str, F32]]:
    """The inverse of `write_shard`."""
    from safetensors.numpy import load

    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["recap"])
    return header, load(data)
