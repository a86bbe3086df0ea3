"""Frames and videos of demonstrations, for a browser."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recap.errors import InputError
from recap.pictures import resize_image
from recap.pool.blobs import BlobFrames
from recap.types import U8, Episode
from recap.video import write_video

LONG_SIDE = 640  # px of a preview video
MAX_FILMS = 64  # maximum number of cached videos


def frames_of(episode: Episode, camera: str | None) -> Sequence[U8]:
    """The frames of a camera, by default the first; an InputError lists the cameras."""
    name = camera if camera is not None else next(iter(episode.images), None)
    if name is None or name not in episode.images:
        known = ", ".join(episode.images) or "none"
        raise InputError(f"episode {episode.id!a} has no such video; its cameras: {known}")
    return episode.images[name]


def still(episode: Episode, camera: str | None, t: int, side: int = LONG_SIDE) -> bytes:
    """One frame as JPEG, no side longer than `side`; the last frame if t is past the end."""
    import cv2

    frames = frames_of(episode, camera)
    image = _sized(np.asarray(frames[min(t, len(frames) - 1)], np.uint8), side)
    return cv2.imencode(".jpg", np.ascontiguousarray(image[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, 88])[
        1
    ].tobytes()


class Films:
    """Videos of cameras as files: the pool's own file, or a preview that is encoded once and cached."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._made: OrderedDict[str, Path] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, episode: Episode, camera: str | None) -> Path:
        frames = frames_of(episode, camera)
        if isinstance(frames, BlobFrames):
            return frames.video.path
        key = hashlib.sha256(f"{episode.id}\0{camera}".encode()).hexdigest()
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="recap-films-"))
            if key not in self._made:
                made = self._folder / f"{key}.mp4"
                even = (_sized(np.asarray(image, np.uint8), LONG_SIDE, 2) for image in frames)
                write_video(made, even, episode.fps, crf=23)
                self._made[key] = made
            self._made.move_to_end(key)
            while len(self._made) > MAX_FILMS:
                self._made.popitem(last=False)[1].unlink(missing_ok=True)
            return self._made[key]

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _sized(image: U8, side: int, step: int = 1) -> U8:
    """Resize so that no side is longer than `side`; sides are multiples of `step` (2 for the codec)."""
    share = min(1.0, side / max(image.shape[:2]))
    high, wide = (step * max(1, math.floor(n * share / step)) for n in image.shape[:2])
    return resize_image(image, (high, wide))
