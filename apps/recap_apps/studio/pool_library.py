"""A live pool in the studio; its list is read from a few small columns."""

from __future__ import annotations

import json
from typing import Any

from recap.errors import RecapError
from recap.pool.live import read_description
from recap.pool.store import Pool
from recap.pool.table import Damage, reading
from recap.pool.view import PoolView
from recap.robot import RobotSpec
from recap.types import QUARANTINE, Episode
from recap_apps.studio.library import Entry, Library

COLUMNS = ["id", "task", "embodiment", "attributes", "fps", "success", "n_frames", "camera_names"]
REPAIR = "run recap pool verify --repair"


class PoolLibrary(Library):
    """Follows the newest version; numbers and images are read when a demonstration is opened."""

    def __init__(self, place: str, robot: RobotSpec | None = None) -> None:
        super().__init__(place, "pool")
        self.store, self._robot = Pool.open(place), robot
        self._digests: dict[str, str] = {}
        self.version = -1
        self.refresh()

    def refresh(self) -> None:
        """Read the list again if the pool has changed."""
        with self._lock:
            version = self.store.version
            if version == self.version:
                return
            index = self.store.index()
            rows, lost = self._rows()
            known = {entry.id: entry for entry in self.entries}
            digests = index.state()
            entries = []
            for number, key in enumerate(index.keys):
                row = rows.get(key.id)
                entry = _entry(number, row) if row else Entry(number, key.id, damage=f"damaged: {REPAIR}")
                before = known.get(key.id)
                if before is not None and self._digests.get(key.id) == key.sha256:
                    entry.findings, entry.damage = before.findings, before.damage
                entries.append(entry)
            n = len(lost | set(index.unreadable))
            self.notice = f"{n} parts of the pool cannot be read: {REPAIR}" if n else ""
            self.entries, self._digests, self.version = entries, digests, version
            self._by_id = {entry.id: entry.number for entry in entries}
            self._next = 0

    def _rows(self) -> tuple[dict[str, dict[str, Any]], set[int]]:
        """Properties by id, and fragments that cannot be read."""
        dataset = self.store.table.head()
        rows: dict[str, dict[str, Any]] = {}
        lost = set()
        for fragment in dataset.get_fragments():
            try:
                with reading(f"fragment {fragment.fragment_id}"):
                    table = dataset.scanner(columns=COLUMNS, fragments=[fragment]).to_table()
                    rows.update((row["id"], row) for row in table.to_pylist())
            except Damage:
                lost.add(int(fragment.fragment_id))
        return rows, lost

    def _read(self, number: int) -> Episode:
        return self.store.get(self.entries[number].id)

    def robot(self) -> RobotSpec:
        """The given robot, the pool's, or one inferred from its numbers."""
        return self._robot or read_description(self.store.files) or self._inferred()

    def view(self) -> PoolView:
        """The newest version."""
        return self.store.view()

    def quarantine(self, name: str, undo: bool) -> int:
        """Exclude a demonstration from retrieval, or include it again; returns the version."""
        with self._lock:
            version = self.store.quarantine([name], undo=undo)
            self.refresh()
            return version


def _entry(number: int, row: dict[str, Any]) -> Entry:
    try:
        held = bool(json.loads(row["attributes"] or "{}").get(QUARANTINE))
    except (ValueError, AttributeError, RecapError):
        held = False
    n, fps = int(row["n_frames"]), float(row["fps"])
    return Entry(
        number,
        row["id"],
        row["task"],
        row["embodiment"],
        n,
        n / fps if fps > 0 else 0.0,
        bool(row["success"]),
        tuple(row["camera_names"] or ()),
        held,
    )
