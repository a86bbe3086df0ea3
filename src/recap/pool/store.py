"""The pool: where demonstrations live, and where nothing that was acknowledged is ever lost.

A pool is a directory, or a prefix of an object store:

    pool.json        what this is
    episodes.lance/  one row an episode, in versions; old ones stay
    blobs/           films, each named by its hash
    seals/           for each version the hashes of its files, and what it changed
    tags/            names of versions
    derived/         descriptors by fingerprint; may be deleted, is computed again
    quarantine/      what a repair has set aside

What is promised: `add`, `remove`, `rollback` and `tag` are whole or not at all, and once they return, the
death of any process loses nothing. Lance itself never calls fsync; on a local path this module does, for
films, data and deletion files before the commit and for the manifest, transaction and seal after it, folders
included, so that what was acknowledged also survives a power loss, as far as the disk keeps what it says it
has written. On an object store that is the store's promise. Any number of processes may write at once:
a commit succeeds only on top of the version it was prepared for, and is tried again otherwise.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap.errors import DatasetError, InputError, did_you_mean
from recap.pool.compaction import SMALL, compact
from recap.pool.files import Files, open_files
from recap.pool.history import Diff, History, Version
from recap.pool.live import LiveView, Loader
from recap.pool.schema import table_of, take_apart
from recap.pool.sealing import seal_version
from recap.pool.seals import new_op, seal_name
from recap.pool.table import Conflict, Damage, Index, Table, fragment_files
from recap.types import Episode

if TYPE_CHECKING:
    from recap.pool.repair import Repair
    from recap.pool.verify import Report
    from recap.pool.view import Describer

MARK, MARKED = "pool.json", b'{"format": "recap-pool", "version": 1}\n'
N_ATTEMPTS = 200  # of a commit, on a store without a line to wait in
N_SMALL = 64  # this many small fragments are put together on the way


class Pool(History):
    """Demonstrations in versions; `create` and `open` make one."""

    def __init__(self, files: Files, table: Table) -> None:
        super().__init__(files, table)
        self._lock = threading.RLock()
        self._loader = Loader(files, table)

    @classmethod
    def create(cls, uri: str | Path, storage_options: Mapping[str, str] | None = None) -> Pool:
        """An empty pool; refuses a place that holds something."""
        files = open_files(str(uri), storage_options)
        if files.names(""):
            what = "there is a pool" if files.exists(MARK) else "it is not empty"
            raise InputError(f"cannot create a pool at {uri}: {what}; give another place")
        op = new_op("create")
        try:
            table = Table.create(files, op)
        except OSError as error:
            if "already exists" not in str(error):
                raise
            raise InputError(f"another process is creating a pool at {uri}: open that one") from error
        seal_version(table, table.head(), None, op)
        files.write(MARK, MARKED)  # last: a place without it is no pool
        return cls(files, table)

    @classmethod
    def open(cls, uri: str | Path, storage_options: Mapping[str, str] | None = None) -> Pool:
        """A pool that exists, at its newest version that can be read."""
        files = open_files(str(uri), storage_options)
        if not files.exists(MARK):
            raise DatasetError(f"there is no pool at {uri}: recap pool create {uri} makes one")
        pool = cls(files, Table(files))
        pool.table.head()
        return pool

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.files.uri

    @property
    def version(self) -> int:
        """The newest version."""
        with self._lock:
            return int(self.table.head().version)

    def index(self, version: int | str | None = None) -> Index:
        """The rows of a version, by default of the newest."""
        with self._lock:
            dataset = self.table.head() if version is None else self._at(self.resolve(version))
            return self.table.index(dataset)

    def ids(self, version: int | str | None = None) -> tuple[str, ...]:
        """Every episode that can be read, in the order in which they were added."""
        index = self.index(version)
        if version is None and index.unreadable:
            return self.view().episode_ids  # which finds more than Lance does
        return tuple(key.id for key in index.keys)

    def __len__(self) -> int:
        return len(self.ids())

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.view())

    def get(self, episode_id: str) -> Episode:
        """One episode, images decoded only when asked for."""
        with self._lock:
            dataset = self.table.head()
            index = self.table.index(dataset)
            key = index.by_id.get(episode_id)
            if key is None and not index.unreadable:
                raise InputError(f"pool {self.uri} has no episode {episode_id!a}: {self._near(episode_id)}")
            if key is not None:
                with suppress(Damage, DatasetError):
                    return self.table.row(dataset, key).episode(self.files)
            view = self.view()  # says what is damaged, and finds more than Lance does
            if episode_id in view.episode_ids:
                return view.episode(episode_id)
            raise DatasetError(f"episode {episode_id!a} cannot be read: run recap pool verify --repair")

    def view(self) -> LiveView:
        """The newest version; the same object while nothing changed."""
        with self._lock:
            return self._loader.view()

    def view_at(self, version: int | str) -> LiveView:
        """A version by number or tag, made when asked for; it never changes."""
        with self._lock:
            return self._loader.view_at(self._at(self.resolve(version)))

    def add(
        self,
        episodes: Sequence[Episode],
        *,
        skip_existing: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Add all of them or none and return the version that has them.

        Args:
            skip_existing: leave out an episode that is there already, if it is equal to the last byte.
            progress: called with (done, total) episodes whose films are kept.
        """
        rows = take_apart(self.files, episodes, progress or (lambda done, total: None))

        def step(dataset: Any) -> int:
            index = self.table.index(dataset)
            there = index.by_id
            new = [row for row in rows if row.id not in there]
            for row in rows:
                if row.id in there and not (skip_existing and there[row.id].sha256 == row.sha256):
                    equal = there[row.id].sha256 == row.sha256
                    hint = (
                        "; --skip-existing passes over it" if equal else ", but differs; remove one of them"
                    )
                    raise InputError(f"episode {row.id!a} is in pool {self.uri} already{hint}")
            if not new:
                return int(dataset.version)
            first = max((key.seq for key in index.keys), default=-1) + 1
            fragment = self.table.write(dataset, table_of(new, range(first, first + len(new))))
            op = new_op("add", n=len(new))
            try:
                done = self.table.append(dataset, fragment, op)
            except Conflict:  # it is in no version, and is written anew for the next
                for name in fragment_files(fragment):
                    self.files.remove(name)
                raise
            seal_version(self.table, done, dataset, op)
            return int(done.version)

        version = self._commit(step)
        small = [f for f in self.table.head().get_fragments() if f.metadata.num_rows < SMALL]
        if len(small) >= N_SMALL:
            with suppress(DatasetError, OSError):  # the episodes are in; the next writer tries again
                self.compact()
        return version

    def remove(self, ids: Sequence[str]) -> int:
        """Leave these out of the newest version; older versions keep them."""

        def step(dataset: Any) -> int:
            there = self.table.index(dataset).by_id
            missing = [name for name in ids if name not in there]
            if missing:
                raise InputError(f"pool {self.uri} has no episode {missing[0]!a}: {self._near(missing[0])}")
            keys = [there[name] for name in dict.fromkeys(ids)]
            if not keys:
                return int(dataset.version)
            op = new_op("remove", n=len(keys))
            done = self.table.delete(dataset, keys, op)
            seal_version(self.table, done, dataset, op)
            return int(done.version)

        return self._commit(step)

    def rollback(self, version: int | str) -> int:
        """Make a new version equal to an old one; what came between stays in the history."""
        target = self.resolve(version)
        self._whole_index(target)  # refuse one that cannot be read before anything is written

        def step(dataset: Any) -> int:
            op = new_op("rollback", to=target)
            done = self.table.restore(dataset, target, op)
            seal_version(self.table, done, dataset, op)
            return int(done.version)

        return self._commit(step)

    def compact(self) -> int:
        """Put small fragments together and leave deleted rows out of the newest version's files."""
        return self._commit(lambda dataset: compact(self.table, dataset))

    def diff(self, a: int | str, b: int | str) -> Diff:
        """What `b` has that `a` has not, and the other way round."""
        old, new = ({key.id: key.sha256 for key in self._whole_index(v).keys} for v in (a, b))
        return Diff(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name in new if name in old and new[name] != old[name]),
        )

    def verify(self) -> Report:
        """Check every byte of every file against our own hashes; changes nothing."""
        from recap.pool.verify import verify

        with self._lock:
            return verify(self)

    def repair(self) -> Repair:
        """Set aside what `verify` finds, keep the rest usable, and say what was lost."""
        from recap.pool.repair import repair

        with self._lock:
            return repair(self)

    def pack(self, path: Path, describers: Sequence[Describer] = (), *, images: bool = True) -> None:
        """Write the newest version as one file that needs neither Lance nor this pool."""
        from recap.pool.packed import write_packed

        write_packed(self.view(), path, describers, images=images)

    def stats(self) -> dict[str, Any]:
        """Counts and sizes."""
        view = self.view()
        episodes = list(view)
        counts: dict[str, dict[str, int]] = {key: {} for key in ("task", "embodiment", "source")}
        for episode in episodes:
            for key, count in counts.items():
                value = getattr(episode, key)
                count[value] = count.get(value, 0) + 1
        return {
            "version": view.version,
            "n_episodes": len(episodes),
            "n_frames": sum(map(len, episodes)),
            "n_successes": sum(episode.success for episode in episodes),
            "n_scenes": len({episode.scene_id for episode in episodes}),
            **counts,
            "n_versions": len(self.table.versions()),
            "n_fragments": len(self.table.head().get_fragments()),
            "n_blobs": len(self.files.names("blobs")),
            "tags": self.tags(),
            "derived": sorted({name.split("/")[1] for name in self.files.names("derived")}),
        }

    def _commit(self, step: Callable[[Any], int]) -> int:
        """Run a step on the newest version until nobody else was quicker."""
        for attempt in range(N_ATTEMPTS):
            with self._lock, self.files.turn():
                dataset = self.table.head()
                if self.table.damaged:
                    raise DatasetError(
                        f"pool {self.uri} has a damaged version {self.table.damaged[-1]} and is only read "
                        "until it is repaired: run recap pool verify --repair"
                    )
                self._seal_late(dataset)
                if unreadable := self.table.index(dataset).unreadable:
                    why = next(iter(unreadable.values()))
                    raise DatasetError(f"pool {self.uri}: {why}; run recap pool verify --repair")
                try:
                    return step(dataset)
                except Conflict:
                    pass
                except Damage as error:
                    raise DatasetError(f"pool {self.uri}: {error}; run recap pool verify --repair") from error
            time.sleep(random.uniform(0, 0.01 * min(2**attempt, 64)))
        raise DatasetError(f"pool {self.uri} is too busy: {N_ATTEMPTS} attempts met other writers; try later")

    def _seal_late(self, dataset: Any) -> None:
        """Seal the newest version where its writer died between commit and seal."""
        version = int(dataset.version)
        if not self.files.exists(seal_name(version)):
            before = self._at(version - 1) if version > 1 else None
            seal_version(self.table, dataset, before, self.table.message(version))

    def _whole_index(self, version: int | str) -> Index:
        index = self.index(version)
        for why in index.unreadable.values():
            raise DatasetError(f"version {version} of pool {self.uri} is damaged: {why}")
        return index

    def _at(self, version: int) -> Any:
        try:
            return self.table.at(version)
        except Damage as error:
            raise DatasetError(f"pool {self.uri}: {error}; run recap pool verify --repair") from error

    def _near(self, episode_id: str) -> str:
        ids = self.ids()
        return did_you_mean(episode_id, ids) if 0 < len(ids) <= 20 else "recap pool ls shows what it has"


__all__ = ["Diff", "Pool", "Version"]
