"""Reads films of any kind (portrait, 4K, variable rate, cut off) frame by frame with times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from recap.errors import InputError
from recap.run_directory import whole_file
from recap.types import U8
from recap_hands.landmarks import Landmarks

LOST_S = 0.5  # missing at the end of a film that is still accepted
LONG_SIDE = 1280  # larger frames are scaled down first: 4K adds no information


def film_frames(path: Path, long_side: int = LONG_SIDE) -> Iterator[tuple[float, U8]]:
    """Times from 0 and upright RGB frames of at most `long_side` px; a film that ends early is an error."""
    if not path.is_file():
        raise InputError(f"{path} does not exist: give a film", code="hands.film")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(f"{path} has no video stream: give a film", code="hands.film")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            promised = float(container.duration or 0) / av.time_base
            first, last = None, -1.0
            for frame in container.decode(stream):
                now = float(frame.time or 0.0)
                first = now if first is None else first
                if now - first <= last:  # a repeated time
                    continue
                last = now - first
                yield last, _upright(frame, long_side)
    except av.FFmpegError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path} cannot be read ({why}): copy it again", code="hands.film") from None
    if last < 0:
        raise InputError(f"{path} has no frames: give a film", code="hands.film")
    if promised and promised - last > LOST_S + 2 * promised / max(stream.frames, 10):
        raise InputError(
            f"{path} ends at {last:.1f} s of {promised:.1f} s, it is cut off: copy it again",
            code="hands.film",
        )


def refuse_other_film(path: Path, found: Landmarks, file: Path) -> None:
    """Raise an error of one line if the landmarks are of another film than this one."""
    times, shape = [], (1, 1)
    for now, image in film_frames(path, 160):
        times.append(now)
        shape = image.shape[:2]
    n, seconds, step = len(found.times), float(found.times[-1]), float(np.median(np.diff(found.times)))
    near = (
        abs(n - len(times)) <= max(2, 0.01 * n)  # readers differ in the last frames
        and abs(seconds - times[-1]) <= max(2 * step, 0.01 * seconds)
    )
    if not near:
        raise InputError(
            f"{file} is of another film than {path}: it has {n} frames in {seconds:.2f} s, the film "
            f"{len(times)} in {times[-1]:.2f} s: give the landmarks of this film",
            code="hands.landmarks",
        )
    (high, wide), (height, width) = found.size, shape
    if abs(height * wide - width * high) > 0.05 * width * high:
        raise InputError(
            f"{file} is of another film than {path}: its size is {wide}x{high}, the film is of another "
            "shape: give the landmarks of this film, upright as a player shows it",
            code="hands.landmarks",
        )


def record_webcam(
    number: int, out: Path, seconds: float, show: Callable[[U8], bool] = lambda image: True
) -> Path:
    """Film with a webcam for some seconds, or until Ctrl-C; frames keep their arrival times.

    Args:
        show: called with each image, in OpenCV's order of colours; returns whether to continue.
    """
    import cv2

    if out.exists():
        raise InputError(f"{out} is there already: lift it, or give another --out", code="hands.out")
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # a missing webcam is reported below
    webcam = cv2.VideoCapture(number)
    if not webcam.isOpened():
        raise InputError(f"there is no webcam {number}: give another number, or a film", code="hands.film")
    tick = Fraction(1, 1000)
    try:
        with whole_file(out) as partial, av.open(str(partial), "w", format="mp4") as film:
            stream, begun, last = None, time.monotonic(), -1
            with suppress(KeyboardInterrupt):
                while time.monotonic() - begun < seconds:
                    found, image = webcam.read()
                    if not found:
                        break
                    if stream is None:
                        stream = film.add_stream(
                            "libx264", rate=30, options={"preset": "veryfast", "bf": "0"}
                        )
                        stream.height, stream.width = (n // 2 * 2 for n in image.shape[:2])
                        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", tick
                    even = np.ascontiguousarray(image[: stream.height, : stream.width])
                    frame = av.VideoFrame.from_ndarray(even, format="bgr24")
                    last = max(last + 1, round((time.monotonic() - begun) / tick))
                    frame.pts, frame.time_base = last, tick
                    film.mux(stream.encode(frame))
                    if not show(image):
                        break
            if stream is None:
                raise InputError(f"webcam {number} gives no image: is it in use?", code="hands.film")
            film.mux(stream.encode(None))
    finally:
        webcam.release()
    return out


def _upright(frame: av.VideoFrame, long_side: int) -> U8:
    """The frame as a player shows it: phones film sideways and store the rotation."""
    share = min(1.0, long_side / max(frame.width, frame.height))
    wide, high = (2 * max(1, round(n * share / 2)) for n in (frame.width, frame.height))
    image = frame.reformat(width=wide, height=high, format="rgb24").to_ndarray()
    quarters = round(getattr(frame, "rotation", 0) / 90) % 4
    return np.ascontiguousarray(np.rot90(image, quarters), dtype=np.uint8)
