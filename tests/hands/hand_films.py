"""Videos and landmark files of a synthetic hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from made_hands import FRONT, SIDE, motion, seen_by

from recap import config
from recap.types import F64
from recap_hands.camera import Calibration, Camera
from recap_hands.landmarks import Landmarks, save_landmarks

SMALL = (120, 160)


def calibration(folder: Path, **cameras: Camera) -> Path:
    """Writes a calibration.yaml with two cameras, or with those given."""
    path = folder / "calibration.yaml"
    config.save_file(path, Calibration(cameras or {"front": FRONT, "side": SIDE}))
    return path


def film(path: Path, times: F64, size: tuple[int, int] = SMALL, corner: bool = False) -> Path:
    """Writes a grey video that grows brighter, with frames at the given times."""
    tick = Fraction(1, 600)
    with av.open(str(path), "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=30, options={"preset": "ultrafast", "bf": "0"})
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.time_base = tick
        for number, now in enumerate(times):
            image = np.full((*size, 3), 40 + number % 200, np.uint8)
            if corner:
                image[:20, :20] = 250
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round(now / tick), tick
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def landmarks(path: Path, times: F64, points: F64, camera: Camera = FRONT, noise_px: float = 1.0) -> Path:
    """Writes landmarks as an estimator would find them."""
    hand = seen_by(camera, points, noise_px)
    save_landmarks(path, Landmarks(times, camera.size, {"right": hand}))
    return path


def take(folder: Path, n: int = 60) -> dict[str, Path]:
    """Writes the video, the landmarks of two cameras and the calibration of one motion."""
    times, points = motion(n)
    return {
        "film": film(folder / "film.mp4", times),
        "front": landmarks(folder / "front.npz", times, points),
        "side": landmarks(folder / "side.npz", times, points, SIDE),
        "calibration": calibration(folder),
    }
