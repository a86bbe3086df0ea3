"""The few file operations a pool needs beside its table, on a local path or an object store."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol


def sha256(data: bytes) -> str:
    """The hash by which everything in a pool is checked."""
    return hashlib.sha256(data).hexdigest()


class Files(Protocol):
    """Whole files by name, relative to one root; names use forward slashes."""

    uri: str
    options: dict[str, str] | None

    def read(self, name: str) -> bytes:
        """All of it; FileNotFoundError where there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """There whole or not at all; on a local path also after a power loss."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is one."""
        ...

    def names(self, folder: str) -> list[str]:
        """Every file below a folder, sorted; unfinished ones left out."""
        ...

    def remove(self, name: str) -> None:
        """Take one away; one that is gone already is fine."""
        ...

    def local(self, name: str, digest: str) -> Path:
        """A local file with these contents, which must have this hash."""
        ...

    def sync(self, names: Iterable[str]) -> None:
        """Bring files that others wrote, and their folders, to the disk."""
        ...

    def turn(self) -> Any:
        """Hold writers of this machine in line; only courtesy, commits are safe without."""
        ...


def open_files(uri: str, options: Mapping[str, str] | None = None) -> Files:
    """Files at a path or at a URI such as s3://bucket/pool."""
    if "://" in uri and not uri.startswith("file://"):
        return RemoteFiles(uri.rstrip("/"), dict(options) if options else None)
    return LocalFiles(Path(uri.removeprefix("file://")))


class LocalFiles:
    """A directory."""

    options: dict[str, str] | None = None

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100
        self.uri = str(self.root)

    def __reduce__(self) -> tuple[type[LocalFiles], tuple[Path]]:
        return LocalFiles, (self.root,)

    def read(self, name: str) -> bytes:
        """All of it."""
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Written under another name, brought to the disk, renamed."""
        path = self.root / name
        self._make_folder(path.parent)
        # A name of its own: two processes may write the same file at once.
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
        _sync(path.parent)

    def exists(self, name: str) -> bool:
        """Whether there is one."""
        return (self.root / name).exists()

    def names(self, folder: str) -> list[str]:
        """Every file below a folder."""
        found = []
        for path, _, files in os.walk(self.root / folder):
            found += [os.path.relpath(f"{path}/{f}", self.root) for f in files if not f.startswith(".")]
        return sorted(found)

    def remove(self, name: str) -> None:
        """Take one away."""
        (self.root / name).unlink(missing_ok=True)

    def local(self, name: str, digest: str) -> Path:
        """The file itself, once its hash was seen to be right."""
        path = self.root / name
        check(path.read_bytes(), digest, name)
        return path

    def sync(self, names: Iterable[str]) -> None:
        """Bring files that others wrote, and their folders, to the disk."""
        paths = [self.root / name for name in names]
        folders = {folder for path in paths for folder in (path.parent, path.parent.parent)}
        for path in [*paths, *folders]:
            _sync(path)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A lock file, which a killed process lets go of."""
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)


class RemoteFiles:
    """An object store, through Lance, so that both take the same options and environment."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        self.uri, self.options = uri, options
        self._opened: Any = None

    def __reduce__(self) -> tuple[type[RemoteFiles], tuple[str, dict[str, str] | None]]:
        return RemoteFiles, (self.uri, self.options)

    @property
    def _session(self) -> Any:
        if self._opened is None:
            from lance.file import LanceFileSession

            self._opened = LanceFileSession(self.uri, storage_options=self.options)
        return self._opened

    def read(self, name: str) -> bytes:
        """All of it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "object"
            self._download(name, path)
            return path.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """One request, which the store takes whole or not at all."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            with self._reaching():
                self._session.upload_file(file.name, name)

    def exists(self, name: str) -> bool:
        """Whether there is one."""
        with self._reaching():
            return bool(self._session.contains(name))

    def names(self, folder: str) -> list[str]:
        """Every file below a folder."""
        with self._reaching():
            return sorted(str(name) for name in self._session.list(folder))

    def remove(self, name: str) -> None:
        """Take one away."""
        if self.exists(name):
            with self._reaching():
                self._session.delete_file(name)

    def local(self, name: str, digest: str) -> Path:
        """A checked copy in the cache of this user."""
        return cached(digest, name, lambda: self.read(name))

    def sync(self, names: Iterable[str]) -> None:
        """What the store has acknowledged it keeps."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Nothing to hold: conflicts are found when committing, and tried again."""
        yield

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Whatever Lance raises when a store does not answer becomes an OSError of one line."""
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
                if attempt == 2:  # before: it may have appeared between the two questions
                    raise


def cached(digest: str, name: str, load: Any) -> Path:
    """A local copy of contents that lie elsewhere, kept by their hash."""
    folder = Path(tempfile.gettempdir()) / f"recap-blobs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: set TMPDIR to a place of your own")
    path = folder / f"{digest}{Path(name).suffix}"
    if not path.exists() or sha256(path.read_bytes()) != digest:
        data = load()
        check(data, digest, name)
        handle, partial = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(partial).replace(path)
    return path


def check(data: bytes, digest: str, name: str) -> None:
    """Refuse contents that are not those that were written."""
    from recap.errors import DatasetError

    if sha256(data) != digest:
        raise DatasetError(f"{name} is damaged: its contents have changed; run recap pool verify --repair")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
