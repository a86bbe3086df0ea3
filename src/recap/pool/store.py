"""The pool: demonstrations in versions; acknowledged changes are never lost.

A pool is a directory, or a prefix of an object store:

    pool.json        marks a pool
    episodes.lance/  one row per episode, in versions; old versions are kept
    blobs/           videos, each named by its hash
    seals/           for each version the hashes of its files, and its changes
    tags/            names of versions
    derived/         descriptors by fingerprint; can be deleted, is computed again
    quarantine/      damaged files that a repair has moved

The guarantee: `add`, `remove`, `rollback` and `tag` are atomic, and once they return, the death of any
process loses nothing. Lance itself never calls fsync. On a local path this module does: for videos, data
and deletion files before the commit, and for the manifest, transaction and seal after it, including their
folders. So acknowledged changes also survive a power loss, if the disk keeps what it reports as written. On
an object store the store guarantees this. Any number of processes may write at the same time: a commit
succeeds only on top of the version it was prepared for, and is retried otherwise.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap import config as configs
from recap.errors import DatasetError, InputError, RecapError, did_you_mean
from recap.kinematics import tool_space
from recap.pool.compaction import compact, is_due, set_attribute
from recap.pool.content import check_episode, same_content
from recap.pool.files import Files, open_files, sealed, unsealed
from recap.pool.history import Diff, Version, counts, difference, history, refuse_odd_tag, tag_file
from recap.pool.keys import Index, Key
from recap.pool.layout import refuse_other_layout
from recap.pool.live import ROBOT, LiveView, Loader
from recap.pool.memory import MemoryPool
from recap.pool.schema import NO_FILMS, Films, keep_films, table_of, take_apart
from recap.pool.table import Conflict, Damage, Table
from recap.robot import RobotSpec
from recap.types import QUARANTINE, Episode

if TYPE_CHECKING:
    from recap.pool.findings import Repair, Report
    from recap.pool.view import Describer

MARK, MARKED = "pool.json", b'{"format": "recap-pool", "version": 1}\n'
N_AT_ONCE = 16  # episodes per commit of a long import
N_ATTEMPTS = 200  # attempts of a commit, on a store where writers do not wait for each other


class Pool:
    """Demonstrations in versions; use `create` or `open`."""

    def __init__(self, files: Files, table: Table) -> None:
        self.files, self.table = files, table
        self._lock = threading.RLock()
        self._loader = Loader(files, table)

    @classmethod
    def create(
        cls,
        uri: str | Path,
        storage_options: Mapping[str, str] | None = None,
        robot: RobotSpec | None = None,
    ) -> Pool:
        """Create an empty pool; refuses a place that contains files.

        Args:
            robot: defines the features; without it the first demonstration sets the layout.
        """
        files = open_files(str(uri), storage_options)
        if files.names(""):
            what = "there is a pool" if files.exists(MARK) else "it is not empty"
            raise InputError(f"cannot create a pool at {uri}: {what}; give another place")
        try:
            table = Table.create(files)
        except OSError as error:
            if "already exists" not in str(error):
                raise
            raise InputError(f"another process is creating a pool at {uri}: open that one") from error
        if robot is not None:
            files.write(ROBOT, json.dumps(configs.plain(robot), indent=1).encode())
        files.write(MARK, MARKED)  # last: a place without this file is no pool
        return cls(files, table)

    @classmethod
    def open(cls, uri: str | Path, storage_options: Mapping[str, str] | None = None) -> Pool:
        """Open an existing pool, at its newest readable version."""
        files = open_files(str(uri), storage_options)
        if not files.exists(MARK):
            raise DatasetError(f"there is no pool at {uri}: recap pool create {uri} makes one")
        pool = cls(files, Table(files))
        pool.table.head()
        return pool

    @property
    def uri(self) -> str:
        """The path or URI of the pool."""
        return self.files.uri

    @property
    def version(self) -> int:
        with self._lock:
            return int(self.table.head().version)

    def index(self, version: int | str | None = None) -> Index:
        """The rows of a version; by default of the newest."""
        with self._lock:
            dataset = self.table.head() if version is None else self._at(self.resolve(version))
            return self.table.index(dataset)

    def ids(self, version: int | str | None = None) -> tuple[str, ...]:
        """Every readable episode, in the order in which they were added."""
        index = self.index(version)
        if version is None and index.unreadable:
            return self.view().episode_ids  # which finds more rows than Lance does
        return index.ids

    def __len__(self) -> int:
        return len(self.ids())

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.view())

    def get(self, episode_id: str) -> Episode:
        """One episode; its images are decoded on demand."""
        with self._lock:
            dataset = self.table.head()
            index = self.table.index(dataset)
            key = index.by_id.get(episode_id)
            if key is None and not index.unreadable:
                raise self._no_episode(episode_id)
            if key is not None:
                with suppress(Damage, DatasetError):
                    return self.table.row(dataset, key).episode(self.files)
            view = self.view()  # warns of damage, and finds more rows than Lance
            if episode_id in view.episode_ids:
                return view.episode(episode_id)
            raise DatasetError(f"episode {episode_id!a} cannot be read: run recap pool verify --repair")

    def view(self) -> LiveView:
        """The newest version; the same object while nothing changes."""
        with self._lock:
            return self._loader.view()

    def view_at(self, version: int | str) -> LiveView:
        """A version by number or tag; it never changes."""
        with self._lock:
            return self._loader.view_at(self._at(self.resolve(version)))

    def add(
        self,
        episodes: Sequence[Episode] | str | Path,
        *,
        skip_existing: bool = False,
        progress: Callable[[int, int], None] | None = None,
        films: Films = NO_FILMS,
    ) -> int:
        """Add all episodes or none; returns the version that contains them.

        Args:
            episodes: episodes, or the path of a dataset.
            skip_existing: skip episodes that the pool already contains with identical content.
            progress: called with (done, total) episodes whose videos are stored.
            films: videos that are in the pool already and need not be encoded.
        """
        if isinstance(episodes, (str, Path)):
            from recap.pool.importers import open_source

            episodes = list(open_source(Path(episodes)))
        view = self.view()
        convert = tool_space(view.robot)
        episodes = episodes if convert is None else [convert(episode) for episode in episodes]
        refuse_other_layout(view, episodes)
        rows = take_apart(self.files, episodes, progress or (lambda done, total: None), films)

        def step(dataset: Any) -> Any:
            index = self.table.index(dataset)
            new = []
            for row in rows:
                there = index.by_id.get(row.id)
                if there is None:
                    new.append(row)
                elif there.sha256 != row.sha256:
                    raise InputError(f"episode {row.id!a} is there already, but differs; remove one")
                elif not skip_existing:
                    raise InputError(f"episode {row.id!a} is in pool {self.uri} already; leave it out")
            if not new:
                return dataset
            for row, episode in zip(rows, episodes, strict=True):
                keep_films(self.files, row, episode)  # a prune may have removed what no version had yet
            first = int(index.places[:, 0].max(initial=-1)) + 1
            fragment = self.table.write(dataset, table_of(new, range(first, first + len(new))))
            return self.table.append(dataset, fragment)

        version = self._commit(step)
        if is_due(self.table.head()):
            with suppress(DatasetError, OSError):  # the episodes are added; the next writer tries again
                self.compact()
        return version

    def add_missing(
        self,
        episodes: Sequence[Episode],
        progress: Callable[[int, int], None] = lambda done, total: None,
        encode: Callable[[Sequence[Episode]], Iterable[Films]] | None = None,
    ) -> int:
        """Add missing episodes, a few at a time; returns how many. Refuses an episode that differs.

        All are checked before the first is written. After an interruption finished parts are kept, and the
        same call resumes.

        Args:
            encode: stores the videos of episodes in this pool, in parts of any size; by default, videos are
                encoded here.
        """
        view = self.view()
        there = set(view.episode_ids)
        for episode in episodes:
            check_episode(episode)
            if episode.id in there and not same_content(view.episode(episode.id), episode):
                raise InputError(f"episode {episode.id!a} is there already, but differs; remove one")
        new = [episode for episode in episodes if episode.id not in there]
        refuse_other_layout(view if there else MemoryPool(new[:N_AT_ONCE]).view(), new)
        films: dict[str, Mapping[str, str]] = {}
        parts = iter(() if encode is None else encode(new))
        for first in range(0, len(new), N_AT_ONCE):
            part = new[first : first + N_AT_ONCE]
            while encode is not None and any(e.images and e.id not in films for e in part):
                films |= next(parts)

            def told(done: int, _: int, before: int = first) -> None:
                progress(before + done, len(new))

            self.add(part, skip_existing=True, progress=told, films=films)
        return len(new)

    def remove(self, ids: Sequence[str], *, expect: int | None = None) -> int:
        """Remove episodes from the newest version, which must be `expect`; older versions keep them."""

        def step(dataset: Any) -> Any:
            keys = self._keys(dataset, ids)
            return self.table.delete(dataset, keys) if keys else dataset

        return self._commit(step, expect)

    def rollback(self, version: int | str, *, expect: int | None = None) -> int:
        """Make a new version equal to an old one; versions in between stay in the history."""
        self._whole_index(target := self.resolve(version))  # refuse an unreadable one before any write
        return self._commit(lambda dataset: self.table.restore(dataset, target), expect)

    def compact(self) -> int:
        """Merge small fragments and drop deleted rows from the newest version's files."""
        return self._commit(lambda dataset: compact(self.table, dataset))

    def tag(self, name: str, version: int | str | None = None, *, move: bool = False) -> int:
        """Name a version; a name that is in use is only moved with `move`."""
        refuse_odd_tag(name)
        with self._lock, self.files.turn():  # nobody prunes meanwhile
            target = self.version if version is None else self.resolve(version)
            was = self.tags().get(name)
            if was is not None and was != target and not move:
                raise InputError(f"tag '{name}' means version {was} already: choose another, or move it")
            self.files.write(tag_file(name), sealed({"name": name, "version": target}))
        return target

    def untag(self, name: str) -> None:
        """Remove a name; the version stays."""
        self.files.remove(tag_file(name))

    def quarantine(self, ids: Sequence[str], *, undo: bool = False) -> int:
        """Exclude episodes from retrieval, or include them again; they stay in the pool."""

        def step(dataset: Any) -> Any:
            keys = self._keys(dataset, ids)
            return set_attribute(self.table, dataset, keys, QUARANTINE, None if undo else True)

        return self._commit(step)

    def prune(self, keep: int, older_than: timedelta, *, dry_run: bool = False) -> list[int]:
        """Remove versions replaced at least `older_than` ago, except tagged ones and the newest `keep`.

        Returns the removed versions; `dry_run` only lists them.
        """
        from recap.pool.pruning import prune

        with self._lock:
            return prune(self, keep, older_than, dry_run)

    def forget(self, ids: Sequence[str], *, with_tags: bool = False) -> list[int]:
        """Delete episodes with every version that has them; tagged versions only `with_tags`."""
        from recap.pool.pruning import forget

        with self._lock:
            return forget(self, ids, with_tags)

    def tags(self) -> dict[str, int]:
        """Name -> version."""
        found = {}
        for file in self.files.names("tags"):
            try:
                body = unsealed(self.files.read(file))
            except (FileNotFoundError, ValueError):
                continue  # `verify` reports it
            found[str(body["name"])] = int(body["version"])
        return found

    def resolve(self, version: int | str) -> int:
        """The number of a version or tag."""
        if isinstance(version, str) and not version[:20].isdecimal():  # a number is never a tag
            tags = self.tags()
            if version in tags:
                return tags[version]
            hint = did_you_mean(version, tags) if tags else "there are no tags"
            raise InputError(f"pool {self.files.uri} has no version {version[:80]!a}: {hint}")
        number = int(version[:20] if isinstance(version, str) else version)
        versions = self.table.versions()
        if number not in versions:
            raise InputError(f"pool {self.files.uri} has no version {number}: the newest is {versions[-1]}")
        return number

    def versions(self) -> list[Version]:
        """Every version and its changes, oldest first."""
        return history(self.files, self.table, self.tags())

    def diff(self, a: int | str, b: int | str) -> Diff:
        """The differences between two versions."""
        return difference(self._whole_index(a), self._whole_index(b))

    def verify(self) -> Report:
        """Check every byte of every file against its hash, without changing anything."""
        from recap.pool.verify import verify

        with self._lock:
            return verify(self)

    def repair(self) -> Repair:
        """Move damaged files to quarantine, keep the rest usable, and return what was lost."""
        from recap.pool.verify import repair

        with self._lock:
            return repair(self)

    def pack(self, path: Path, describers: Sequence[Describer] = (), *, images: bool = True) -> None:
        """Write the newest version as one file that can be read without Lance or this pool."""
        from recap.pool.packed import write_packed

        write_packed(self.view(), path, describers, images=images)

    def stats(self) -> dict[str, Any]:
        """Counts and sizes."""
        return counts(self)

    def _commit(self, step: Callable[[Any], Any], expect: int | None = None) -> int:
        """Run a step on the newest version, and retry if another writer was first; returns the version."""
        for attempt in range(N_ATTEMPTS):
            with self._lock, self.files.turn():
                dataset = self.table.head()
                if expect not in (None, int(dataset.version)):
                    why = f"the pool is at version {dataset.version} by now, not {expect}: look again first"
                    raise InputError(why, code="pool.moved")
                if self.table.damaged:
                    raise DatasetError(
                        f"pool {self.uri} has a damaged version {self.table.damaged[-1]} and is only read "
                        "until it is repaired: run recap pool verify --repair"
                    )
                try:
                    self.table.seal_late(int(dataset.version))
                    for why in self.table.index(dataset).unreadable.values():
                        raise Damage(why)
                    return int(step(dataset).version)
                except Conflict:
                    pass
                except Damage as error:
                    raise self._damaged(error) from error
            time.sleep(random.uniform(0, 0.01 * min(2**attempt, 64)))
        raise DatasetError(f"pool {self.uri} is too busy: {N_ATTEMPTS} attempts met other writers; try later")

    def _keys(self, dataset: Any, ids: Sequence[str]) -> list[Key]:
        """The keys of episodes; raises an InputError if one is missing."""
        there = self.table.index(dataset).by_id
        for name in ids:
            if name not in there:
                raise self._no_episode(name)
        return [there[name] for name in dict.fromkeys(ids)]

    def _whole_index(self, version: int | str) -> Index:
        index = self.index(version)
        for why in index.unreadable.values():
            raise DatasetError(f"version {version} of pool {self.uri} is damaged: {why}")
        return index

    def _at(self, version: int) -> Any:
        try:
            return self.table.at(version)
        except Damage as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Damage) -> DatasetError:
        return DatasetError(f"pool {self.uri}: {error}; run recap pool verify --repair")

    def _no_episode(self, episode_id: str) -> InputError:
        ids = self.ids()
        near = did_you_mean(episode_id, ids) if 0 < len(ids) <= 20 else "recap pool ls shows what it has"
        return InputError(f"pool {self.uri} has no episode {episode_id!a}: {near}")


@lru_cache(maxsize=1)
def on_this_node(uri: str) -> Pool:
    """The pool as a node of a cluster reads it, cached between tasks."""
    try:
        pool = Pool.open(uri)
        pool.index()
    except (RecapError, OSError) as error:
        raise InputError(
            f"node {socket.gethostname()} cannot read {uri} ({error}): put the pool where every node "
            "sees it by the same path, or start each node with the AWS_ variables of the store"
        ) from None
    return pool
