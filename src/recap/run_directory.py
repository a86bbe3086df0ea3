"""The output directory of a long job: a lock, the config that it was started with, atomic writes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recap.errors import RunDirectoryError

CONFIG, LOCK = "config.json", ".lock"
PARTIAL = ".partial"  # suffix of the hidden name of a file that is being written


@contextmanager
def hold_run_directory(path: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Lock the directory for this process; refuse one that is in use or does not hold a matching run.

    A run that fails before it has written anything leaves nothing behind.
    """
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"output {path} is a file: give a directory with --out")
    made = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if not (path / CONFIG).exists() and any(entry.name != LOCK for entry in path.iterdir()):
        raise RunDirectoryError(f"output directory {path} is not empty and holds no run: give another --out")
    with (path / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(f"{path} is in use by another process: give another --out") from None
        is_new = _check_config(path, config)
        try:
            yield
        except BaseException:
            if is_new and path.is_dir() and {entry.name for entry in path.iterdir()} <= {CONFIG, LOCK}:
                (path / CONFIG).unlink(missing_ok=True)
                (path / LOCK).unlink(missing_ok=True)
                for place in made:
                    with suppress(OSError):  # another process wrote something there
                        place.rmdir()
            raise


def _check_config(path: Path, config: Mapping[str, Any]) -> bool:
    """Write the config of a new run, or refuse a run with another config; returns whether it is new."""
    file = path / CONFIG
    if not file.exists():
        write_whole(file, json.dumps(config, indent=1) + "\n")
        return True
    found = read_json(file)
    if not isinstance(found, dict):
        raise RunDirectoryError(f"{file} is not the config of a run: give another --out")
    wanted = json.loads(json.dumps(config))  # tuples become lists
    for key, (old, new) in _differences(found, wanted).items():
        raise RunDirectoryError(
            f"output directory {path} holds a run with another {key} ({_short(old)}, now {_short(new)}): "
            "give another --out, or remove the directory to start over"
        )
    return False


def _differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Settings that differ: dotted name -> (found value, wanted value)."""
    differing: dict[str, tuple[Any, Any]] = {}
    for key in [*wanted, *found]:
        old, new = found.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            differing |= _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            differing[f"{prefix}{key}"] = old, new
    return differing


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:30]}… {len(text)} characters"


def read_json(file: Path) -> Any:
    """Read a JSON file; raises an error of one line if it is damaged."""
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise RunDirectoryError(f"{file} is damaged, not JSON ({error}): run its command again") from error


def write_whole(file: Path, text: str) -> None:
    """Write a file atomically: it is complete or absent, even if the machine stops."""
    with whole_file(file) as partial, partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a hidden path next to `path`, renamed to `path` on success and removed on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}{PARTIAL}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a hidden folder next to `path`, renamed to `path` on success and removed on any error."""
    if path.exists():
        raise RunDirectoryError(f"{path} already exists; choose another name or remove it first")
    partial = path.with_name(f".{path.name}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed run
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
