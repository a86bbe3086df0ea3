"""The studio's list of a pool or dataset: one entry per demonstration, read a few at a time."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recap.errors import DatasetError, InputError, RecapError
from recap.kinematics import tool_space
from recap.pool.importers import Source, open_source
from recap.pool.importers.checks import check_episode
from recap.pool.opening import open_pool, pool_names
from recap.pool.view import PoolView
from recap.robot import RobotSpec, infer_robot
from recap.types import QUARANTINE, Episode

SHOWN = ("all", "findings", "unreadable", "quarantine", "unsuccessful")
MAX_TASKS = 200  # most tasks to choose from
WORDS = {"lerobot": "LeRobot dataset", "act": "ACT dataset", "tracked": "folder of tracked poses"}
REST = 1.0  # pause after an examination, as a multiple of its duration: the page has priority


@dataclass
class Entry:
    """One demonstration in the list; one that is not read yet has only its number and length."""

    number: int
    id: str = ""
    task: str = ""
    embodiment: str = ""
    n_frames: int = 0
    seconds: float = 0.0
    success: bool = True
    cameras: tuple[str, ...] = ()
    quarantine: bool = False
    damage: str = ""  # why it cannot be read
    findings: tuple[tuple[str, str], ...] | None = None  # severity and text; None: not examined yet

    def take(self, episode: Episode) -> None:
        """Copy the properties of a demonstration."""
        self.id, self.task, self.embodiment = episode.id, episode.task, episode.embodiment
        self.n_frames, self.seconds = len(episode), len(episode) / episode.fps
        self.success, self.cameras = episode.success, tuple(episode.images)
        self.quarantine = bool(episode.attributes.get(QUARANTINE))

    def is_shown(self, words: str, task: str, show: str) -> bool:
        """True if it matches a filter."""
        if task and self.task != task:
            return False
        if words and words not in self.id.lower() and words not in self.task.lower():
            return False
        return {
            "findings": bool(self.findings),
            "unreadable": bool(self.damage),
            "quarantine": self.quarantine,
            "unsuccessful": bool(self.id) and not self.success,
        }.get(show, True)

    def to_json(self) -> dict[str, Any]:
        """JSON values for the page."""
        return {**vars(self), "seconds": round(self.seconds, 2), "read": bool(self.id)}


class Library(ABC):
    """Demonstrations by number; a separate thread examines those that are not examined yet."""

    def __init__(self, place: str, kind: str) -> None:
        self.place, self.kind = place, kind
        self.version = 1
        self.notice = ""  # one line about a problem of the whole
        self.entries: list[Entry] = []
        self._lock = threading.RLock()
        self._by_id: dict[str, int] = {}
        self._ended = threading.Event()
        self._next = 0  # for the thread: the next entry to examine

    @abstractmethod
    def _read(self, number: int) -> Episode:
        """One demonstration; its images are decoded only when needed."""

    @abstractmethod
    def robot(self) -> RobotSpec:
        """The robot, as far as it is known."""

    @abstractmethod
    def view(self) -> PoolView:
        """A view for retrieval, which needs the numbers of every demonstration in memory."""

    def refresh(self) -> None:  # noqa: B027 - only a pool changes
        """Update to the newest version."""

    def episode(self, name: str) -> Episode:
        """One demonstration by its id."""
        with self._lock:
            return self._read(self.find(name))

    def find(self, name: str) -> int:
        """The number of a demonstration; unread ones are read until it is found."""
        with self._lock:
            if name not in self._by_id:
                for entry in self.entries:
                    if not entry.id and not entry.damage:
                        self.examine(entry)
                        if name in self._by_id:
                            break
            if name not in self._by_id:
                raise InputError(
                    f"there is no demonstration {name[:200]!a} here", code="studio.demonstration"
                )
            return self._by_id[name]

    def examine(self, entry: Entry) -> None:
        """Read a demonstration, and check its numbers."""
        with self._lock:
            if entry.findings is not None or entry.damage:
                return
            try:
                episode = self._read(entry.number)
            except RecapError as error:
                entry.damage = " ".join(str(error).split())
                return
            entry.take(episode)
            self._by_id[entry.id] = entry.number
            found = check_episode(replace(episode, images={}))
            entry.findings = tuple((f.severity, f"{f.where}: {f.message}") for f in found)

    def list(self, words: str, task: str, show: str, offset: int, limit: int) -> dict[str, Any]:
        """A filtered page of the list, in stored order."""
        self.refresh()
        with self._lock:
            wanted = words.strip().lower()
            kept = [entry for entry in self.entries if entry.is_shown(wanted, task, show)]
            page = kept[offset : offset + limit]
            for entry in page:
                if not entry.id and not entry.damage:
                    self.examine(entry)
            tasks: dict[str, int] = {}
            for entry in self.entries:
                if entry.id:
                    tasks[entry.task] = tasks.get(entry.task, 0) + 1
            most = sorted(tasks, key=lambda name: (-tasks[name], name))[:MAX_TASKS]
            return {
                "version": self.version,
                "n": len(self.entries),
                "n_read": sum(bool(entry.id or entry.damage) for entry in self.entries),
                "n_examined": sum(entry.findings is not None or bool(entry.damage) for entry in self.entries),
                "n_findings": sum(bool(entry.findings) for entry in self.entries),
                "n_unreadable": sum(bool(entry.damage) for entry in self.entries),
                "notice": self.notice,
                "tasks": [{"name": name, "n": tasks[name]} for name in most],
                "total": len(kept),
                "offset": offset,
                "entries": [entry.to_json() for entry in page],
            }

    def start(self) -> None:
        """Examine all demonstrations one by one in a thread, until `stop`."""
        threading.Thread(target=self._walk, name="studio-library", daemon=True).start()

    def stop(self) -> None:
        """Stop that thread."""
        self._ended.set()

    def _walk(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                entry = self.entries[self._next] if self._next < len(self.entries) else None
                self._next += entry is not None
            began = time.monotonic()
            if entry is not None:
                self.examine(entry)
            self._ended.wait(0.5 if entry is None else REST * (time.monotonic() - began))

    def _sound(self) -> Iterator[Episode]:
        """All readable demonstrations."""
        for number in range(len(self.entries)):
            try:
                yield self._read(number)
            except RecapError as error:
                self.entries[number].damage = " ".join(str(error).split())

    def _inferred(self) -> RobotSpec:
        with self._lock:
            first = next(self._sound(), None)
        if first is None:
            raise DatasetError(f"{self.place} has no demonstration that can be read", code="studio.empty")
        return infer_robot(first)


class SourceLibrary(Library):
    """A dataset, read one episode at a time."""

    def __init__(self, place: str, source: Source, robot: RobotSpec | None) -> None:
        super().__init__(place, WORDS.get(source.format, f"{source.format} dataset"))
        self.source, self._robot = source, robot
        self._view: PoolView | None = None
        self.entries = [Entry(number, n_frames=int(n)) for number, n in enumerate(source.lengths())]
        for damage in source.damage:
            if damage.episode is None:
                self.notice = damage.why
            else:
                self.entries[damage.episode].damage = damage.why

    def _read(self, number: int) -> Episode:
        return self.source[number]

    def robot(self) -> RobotSpec:
        """The given robot, or one inferred from the dataset."""
        with self._lock:
            if self._robot is None:
                from recap.robot_draft import draft, read_data

                inferred = self._inferred()
                try:
                    self._robot = replace(draft(read_data(self.source)).robot, cameras=inferred.cameras)
                except RecapError:
                    self._robot = inferred
            return self._robot

    def view(self) -> PoolView:
        """A view, which is read only once."""
        from recap.pool.memory import MemoryView

        with self._lock:
            if self._view is None:
                self._view = MemoryView(list(self._sound()))
            return self._view


class ViewLibrary(Library):
    """A snapshot, which is in memory already."""

    def __init__(self, place: str, view: PoolView, robot: RobotSpec | None) -> None:
        super().__init__(place, "snapshot")
        self._view, self._robot, self.version = view, robot, view.version
        for number, name in enumerate(view.episode_ids):
            entry = Entry(number)
            entry.take(view.episode(name))
            self.entries.append(entry)
        self._by_id = {entry.id: entry.number for entry in self.entries}

    def _read(self, number: int) -> Episode:
        return self._view.episode(self._view.episode_ids[number])

    def robot(self) -> RobotSpec:
        """The given robot, the snapshot's, or one inferred from its numbers."""
        return self._robot or getattr(self._view, "robot", None) or self._inferred()

    def view(self) -> PoolView:
        """The snapshot's view."""
        return self._view


def open_library(place: str, robot: RobotSpec | None = None) -> Library:
    """A pool, a snapshot, or a dataset of any format that can be imported; nothing in it is changed.

    Args:
        robot: its description; with a kinematic model, a dataset's joints become tool poses.
    """
    if place in pool_names() or place.endswith(".safetensors"):
        return ViewLibrary(place, open_pool(place, robot).view(), robot)
    if "://" in place or (Path(place) / "pool.json").is_file():
        from recap_apps.studio.pool_library import PoolLibrary

        return PoolLibrary(place, robot)
    source = open_source(Path(place), skip_damaged=True, transform=tool_space(robot))
    return SourceLibrary(place, source, robot)
