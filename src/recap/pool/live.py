"""The live view: one version in memory, built from the last one by reading only what is new."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from recap.errors import DatasetError
from recap.pool.derived import Derived
from recap.pool.files import Files
from recap.pool.memory import MemoryView
from recap.pool.salvage import find_rows
from recap.pool.seals import logical_state, read_seals
from recap.pool.table import Damage, Table, log
from recap.pool.view import Describer
from recap.robot import RobotSpec, read_robot
from recap.types import Descriptors, Episode


class LiveView(MemoryView):
    """One version of a pool, low-dimensional data in memory; it never changes."""

    def __init__(
        self,
        version: int,
        episodes: Mapping[str, Episode],
        digests: Mapping[str, str],
        derived: Derived,
        robot: RobotSpec | None = None,
    ) -> None:
        super().__init__(tuple(episodes.values()), version, robot)
        self.digests = digests
        self.derived = derived

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Every frame described, of some episodes or of all; what is missing is computed and kept."""
        return self.derived.descriptors(self, describer, ids)

    def undescribed(self, describer: Describer) -> list[tuple[str, str]]:
        """Id and hash of the episodes whose descriptors are not kept yet."""
        return self.derived.missing(self, describer)


ROBOT = "robot.json"


def read_description(files: Files) -> RobotSpec | None:
    """The robot that a pool was created for; None where it was created without a description."""
    try:
        text = files.read(ROBOT)
    except FileNotFoundError:
        return None
    try:
        return read_robot(json.loads(text), f"{files.uri}/{ROBOT}")
    except ValueError:
        raise DatasetError(f"{files.uri}/{ROBOT} is damaged: write the robot's description anew") from None


class Loader:
    """Makes views, and keeps what the next one can use."""

    def __init__(self, files: Files, table: Table) -> None:
        self.files, self.table = files, table
        self.derived = Derived(files)
        self._view: LiveView | None = None
        self.robot = read_description(files)

    def view(self) -> LiveView:
        """The newest version."""
        dataset = self.table.head()
        if self._view is None or self._view.version != dataset.version:
            self._view = self.view_at(dataset)
        return self._view

    def view_at(self, dataset: Any) -> LiveView:
        """Any version; what the last view has of it is not read again."""
        last = self._view
        index = self.table.index(dataset)
        old = last.digests if last is not None else {}
        digests = {key.id: key.sha256 for key in index.keys}
        missing: dict[int, set[str]] = {}
        for key in index.keys:
            if old.get(key.id) != key.sha256:
                missing.setdefault(key.fragment, set()).add(key.id)
        new: dict[str, Episode] = {}
        for fragment, names in missing.items():
            new.update(self._load(dataset, fragment, names, digests))
        if index.unreadable or len(new) < sum(map(len, missing.values())):
            digests = self._rescue(int(dataset.version), index.unreadable, digests, old, new)
        known = last._episodes if last is not None else {}
        found = {name: new[name] if name in new else known[name] for name in digests}
        return LiveView(int(dataset.version), found, digests, self.derived, self.robot)

    def forget(self) -> None:
        """Forget everything read."""
        self._view = None
        self.derived.forget()

    def _load(
        self, dataset: Any, fragment: int, names: set[str], digests: Mapping[str, str]
    ) -> dict[str, Episode]:
        """The episodes of a fragment that can be read from it."""
        found = {}
        with suppress(Damage):
            for row in self.table.fragment_rows(dataset, fragment):
                if row.id in names and row.sha256 == digests[row.id]:
                    with suppress(DatasetError):
                        found[row.id] = row.episode(self.files)
        return found

    def _rescue(
        self,
        version: int,
        unreadable: Mapping[int, str],
        digests: Mapping[str, str],
        old: Mapping[str, str],
        new: dict[str, Episode],
    ) -> dict[str, str]:
        """Fill `new` from other files where some are damaged; warns of what is left out; returns the rest."""
        seals = read_seals(self.files)
        state = logical_state(seals, version) or dict(digests)
        missing = {i: d for i, d in state.items() if i not in new and old.get(i) != d}
        rows = find_rows(self.files, seals, missing)
        new.update({name: row.episode(self.files) for name, (row, _) in rows.items()})
        lost = [name for name in missing if name not in rows]
        why = "; ".join(unreadable.values()) or "some data have changed"
        what = f"left out {', '.join(map(ascii, lost))}" if lost else "every episode was found elsewhere"
        log.warning("pool %s: %s; %s: run recap pool verify --repair", self.files.uri, why, what)
        return {name: digest for name, digest in state.items() if name not in lost}
