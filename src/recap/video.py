"""Camera frames as H.264 files: atomic writing, reading frame by frame, joining without re-encoding."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import chain, pairwise
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from recap.errors import DatasetError, InputError
from recap.lazy import LazySequence
from recap.run_directory import whole_file
from recap.types import U8

CODEC = "h264"
PIXEL_FORMAT = "yuv420p"

_GOP = 10  # frames per key frame: reading one frame decodes at most this many
_BIT_EXACT = {"fflags": "+bitexact"}  # keeps library versions and dates out of the file


def frame_rate(fps: float) -> Fraction:
    """The rate as a small fraction, so that every frame has an integer timestamp."""
    rate = Fraction(fps).limit_denominator(1001) if np.isfinite(fps) else Fraction(0)
    if rate <= 0:
        raise InputError(f"cannot write a video at {fps} frames per second: give a positive rate")
    return rate


def write_video(path: Path, frames: Iterable[U8], fps: float, *, crf: int = 18) -> int:
    """Encode RGB frames to `path` and return their count; equal frames give equal bytes."""
    rate = frame_rate(fps)
    rest = iter(frames)
    first = next(rest, None)
    if first is None:
        raise InputError(f"cannot write {path.name}: there are no frames")
    _check_frame(first, first.shape, path)
    height, width = first.shape[:2]
    if height % 2 or width % 2:
        raise InputError(
            f"cannot write {path.name}: {width}x{height} has an odd side and the codec needs even ones; "
            "resize or pad the images"
        )
    count = 0
    with whole_file(path) as partial, _create(partial) as out:
        # No B-frames: pts order is file order. One thread and no look-ahead: equal frames give equal bytes
        # (x264's look-ahead was seen to depend on previous contents of memory).
        exact = "rc-lookahead=0:mbtree=0:scenecut=0"
        options = {"crf": str(crf), "preset": "veryfast", "g": str(_GOP), "bf": "0", "x264-params": exact}
        stream = out.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, PIXEL_FORMAT
        stream.codec_context.time_base, stream.codec_context.thread_count = 1 / rate, 1
        for array in chain([first], rest):
            _check_frame(array, first.shape, path)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(array), format="rgb24")
            frame.pts, frame.time_base = count, 1 / rate
            out.mux(stream.encode(frame))
            count += 1
        out.mux(stream.encode(None))
    return count


def concatenate_videos(paths: Sequence[Path], out: Path, fps: float) -> list[tuple[float, float]]:
    """Join videos of equal encoding by copying packets; returns each one's (from, to) timestamps in `out`."""
    if not paths:
        raise InputError(f"cannot write {out.name}: there are no videos to join")
    rate = frame_rate(fps)
    ends = [0]
    with whole_file(out) as partial, _create(partial) as target:
        stream: VideoStream | None = None
        header = b""
        for path in paths:
            count = 0
            for packet, template in _packets(path, rate, n_before=ends[-1]):
                extradata = template.codec_context.extradata or b""
                if stream is None:
                    stream, header = target.add_stream_from_template(template), extradata
                if extradata != header:
                    raise DatasetError(
                        f"cannot join {path.name} to {paths[0].name}: "
                        "they differ in size or encoding; write both with the same settings"
                    )
                packet.stream = stream
                target.mux(packet)
                count += 1
            ends.append(ends[-1] + count)
    return [(a / fps, b / fps) for a, b in pairwise(ends)]


def video_length(path: Path, fps: float) -> int:
    """The number of frames: as the header says, without those cut off at the end of the file."""
    size = path.stat().st_size if path.is_file() else 1
    if not size:
        raise DatasetError(_damaged(path, "it is empty, 0 bytes"))
    with _opened(path) as (_, stream):
        if stream.frames:
            lost = sum(entry.pos + entry.size > size for entry in stream.index_entries)
            return stream.frames - lost
        seconds = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0
        return round(seconds * fps)


def video_size(path: Path) -> tuple[int, int]:
    """Width and height from the header of a video; decodes nothing."""
    with _opened(path) as (_, stream):
        return stream.width, stream.height


class VideoFrames(LazySequence[U8]):
    """`length` RGB frames of a video from frame `start` on, decoded on access."""

    def __init__(self, path: Path, start: int, length: int, fps: float) -> None:
        self.path, self.start, self.length, self.fps = path, start, length, fps
        self._lock = threading.Lock()
        self._last = -2  # index read last; -2: none, no index follows it
        self._ahead: Iterator[U8] | None = None  # yields frame `_last + 1` next

    def __reduce__(self) -> tuple[type[VideoFrames], tuple[Path, int, int, float]]:
        return VideoFrames, (self.path, self.start, self.length, self.fps)

    def __iter__(self) -> Iterator[U8]:
        return self._decode(0)

    def _item(self, number: int) -> U8:
        with self._lock:
            return self._read(number)

    def _read(self, position: int) -> U8:
        follows = position == self._last + 1
        frames = self._ahead if follows and self._ahead is not None else self._decode(position)
        self._last, self._ahead = -2, None  # stays so if decoding fails
        frame = next(frames)
        # Only a sequential reader keeps the file open, so that thousands of episodes can be sampled.
        self._last = position
        if follows and position + 1 < self.length:
            self._ahead = frames
        return frame

    def _decode(self, first: int) -> Iterator[U8]:
        """Frames `first`, `first + 1`, ... of this range in one pass."""
        wanted, end = self.start + first, self.start + self.length
        if wanted >= end:
            return
        convert = VideoReformatter()  # shared, since frame.to_ndarray would start threads for each frame
        with _opened(self.path) as (container, stream):
            for frame in _frames_from(container, stream, wanted, self.fps):
                position = round(_seconds(frame) * self.fps)
                if position < wanted:
                    continue
                if position != wanted or frame.is_corrupt:
                    raise DatasetError(_damaged(self.path, f"frame {wanted} is missing or damaged"))
                yield np.asarray(convert.reformat(frame, format="rgb24").to_ndarray(), dtype=np.uint8)
                wanted += 1
                if wanted == end:
                    return
        raise DatasetError(_damaged(self.path, f"it ends before frame {wanted} of {end}"))


def _frames_from(
    container: InputContainer, stream: VideoStream, wanted: int, fps: float
) -> Iterator[av.VideoFrame]:
    """Decoded frames from a key frame at or before `wanted`."""
    tick = stream.time_base or Fraction(1, 1)
    # Half a frame late, so that rounding never selects the previous key frame.
    container.seek(int((wanted + 0.5) / fps / tick), stream=stream)
    frames = container.decode(stream)
    first = next(frames, None)
    if first is not None and round(_seconds(first) * fps) > wanted:
        # With reordered frames a seek can miss the key frame. Decoding from the start cannot.
        container.seek(0, stream=stream)
        frames, first = container.decode(stream), None
    if first is not None:
        yield first
    yield from frames


def _packets(path: Path, rate: Fraction, n_before: int) -> Iterator[tuple[Packet[VideoStream], VideoStream]]:
    """The packets of one video, with timestamps shifted by `n_before` frames."""
    with _opened(path) as (container, stream):
        ticks = 1 / rate / (stream.time_base or Fraction(1, 1))
        if ticks.denominator != 1:
            raise DatasetError(f"cannot join {path.name}: it was not written at {float(rate):g} fps")
        step = int(ticks)
        for packet in container.demux(stream):
            if packet.pts is None or packet.dts is None:  # the empty packet at the end of a stream
                continue
            packet.pts += n_before * step
            packet.dts += n_before * step
            packet.duration = step
            yield packet, stream


def _create(path: Path) -> OutputContainer:
    return av.open(str(path), "w", format="mp4", options=_BIT_EXACT)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """An open video and its stream; errors of FFmpeg become a DatasetError."""
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DatasetError(_damaged(path, "it has no video stream"))
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            yield container, stream
    except av.FFmpegError as error:
        raise DatasetError(_damaged(path, error.strerror or type(error).__name__)) from error


def _seconds(frame: av.VideoFrame) -> float:
    return frame.time if frame.time is not None else -1.0


def _damaged(path: Path, why: str) -> str:
    return f"video {path} cannot be read: {why}; restore the file or collect the dataset again"


def _check_frame(array: U8, shape: tuple[int, ...], path: Path) -> None:
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise InputError(
            f"cannot write {path.name}: a frame is {array.dtype} {array.shape}, not u8 (h, w, 3)"
        )
    if array.shape != shape:
        raise InputError(f"cannot write {path.name}: frames differ in size, {array.shape} after {shape}")
