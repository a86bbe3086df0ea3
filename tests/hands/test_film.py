"""Films as people make them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hand_films import film

from recap.errors import InputError
from recap.hands.film import film_frames


def test_times_are_those_of_the_film_and_large_frames_are_made_smaller(tmp_path: Path) -> None:
    times = np.cumsum([0, 0.03, 0.05, 0.02, 0.04, 0.03])
    path = film(tmp_path / "a.mp4", times, (1080, 1920))
    got = list(film_frames(path))
    np.testing.assert_allclose([now for now, _ in got], times, atol=2e-3)
    assert got[0][1].shape == (720, 1280, 3)
    tall = film(tmp_path / "b.mp4", times, (1920, 1080))
    assert next(iter(film_frames(tall)))[1].shape == (1280, 720, 3)


def test_a_film_that_is_cut_off_or_none_is_refused(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mkv", np.arange(90) / 30)
    for broken, words in ((b"no film", "cannot be read"), (b"", "cannot be read")):
        (tmp_path / "b.mp4").write_bytes(broken)
        with pytest.raises(InputError, match=words) as error:
            list(film_frames(tmp_path / "b.mp4"))
        assert error.value.code == "hands.film"
    with pytest.raises(InputError, match="does not exist"):
        list(film_frames(tmp_path / "c.mp4"))
    assert len(list(film_frames(path))) == 90


def test_a_film_that_ends_early_says_when(tmp_path: Path) -> None:
    import av

    whole = film(tmp_path / "a.mp4", np.arange(150) / 30, (480, 640))
    # The index comes first, as in a film for the web, so that what is there can be read.
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
