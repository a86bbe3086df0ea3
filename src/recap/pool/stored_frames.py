"""Camera frames as they are in a safetensors file: read one by one, without a video decoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from recap.errors import DatasetError
from recap.pool.files import sha256
from recap.types import U8

PREFIX = "frames/"


class StoredFrames(Sequence[U8]):
    """The frames of one camera of an episode; it knows where they are and can be sent to another process."""

    def __init__(self, path: Path, digest: str, n_frames: int) -> None:
        self.path, self.digest, self.n_frames = path, digest, n_frames

    def __len__(self) -> int:
        return self.n_frames

    @overload
    def __getitem__(self, index: int) -> U8: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[U8]: ...

    def __getitem__(self, index: int | slice) -> U8 | Sequence[U8]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.n_frames))]
        i = range(self.n_frames)[index]
        status = self.path.stat()  # the file may have been packed anew
        found: U8 = _checked(self.path, self.digest, (status.st_ino, status.st_mtime_ns))[i : i + 1][0]
        return found


@lru_cache(maxsize=8)
def _opened(path: Path, version: tuple[int, int]) -> Any:
    from safetensors import safe_open

    return safe_open(path, framework="numpy")


@lru_cache(maxsize=65536)
def _checked(path: Path, digest: str, version: tuple[int, int]) -> Any:
    """The slice of a camera's frames, its hash compared once a process."""
    file = _opened(path, version)
    if digest_of_frames(file.get_tensor(PREFIX + digest)) != digest:
        raise DatasetError(f"packed pool {path} is damaged: frames have changed; pack it again")
    return file.get_slice(PREFIX + digest)


def digest_of_frames(frames: U8) -> str:
    """One hash of (t, h, w, 3) frames."""
    return sha256(repr(frames.shape).encode() + np.ascontiguousarray(frames).tobytes())
