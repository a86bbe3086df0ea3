"""Films and stills of a demonstration, for looking at."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from recap.errors import InputError
from recap.pictures import encode_png
from recap.pool.blobs import BlobFrames
from recap.types import U8, Episode
from recap.video import write_video

MAX_FILMS = 64  # made for looking at, and kept


class Films:
    """A demonstration's film as a file: the pool's own, or one that is drawn once and kept for a while."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._made: OrderedDict[str, Path] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, episode: Episode, camera: str | None) -> Path:
        """Where it lies."""
        frames = _frames(episode, camera)
        if isinstance(frames, BlobFrames):
            return frames.frames.path
        key = hashlib.sha256(f"{episode.id}\0{camera}".encode()).hexdigest()
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="recap-films-"))
            if key not in self._made:
                self._made[key] = self._folder / f"{key}.mp4"
                write_video(self._made[key], frames, episode.fps)
            self._made.move_to_end(key)
            while len(self._made) > MAX_FILMS:
                self._made.popitem(last=False)[1].unlink(missing_ok=True)
            return self._made[key]

    def close(self) -> None:
        """Remove what was made."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def thumbnail(episode: Episode, camera: str | None, t: int) -> bytes:
    """One frame as PNG; past the end, the last."""
    frames = _frames(episode, camera)
    return encode_png(frames[min(t, len(frames) - 1)])


def _frames(episode: Episode, camera: str | None) -> Sequence[U8]:
    name = camera if camera is not None else next(iter(episode.images), None)
    if name is None or name not in episode.images:
        known = ", ".join(episode.images) or "none"
        raise InputError(f"episode {episode.id!a} has no such film; its cameras: {known}")
    return episode.images[name]
