"""Reading videos of phones and webcams."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hand_films import film

from recap.errors import InputError
from recap_hands.film import film_frames, record_webcam


def test_frames_have_the_videos_timestamps_and_large_frames_are_reduced(tmp_path: Path) -> None:
    times = np.cumsum([0, 0.03, 0.05, 0.02, 0.04, 0.03])
    path = film(tmp_path / "a.mp4", times, (1080, 1920))
    got = list(film_frames(path))
    np.testing.assert_allclose([now for now, _ in got], times, atol=2e-3)
    assert got[0][1].shape == (720, 1280, 3)
    tall = film(tmp_path / "b.mp4", times, (1920, 1080))
    assert next(iter(film_frames(tall)))[1].shape == (1280, 720, 3)


def test_an_unreadable_or_missing_video_is_refused(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mkv", np.arange(90) / 30)
    for broken, words in ((b"no film", "cannot be read"), (b"", "cannot be read")):
        (tmp_path / "b.mp4").write_bytes(broken)
        with pytest.raises(InputError, match=words) as error:
            list(film_frames(tmp_path / "b.mp4"))
        assert error.value.code == "hands.film"
    with pytest.raises(InputError, match="does not exist"):
        list(film_frames(tmp_path / "c.mp4"))
    assert len(list(film_frames(path))) == 90


def test_a_truncated_video_is_refused(tmp_path: Path) -> None:
    import av

    whole = film(tmp_path / "a.mp4", np.arange(150) / 30, (480, 640))
    # With the index first, as in web videos, the remaining part can be read.
    with (
        av.open(str(whole)) as source,
        av.open(str(tmp_path / "b.mp4"), "w", format="mp4", options={"movflags": "faststart"}) as out,
    ):
        stream = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    data = (tmp_path / "b.mp4").read_bytes()
    (tmp_path / "b.mp4").write_bytes(data[: len(data) * 6 // 10])
    with pytest.raises(InputError, match=r"cut off|cannot be read") as error:
        list(film_frames(tmp_path / "b.mp4"))
    assert error.value.code == "hands.film"


def test_the_rotation_in_a_videos_metadata_is_applied(tmp_path: Path) -> None:
    import struct

    path = film(tmp_path / "a.mp4", np.arange(20) / 30, (120, 160), corner=True)  # bright at the top left
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # the display matrix; a phone writes a quarter turn clockwise
    assert struct.unpack(">9i", data[at : at + 36])[0] == 0x10000
    data[at : at + 36] = struct.pack(">9i", 0, 0x10000, 0, -0x10000, 0, 0, 120 << 16, 0, 0x40000000)
    path.write_bytes(data)
    _, image = next(iter(film_frames(path)))
    assert image.shape == (160, 120, 3)
    bright = image.mean(axis=2) > 180
    assert bright[:20, -20:].mean() > 0.8  # now at the top right
    assert bright[:20, :20].mean() < 0.1


def test_a_webcam_recording_keeps_the_frame_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cv2

    class Webcam:
        def __init__(self, number: int) -> None:
            self.number = number

        def isOpened(self) -> bool:  # noqa: N802
            return self.number == 0

        def read(self) -> tuple[bool, object]:
            time.sleep(0.01)
            return True, np.full((48, 64, 3), 200, np.uint8)

        def release(self) -> None:
            pass

    monkeypatch.setattr(cv2, "VideoCapture", Webcam)
    out = record_webcam(0, tmp_path / "film.mp4", seconds=0.3)
    times = [now for now, _ in film_frames(out)]
    assert len(times) >= 5
    assert times[-1] == pytest.approx(0.3, abs=0.1)
    with pytest.raises(InputError, match="no webcam 3"):
        record_webcam(3, tmp_path / "other.mp4", seconds=0.1)
    assert not (tmp_path / "other.mp4").exists()
