"""SHA-256 checksums of files, listed in the format of `sha256sum`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from recap.errors import DatasetError, InputError
from recap.run_directory import write_whole

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_MAX_BYTES = 64 * 2**20  # of a list of checksums


@dataclass(frozen=True, slots=True)
class Checked:
    """How files differ from a list of checksums."""

    n: int  # unchanged files
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    unlisted: tuple[str, ...]


def file_sha256(path: Path) -> str:
    """The checksum of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_of(path: Path) -> Path:
    """The default path of the list of a folder or a file."""
    return path / NAME if path.is_dir() else path.with_name(f"{path.name}.sha256")


def write_sums(path: Path, sums: Path) -> int:
    """Write the list of a folder or a file; returns the number of files."""
    found = {name: file_sha256(file) for name, file in _files(path, sums).items()}
    if not found:
        raise InputError(f"there is no file in {path}: give a checkpoint, a snapshot or a dataset")
    write_whole(sums, "".join(f"{digest}  {name}\n" for name, digest in found.items()))
    return len(found)


def check_sums(path: Path, sums: Path) -> Checked:
    """Compare a folder or a file with its list."""
    listed, there = _read(sums), _files(path, sums)
    changed = [name for name in listed if name in there and file_sha256(there[name]) != listed[name]]
    missing = [name for name in listed if name not in there]
    unlisted = [name for name in there if name not in listed]
    return Checked(len(listed) - len(changed) - len(missing), tuple(changed), tuple(missing), tuple(unlisted))


def _files(path: Path, sums: Path) -> dict[str, Path]:
    """Name -> file, without the list itself."""
    if path.is_file():
        return {path.name: path}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    own = sums.resolve()
    return {file.relative_to(path).as_posix(): file for file in files if file.resolve() != own}


def _read(sums: Path) -> Mapping[str, str]:
    """Read a list: name -> SHA-256."""
    if not sums.is_file():
        raise InputError(f"there is no list {sums}: recap verify PATH --write makes one of what is there now")
    found = {}
    text = sums.read_text("utf-8", "replace") if sums.stat().st_size <= _MAX_BYTES else ""
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or PurePosixPath(match[2]).is_absolute() or ".." in PurePosixPath(match[2]).parts:
            raise DatasetError(f"{sums} is no list of SHA-256 ({line[:80]!a}): write it again")
        found[match[2]] = match[1]
    if not found:
        raise DatasetError(f"{sums} is empty or too long for a list of SHA-256: write it again")
    return found
