"""Arrays larger than memory, as memory-mapped files, and folders of them that are written atomically."""

from __future__ import annotations

import errno
import math
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError


def new_table(folder: Path | None, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Zeros in memory, or in a file of the folder; too little disk space raises an error at once."""
    if folder is None:
        return np.zeros(shape, dtype)
    file = folder / f"{name}.npy"
    file.parent.mkdir(parents=True, exist_ok=True)
    size, free = math.prod(shape) * np.dtype(dtype).itemsize, shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{name} of these data need {size / 2**30:.1f} GiB, and the disk of {folder.parent} has "
            f"{free / 2**30:.1f}: make room, or set XDG_CACHE_HOME to a folder of another disk"
        )
    table = np.lib.format.open_memmap(file, "w+", np.dtype(dtype), shape)
    with file.open("r+b") as opened:  # writing to a mapped file on a full disk would kill the process
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # some file systems do not support it
                raise
    return table


def read_tables(folder: Path, mode: Literal["r+", "c"] = "c") -> dict[str, NDArray[Any]]:
    """All tables of a folder by name; changes are written to the file (r+) or stay in this process (c)."""
    return {
        str(file.relative_to(folder).with_suffix("")): np.load(file, mmap_mode=mode)
        for file in sorted(folder.rglob("*.npy"))
    }


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder next to it, which is renamed on success and removed on an error."""
    host = socket.gethostname()
    folder.parent.mkdir(parents=True, exist_ok=True)
    for old in folder.parent.glob(f".*@{host}.partial"):  # left by killed processes
        if not Path(f"/proc/{old.name.split('@')[0].rpartition('.')[2]}").exists():
            shutil.rmtree(old, ignore_errors=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}@{host}.partial")
    try:
        partial.mkdir()
        yield partial
        if not folder.exists():  # another process may have been faster
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
