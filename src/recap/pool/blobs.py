"""Videos of a pool: one encoded file each, named by its hash and decoded on demand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import av

from recap.lazy import LazySequence
from recap.pool.files import Files, sha256
from recap.types import U8
from recap.video import VideoFrames, frame_rate, write_video


def blob_name(digest: str) -> str:
    """The file name of the video with this hash."""
    return f"blobs/{digest[:2]}/{digest}.mp4"


class VideoFiles(Protocol):
    """Gives access to video files."""

    def local(self, name: str, digest: str) -> Path:
        """A local file with the contents of `name`, checked against its hash."""


class BlobFrames(LazySequence[U8]):
    """The frames of one video; the file is fetched and checked on first use."""

    def __init__(self, videos: VideoFiles, digest: str, length: int, fps: float) -> None:
        self.videos, self.digest, self.length, self.fps = videos, digest, length, fps

    def __reduce__(self) -> tuple[type[BlobFrames], tuple[VideoFiles, str, int, float]]:
        return BlobFrames, (self.videos, self.digest, self.length, self.fps)

    @cached_property
    def frames(self) -> VideoFrames:
        """The frames of the local file."""
        path = self.videos.local(blob_name(self.digest), self.digest)
        return VideoFrames(path, 0, self.length, self.fps)

    def __iter__(self) -> Iterator[U8]:
        return iter(self.video)

    def _item(self, number: int) -> U8:
        return self.video[number]

    @property
    def video(self) -> VideoFrames:
        """The frames; the file is fetched again if its copy was removed to free space."""
        if not self.frames.path.exists():
            del self.frames
        return self.frames


def encode(frames: Sequence[U8], fps: float) -> bytes:
    """The frames as an encoded video; if already encoded, they are cut out of their file without loss."""
    if isinstance(frames, BlobFrames) and frames.fps == fps:
        return frames.video.path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        if not (isinstance(frames, VideoFrames) and frames.fps == fps and _cut(frames, path)):
            write_video(path, frames, fps)
        return path.read_bytes()


def _cut(frames: VideoFrames, path: Path) -> bool:
    """Copy the packets of a range that starts at a key frame; False if this is not possible."""
    rate = frame_rate(frames.fps)
    wanted, end = frames.start, frames.start + frames.length
    with av.open(str(frames.path)) as source:
        stream = source.streams.video[0]
        ticks = 1 / rate / (stream.time_base or 1)
        if ticks.denominator != 1 or stream.codec_context.name not in ("h264", "libx264"):
            return False
        step = int(ticks)
        source.seek(wanted * step, stream=stream)
        with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as target:
            copy = target.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.pts is None or packet.dts is None or packet.pts < frames.start * step:
                    continue
                in_order = packet.pts == packet.dts == wanted * step
                if not in_order or (wanted == frames.start and not packet.is_keyframe):
                    return False  # reordered, or not starting at a key frame: encode again
                packet.pts = packet.dts = (wanted - frames.start) * step
                packet.duration = step
                packet.stream = copy
                target.mux(packet)
                wanted += 1
                if wanted == end:
                    break
    return wanted == end


def put_blob(files: Files, data: bytes) -> str:
    """Store a video and return its hash; an intact file of the same hash is not written again."""
    digest = sha256(data)
    name = blob_name(digest)
    if not (files.exists(name) and sha256(files.read(name)) == digest):
        files.write(name, data)
    return digest
