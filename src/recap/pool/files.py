"""File operations of a pool besides its table, on a local path or an object store."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from recap.errors import DatasetError

MAX_CACHE_BYTES = 8 * 2**30  # of copies in the temporary folder


def sha256(data: bytes) -> str:
    """The hash by which everything in a pool is checked."""
    return hashlib.sha256(data).hexdigest()


def is_intact(name: str, data: bytes) -> bool:
    """True if the data match the hash in the file name."""
    return name.rpartition("/")[2].partition(".")[0] == sha256(data)


def sealed(body: Mapping[str, Any]) -> bytes:
    """JSON preceded by its hash, for small files that are not named by their hash."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return sha256(text).encode() + b"\n" + text + b"\n"


def unsealed(data: bytes, kind: Any = dict[str, Any]) -> Any:
    """The inverse of `sealed`, as a kind that may leave out parts; ValueError where a byte has changed."""
    digest, _, text = data.partition(b"\n")
    if not text.endswith(b"\n") or sha256(text[:-1]).encode() != digest:
        raise ValueError("its contents have changed")
    return msgspec.json.decode(text, type=kind)


def open_files(uri: str, options: Mapping[str, str] | None = None) -> Files:
    """Files at a path or a URI such as s3://bucket/pool."""
    if "://" in uri and not uri.startswith("file://"):
        return RemoteFiles(uri.rstrip("/"), dict(options) if options else None)
    return Files(Path(uri.removeprefix("file://")))


class Files:
    """Reads and writes whole files by name below one directory; names use forward slashes."""

    options: dict[str, str] | None = None  # of an object store

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100
        self.uri = str(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, (self.root,)

    def read(self, name: str) -> bytes:
        """The whole file; raises FileNotFoundError if there is none."""
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write atomically; on a local path the file also survives a power loss."""
        path = self.root / name
        self._make_folder(path.parent)
        # A unique temporary name, because two processes may write the same file at once.
        handle, partial = tempfile.mkstemp(prefix=".", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        sync_file(path.parent)

    def exists(self, name: str) -> bool:
        """True if the file exists."""
        return (self.root / name).exists()

    def stamp(self, name: str) -> tuple[int, ...]:
        """What changes when a file of a local path is written to."""
        found = (self.root / name).stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def names(self, folder: str) -> list[str]:
        """Every file below a folder, sorted, without unfinished ones."""
        found = []
        for path, _, files in os.walk(self.root / folder):
            found += [f"{path}/{f}"[len(self.uri) + 1 :] for f in files if not f.startswith(".")]
        return sorted(found)

    def remove(self, name: str) -> None:
        """Delete a file; a missing file is no error."""
        (self.root / name).unlink(missing_ok=True)

    def local(self, name: str, digest: str) -> Path:
        """A local file with the contents of `name`, checked against its hash."""
        path = self.root / name
        check(path.read_bytes(), digest, name)
        return path

    def sync(self, names: Iterable[str]) -> None:
        """Flush files written by others, and their folders, to disk."""
        paths = [self.root / name for name in names]
        folders = {folder for path in paths for folder in (path.parent, path.parent.parent)}
        for path in [*paths, *folders]:
            sync_file(path)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one writer of this machine work at a time. Commits are safe without it."""
        with (self.root / ".lock").open("a") as lock:  # the system frees it when a process is killed
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            sync_file(folder.parent)


class RemoteFiles(Files):
    """The same on an object store, through Lance, so that both use the same options and environment."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        self.uri, self.options = uri, options

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFiles, (self.uri, self.options)

    @cached_property
    def _session(self) -> Any:
        from lance.file import LanceFileSession

        return LanceFileSession(self.uri, storage_options=self.options)

    def read(self, name: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "object"
            self._download(name, path)
            return path.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            with self._reaching():  # one request, which the store applies completely or not at all
                self._session.upload_file(file.name, name)

    def exists(self, name: str) -> bool:
        with self._reaching():
            return bool(self._session.contains(name))

    def names(self, folder: str) -> list[str]:
        with self._reaching():
            return sorted(str(name) for name in self._session.list(folder))

    def remove(self, name: str) -> None:
        if self.exists(name):
            with self._reaching():
                self._session.delete_file(name)

    def local(self, name: str, digest: str) -> Path:
        return cached(digest, name, lambda: self.read(name))

    def sync(self, names: Iterable[str]) -> None:
        """Nothing to do: the store keeps what it has acknowledged."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        yield  # conflicts are detected at commit and retried

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn any error that Lance raises for a failing store into an OSError of one line."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            line = str(error).partition(", /home/")[0].replace("\n", " ")
            raise OSError(f"{self.uri} does not answer as expected: {line[:240]}") from error

    def _download(self, name: str, path: Path) -> None:
        for attempt in range(3):
            try:
                with self._reaching():
                    self._session.download_file(name, str(path))
                return
            except OSError:
                if not self.exists(name):
                    raise FileNotFoundError(f"{self.uri}/{name}") from None
                if attempt == 2:  # not earlier: the file may have appeared between download and check
                    raise


def cached(digest: str, name: str, load: Callable[[], bytes]) -> Path:
    """A local copy of remote contents, named by their hash."""
    folder = _own_folder()
    path = folder / f"{digest}{Path(name).suffix}"
    if path.is_file() and sha256(path.read_bytes()) == digest:
        os.utime(path)  # the least recently used are removed first
        return path
    data = load()
    check(data, digest, name)
    _make_space(folder, len(data))
    handle, partial = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    Path(partial).replace(path)
    return path


def forget_copy(name: str) -> None:
    """Remove the local copy of a file that is named by its hash."""
    (_own_folder() / name.rpartition("/")[2]).unlink(missing_ok=True)


def _own_folder() -> Path:
    """A folder for copies that other users cannot write to or replace by a link."""
    folder = Path(tempfile.gettempdir()) / f"recap-blobs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is a link or another user's: set TMPDIR to a place of your own")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def _make_space(folder: Path, n_bytes: int) -> None:
    """Remove the least recently used copies until there is space for `n_bytes` within the limit."""
    there = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process makes space too
            there.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    left = MAX_CACHE_BYTES - n_bytes - sum(size for _, size, _ in there)
    for _, size, path in sorted(there):
        if left >= 0:
            return
        Path(path).unlink(missing_ok=True)
        left += size


def check(data: bytes, digest: str, name: str) -> None:
    """Raise a DatasetError if the contents differ from what was written."""
    if sha256(data) != digest:
        raise DatasetError(f"{name} is damaged: its contents have changed; run recap pool verify --repair")


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
