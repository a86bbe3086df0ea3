"""`recap lift`: one line for what is wrong, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hand_films import calibration, film, landmarks, take
from made_hands import FRONT, motion

from recap.cli import cli
from recap.errors import RecapError
from recap.hands.landmarks import Hand, Landmarks, save_landmarks


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["lift", *map(str, words)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_one_film_and_its_landmarks(tmp_path: Path) -> None:
    files = take(tmp_path)
    words = (
        files["film"],
        "--camera",
        files["calibration"],
        "--landmarks",
        files["front"],
        "--task",
        "lift it",
    )
    text = run(*words, "--out", tmp_path / "data/0", "--preview")
    assert "seen in 100.0% of the frames" in text
    assert "1 grasps, 1 releases" in text
    assert f"recap pool add POOL {tmp_path / 'data'}" in text
    assert (tmp_path / "data/0/preview.mp4").stat().st_size > 1000
    with pytest.raises(RecapError, match="there already"):
        run(*words, "--out", tmp_path / "data/0")


def test_two_films(tmp_path: Path) -> None:
    files = take(tmp_path)
    text = run(
        files["film"], files["film"], "--camera", files["calibration"], "--view", "front", "--view", "side",
        "--landmarks", files["front"], "--landmarks", files["side"], "--task", "x", "--out", tmp_path / "out",
        "--speed", "2",
    )  # fmt: skip
    assert "Speed: 2.00" in text


def test_what_is_wrong_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    files = take(tmp_path)
    times, points = motion(60)
    nothing = Landmarks(times, FRONT.size, {"right": Hand(np.full((60, 21, 2), np.nan))})
    save_landmarks(tmp_path / "nothing.npz", nothing)
    both = Landmarks(times, FRONT.size, {
        side: Hand(FRONT.project(points + np.array([shift, 0, 0])), FRONT.seen_from(points))
        for side, shift in (("left", -0.1), ("right", 0.1))
    })  # fmt: skip
    save_landmarks(tmp_path / "both.npz", both)
    few = points.copy()
    few[:40] = np.nan
    landmarks(tmp_path / "few.npz", times, few)
    (tmp_path / "empty.mp4").write_bytes(b"")
    base = {"--camera": files["calibration"], "--landmarks": files["front"], "--task": "x"}
    cases = {
        "hands.quality": {"--landmarks": tmp_path / "few.npz"},
        "hands.two": {"--landmarks": tmp_path / "both.npz"},
        "hands.none": {"--hands": "left", "--landmarks": tmp_path / "nothing.npz"},
        "hands.camera": {
            "--camera": calibration(tmp_path / "tall", front=FRONT.__class__((640, 480), FRONT.intrinsics))
        },
        "input": {"--speed": "fast"},
    }
    for code, changed in cases.items():
        options = [word for pair in {**base, **changed}.items() for word in pair]
        with pytest.raises(RecapError) as error:
            run(files["film"], *options, "--out", tmp_path / "out")
        assert error.value.code == code, str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(RecapError) as error:
        run(tmp_path / "empty.mp4", *[w for pair in base.items() for w in pair], "--out", tmp_path / "out")
    assert error.value.code == "hands.film"
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*partial"))
    short = film(tmp_path / "short.mp4", times[:10])
    assert short.is_file()


def test_a_webcam_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __init__(self, number: int) -> None:
            pass

        def isOpened(self) -> bool:  # noqa: N802
            return False

    monkeypatch.setattr("cv2.VideoCapture", Nothing)
    files = take(tmp_path)
    with pytest.raises(RecapError, match="no webcam 0"):
        run("webcam:0", "--camera", files["calibration"], "--task", "x", "--out", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--hands", "three", "unknown hands 'three'"),
        ("--gripper", "shut", "unknown gripper 'shut'"),
        ("--opening", "0.02", "--opening has 1 numbers: give 2"),
        ("--opening", "wide", "--opening is 'wide': give numbers"),
        ("--tool", "0,0,0.1", "--tool has 3 numbers: give 7"),
        ("--bridge", "-1", "--bridge -1.0 is no length of time"),
        ("--min-coverage", "2", "--min-coverage 2.0 is no share"),
    ],
)
def test_a_setting_that_cannot_be_is_named(tmp_path: Path, option: str, value: str, message: str) -> None:
    files = take(tmp_path)
    words = [files["film"], "--camera", files["calibration"], "--landmarks", files["front"], "--task", "x"]
    with pytest.raises(RecapError, match=message):
        run(*words, option, value, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
