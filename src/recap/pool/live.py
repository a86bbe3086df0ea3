"""The live view: rows of one version in Arrow, reused from the last view where possible."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from recap.errors import DatasetError, InputError
from recap.pool.derived import Derived
from recap.pool.files import Files
from recap.pool.keys import Index
from recap.pool.memory import EpisodeView
from recap.pool.salvage import find_rows
from recap.pool.schema import Row
from recap.pool.seals import logical_state, read_seals
from recap.pool.table import Damage, Table, fragment_files, log, reading
from recap.pool.view import Describer
from recap.robot import RobotSpec, read_robot
from recap.types import Descriptors, Episode

MAX_HELD = 64 * 2**20  # bytes of rows in memory; those beyond are read when asked for
N_MADE = 1024  # episodes that are kept as they were made, of all views of a pool


class LiveView(EpisodeView):
    """One version of a pool; episodes are made when asked for, and it never changes."""

    def __init__(
        self,
        version: int,
        digests: Mapping[str, str],
        make: Callable[[str], Episode],
        derived: Derived,
        robot: RobotSpec | None = None,
    ) -> None:
        super().__init__(version, tuple(digests))
        self.robot = robot  # None if the pool was created without a description
        self.digests = digests
        self.derived = derived
        self._make = make

    def episode(self, episode_id: str) -> Episode:
        """One episode; two calls may return two objects."""
        if episode_id not in self.digests:
            raise InputError(f"version {self.version} has no episode {episode_id!a}")
        return self._make(episode_id)

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Descriptors of every frame of the given or all episodes; missing ones are computed and stored."""
        return self.derived.descriptors(self, describer, ids)

    def undescribed(self, describer: Describer) -> list[tuple[str, str]]:
        """Id and hash of the episodes that have no stored descriptors yet."""
        return self.derived.missing(self, describer)


ROBOT = "robot.json"


def read_description(files: Files) -> RobotSpec | None:
    """The robot that a pool was created for; None if it was created without a description."""
    try:
        text = files.read(ROBOT)
    except FileNotFoundError:
        return None
    try:
        return read_robot(json.loads(text), f"{files.uri}/{ROBOT}")
    except ValueError:
        raise DatasetError(f"{files.uri}/{ROBOT} is damaged: write the robot's description anew") from None


class Loader:
    """Makes views, and caches what the next one can use."""

    def __init__(self, files: Files, table: Table) -> None:
        self.files, self.table = files, table
        self.derived = Derived(files)
        self.robot = read_description(files)
        self._view: LiveView | None = None
        self._parts: dict[str, Sequence[Row]] = {}  # of the newest view, by data file
        self._rescued: dict[str, Row] = {}  # by hash, where the file of a row is damaged

        @lru_cache(N_MADE)
        def make(rows: Sequence[Row], number: int) -> Episode:
            return rows[number].episode(files)

        self._make = make

    def view(self) -> LiveView:
        """The newest version."""
        dataset = self.table.head()
        if self._view is None or self._view.version != dataset.version:
            self._view, parts = self._made(dataset)
            if not self._parts.keys() <= parts.keys():
                self._make.cache_clear()  # a cached episode would keep all rows of an unused file
            self._parts = parts
        return self._view

    def view_at(self, dataset: Any) -> LiveView:
        """Any version; rows of the newest view are reused."""
        return self._made(dataset)[0]

    def forget(self) -> None:
        """Drop all caches."""
        self._view = None
        self._parts, self._rescued = {}, {}
        self._make.cache_clear()
        self.derived.forget()

    def _made(self, dataset: Any) -> tuple[LiveView, dict[str, Sequence[Row]]]:
        index = self.table.index(dataset)
        files = {f.fragment_id: fragment_files(f.metadata)[0] for f in dataset.get_fragments()}
        parts: dict[str, Sequence[Row]] = {}
        n_held = 0
        for fragment, name in files.items():
            if fragment not in index.unreadable:
                with suppress(Damage):
                    parts[name] = self._parts.get(name) or self._read(index, fragment, name, n_held)
                    n_held += getattr(parts[name], "nbytes", 0)
        held = {number: parts[name] for number, name in files.items() if name in parts}
        digests: Mapping[str, str] = index.digest_of
        rescued: dict[str, Row] = {}
        if len(held) < len(files):
            good = {key.id: key.sha256 for key in index.keys if key.fragment in held}
            digests, rescued = self._rescue(dataset, index, good, set(files.values()) - parts.keys())
        make = self._make

        def made(name: str) -> Episode:
            if name in rescued:
                return make((rescued[name],), 0)
            key = index.by_id[name]
            try:
                return make(held[key.fragment], key.offset)
            except (Damage, DatasetError) as error:  # since the view was made
                found = find_rows(self.files, read_seals(self.files), {name: key.sha256})
                if name not in found:
                    why = "has changed, or was forgotten: run recap pool verify --repair"
                    raise DatasetError(f"episode {name!a} {why}") from error
                return found[name][0].episode(self.files)

        return LiveView(int(dataset.version), digests, made, self.derived, self.robot), parts

    def _read(self, index: Index, fragment: int, name: str, n_held: int) -> Sequence[Row]:
        """The rows of a fragment, each compared with its hash where no seal vouches for their file."""
        rows, is_sealed = self.table.stored_rows(name, n_held < MAX_HELD)
        with reading(name):
            for key in () if is_sealed else index.of_fragment(fragment).keys:
                if not (rows[key.offset].intact and rows[key.offset].id == key.id):
                    raise Damage(f"episode {key.id!a} has changed")
        return rows

    def _rescue(
        self, dataset: Any, index: Index, good: Mapping[str, str], damaged: Collection[str]
    ) -> tuple[dict[str, str], dict[str, Row]]:
        """Find intact copies of rows of damaged files, warn of the others, and return what was found."""
        seals = read_seals(self.files)
        state = logical_state(seals, dataset.version) or index.state()
        missing = {name: digest for name, digest in state.items() if good.get(name) != digest}
        sought = {name: digest for name, digest in missing.items() if digest not in self._rescued}
        found = find_rows(self.files, seals, sought, tuple(damaged))
        self._rescued |= {row.sha256: row for row, _ in found.values()}
        rows = {name: self._rescued[digest] for name, digest in missing.items() if digest in self._rescued}
        lost = dict.fromkeys(name for name in missing if name not in rows)
        why = "; ".join(index.unreadable.values()) or "some data have changed"
        what = f"left out {', '.join(map(ascii, lost))}" if lost else "every episode was found elsewhere"
        log.warning("pool %s: %s; %s: run recap pool verify --repair", self.files.uri, why, what)
        return {name: digest for name, digest in state.items() if name not in lost}, rows
