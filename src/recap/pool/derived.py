"""Descriptors of a pool's episodes, kept by the fingerprint of what made them; lost ones are computed again.

derived/<fingerprint>/table.json names what made them; beside it are safetensors files, each named by its hash
and never changed, that describe some episodes each. A row belongs to an episode id and the hash of its
content.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recap.errors import DatasetError
from recap.pool.files import Files, is_intact, sealed, sha256, unsealed
from recap.types import F32, Descriptors, Episode

if TYPE_CHECKING:
    from recap.pool.live import LiveView
    from recap.pool.view import Describer

N_TOGETHER = 256  # episodes described before they are written down
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
log = logging.getLogger("recap.pool")


def folder_of(fingerprint: str) -> str:
    """The folder of a fingerprint; one that cannot name a folder is named by its hash."""
    name = fingerprint if _PLAIN.fullmatch(fingerprint) else sha256(fingerprint.encode("utf-8"))
    return f"derived/{name}"


def describe(describer: Describer, episode: Episode) -> dict[str, F32]:
    """What a describer says of an episode, checked against what it promised.

    An episode that lacks what the describer reads, such as an object, gets no rows: it is never retrieved,
    and does not stop what runs.
    """
    try:
        found = describer.describe(episode)
    except Exception as error:  # a term may be of another's making; one demonstration must not stop robots
        return _not_used(describer, episode, str(error) or type(error).__name__)
    if set(found) != set(describer.dims):
        raise DatasetError(
            f"describer {describer.fingerprint} gives the terms {sorted(found)}, not {sorted(describer.dims)}"
        )
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
    """No rows, and a line that says why."""
    log.warning("demonstration %a is not used: %s", episode.id, " ".join(why.split()))
    return {term: np.empty((0, width), np.float32) for term, width in describer.dims.items()}


def assemble(describer: Describer, ids: Sequence[str], rows: Sequence[Mapping[str, F32]]) -> Descriptors:
    """The descriptions of single episodes as one, end to end."""
    terms = {}
    lengths = [0]
    for term, width in describer.dims.items():
        parts = [row[term] for row in rows]
        terms[term] = np.concatenate(parts) if parts else np.empty((0, width), np.float32)
        terms[term].flags.writeable = False
        lengths = [0, *map(len, parts)]
    return Descriptors(describer.fingerprint, tuple(ids), np.cumsum(lengths, dtype=np.int64), terms)


@dataclass(slots=True)
class _Table:
    """What is in memory of one fingerprint."""

    rows: dict[tuple[str, str], Mapping[str, F32]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    keys: tuple[tuple[str, str], ...] = ()  # what `last` describes
    last: Descriptors | None = None
    space: dict[str, F32] = field(default_factory=dict)  # the arrays of `last`, with space for more rows

    def lay_out(self, describer: Describer, wanted: tuple[tuple[str, str], ...]) -> Descriptors:
        """Rows end to end; where rows were only added at the end, only these are copied."""
        done = len(self.keys) if self.last is not None and wanted[: len(self.keys)] == self.keys else 0
        rows = [self.rows[key] for key in wanted[done:]]
        starts = np.zeros(len(wanted) + 1, np.int64)
        if done and self.last is not None:
            starts[: done + 1] = self.last.starts
        lengths = [len(next(iter(row.values()), ())) for row in rows]
        starts[done + 1 :] = starts[done] + np.cumsum(lengths, dtype=np.int64)
        terms = {}
        moved = not done
        for term, width in describer.dims.items():
            space = self.space.get(term)
            if not done or space is None or len(space) < starts[-1]:
                larger = np.empty((int(starts[-1] * 1.25) + 64, width), np.float32)
                if done and space is not None:
                    larger[: starts[done]] = space[: starts[done]]
                space = self.space[term] = larger
                moved = True
            for i, row in enumerate(rows, done):
                space[starts[i] : starts[i + 1]] = row[term]
            terms[term] = space[: starts[-1]]
            terms[term].flags.writeable = False
        # Rows become views of the long arrays, so that memory holds everything once.
        first = 0 if moved else done
        for i, key in enumerate(wanted[first:], first):
            a, b = starts[i], starts[i + 1]
            self.rows[key] = {term: values[a:b] for term, values in terms.items()}
        ids = tuple(name for name, _ in wanted)
        self.keys, self.last = wanted, Descriptors(describer.fingerprint, ids, starts, terms)
        return self.last


class Derived:
    """The side tables of a pool."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Forget everything read."""
        self._tables.clear()

    def descriptors(self, view: LiveView, describer: Describer) -> Descriptors:
        """Every frame of a version; only episodes that no file describes yet are computed."""
        with self._lock:
            table = self._tables.setdefault(describer.fingerprint, _Table())
            wanted = tuple((name, view.digests[name]) for name in view.episode_ids)
            if table.last is not None and table.keys == wanted:
                return table.last
            if any(key not in table.rows for key in wanted):
                self._check_owner(describer)
                self._read_new(table, describer)
                self._compute([key for key in wanted if key not in table.rows], view, table, describer)
            return table.lay_out(describer, wanted)

    def _check_owner(self, describer: Describer) -> None:
        name = f"{folder_of(describer.fingerprint)}/table.json"
        mine = {"fingerprint": describer.fingerprint, "dims": dict(describer.dims)}
        try:
            found = unsealed(self.files.read(name))
        except FileNotFoundError:
            self._keep(name, sealed(mine))
            return
        except ValueError:
            raise DatasetError(
                f"{self.files.uri}/{name} is damaged: remove its folder, it is computed again"
            ) from None
        if found != mine:
            raise DatasetError(
                f"{self.files.uri}/{name} belongs to {found.get('fingerprint')} {found.get('dims')}, not to "
                f"{describer.fingerprint} {dict(describer.dims)}: remove its folder, it is computed again"
            )

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file where that can be done: a pool on a read-only or full disk works without it."""
        try:
            self.files.write(name, data)
        except OSError as error:
            log.warning("pool %s: descriptors are not kept: %s", self.files.uri, error)

    def _read_new(self, table: _Table, describer: Describer) -> None:
        """Files that appeared since; a damaged one counts as not there."""
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
                raise DatasetError(
                    f"{self.files.uri}/{name} was made by {header['fingerprint']}, not by "
                    f"{describer.fingerprint}: remove its folder, it is computed again"
                )
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
            rows = [describe(describer, view.episode(name)) for name, _ in keys]
            data = write_shard(describer, keys, rows)
            name = f"{folder_of(describer.fingerprint)}/{sha256(data)}.safetensors"
            self._keep(name, data)
            table.read.add(name)
            table.rows.update(zip(keys, rows, strict=True))


def write_shard(
    describer: Describer, keys: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, F32]]
) -> bytes:
    """Descriptions of some episodes as one safetensors file."""
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
