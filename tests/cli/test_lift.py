"""`recap lift`: videos of hands to tool poses, one-line errors, nothing half-written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hand_films import calibration, film, landmarks, take
from made_hands import FRONT, looking_at, motion

from recap.body import arm_features
from recap.cli import cli
from recap.config import save_file
from recap.errors import RecapError
from recap.pool.importers import open_source
from recap.pool.store import Pool
from recap.robot import RobotSpec
from recap.types import U8
from recap_hands.film import film_frames, record_webcam
from recap_hands.landmarks import Hand, Landmarks, save_landmarks
from recap_hands.live import COLOUR, live_view
from recap_hands.mediapipe import Found


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["lift", *map(str, words)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_lift_of_one_video_with_landmarks(tmp_path: Path) -> None:
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


def test_lift_of_two_videos(tmp_path: Path) -> None:
    files = take(tmp_path)
    text = run(
        files["film"], files["film"], "--camera", files["calibration"], "--view", "front", "--view", "side",
        "--landmarks", files["front"], "--landmarks", files["side"], "--task", "x", "--out", tmp_path / "out",
        "--speed", "2",
    )  # fmt: skip
    assert "Speed: 2.00" in text


def test_wrong_input_is_a_one_line_error_and_leaves_no_files(tmp_path: Path) -> None:
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
        "hands.landmarks": {"--landmarks": landmarks(tmp_path / "longer.npz", *motion(90))},
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


def test_a_missing_webcam_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_landmarks_of_another_video_are_refused(tmp_path: Path) -> None:
    files = take(tmp_path)
    times, points = motion(60)
    base = (files["film"], "--camera", files["calibration"], "--task", "x", "--out", tmp_path / "out")
    half = landmarks(tmp_path / "half.npz", times / 2, points)  # equally many frames in half the time
    upright = replace(FRONT, size=(640, 480))
    turned = landmarks(tmp_path / "turned.npz", times, points, upright)
    for file, words in (
        (landmarks(tmp_path / "more.npz", *motion(70)), "it has 70 frames in 2.30 s, the film 60 in 1.97 s"),
        (half, "it has 60 frames in 0.98 s, the film 60 in 1.97 s"),
        (turned, "its size is 480x640, the film is of another shape"),
    ):
        with pytest.raises(RecapError, match=words) as error:
            run(*base, "--landmarks", file)
        assert error.value.code == "hands.landmarks"
    two = ("--view", "front", "--view", "side", "--landmarks", files["front"], "--landmarks", half)
    with pytest.raises(
        RecapError, match=r"half\.npz is of another film"
    ):  # landmarks are checked against their own video
        run(files["film"], *base, *two)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("size", "of_camera"), [((2160, 3840), (1080, 1920)), ((640, 360), (1280, 720))], ids=["4K", "portrait"]
)
def test_a_calibration_fits_videos_of_other_sizes_with_the_same_aspect_ratio(
    tmp_path: Path, size: tuple[int, int], of_camera: tuple[int, int]
) -> None:
    times, points = motion(12)
    camera = looking_at(FRONT.position, np.array([0, 0, 0.12]), of_camera, 0.9 * max(of_camera))
    shot = film(tmp_path / "film.mp4", times, size)
    marks = landmarks(tmp_path / "marks.npz", times, points, camera)
    words = (shot, "--landmarks", marks, "--camera", calibration(tmp_path, front=camera), "--task", "x")
    assert "Written" in run(*words, "--out", tmp_path / "out", "--preview")
    high, wide, *_ = next(iter(film_frames(tmp_path / "out/preview.mp4")))[1].shape
    assert wide / high == pytest.approx(size[1] / size[0], rel=0.01)


def test_a_video_with_dropped_frames_is_resampled_to_an_even_rate(tmp_path: Path) -> None:
    times, points = motion(60)
    kept = np.delete(np.arange(60), [5, 11, 12, 30, 41])
    shot = film(tmp_path / "film.mp4", times[kept])
    marks = landmarks(tmp_path / "marks.npz", times[kept], points[kept])
    words = (shot, "--landmarks", marks, "--camera", calibration(tmp_path), "--task", "x")
    assert "60 frames at 30 a second" in run(*words, "--view", "front", "--out", tmp_path / "out")
    (a, b) = open_source(tmp_path / "out")  # two missing frames in a row are a gap
    assert (len(a), len(b)) == (11, 47)


def test_an_unusable_video_is_refused_before_hand_detection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong size, and a truncated file."""
    looked = []
    monkeypatch.setattr(
        "recap_hands.mediapipe.Landmarker", lambda *a, **k: looked.append(a) or (lambda image: [])
    )
    files = take(tmp_path)
    wide = film(tmp_path / "wide.mp4", np.arange(10) / 30, (90, 160))
    whole = files["film"].read_bytes()
    (tmp_path / "cut.mp4").write_bytes(
        whole[: len(whole) * 6 // 10]
    )  # the index at the end of the file is lost
    for shot, code in ((wide, "hands.camera"), (tmp_path / "cut.mp4", "hands.film")):
        with pytest.raises(RecapError) as error:
            run(shot, "--camera", files["calibration"], "--task", "x", "--out", tmp_path / "out")
        assert (error.value.code, looked) == (code, [])
        assert shot.name in str(error.value)
    assert not (tmp_path / "out").exists()


def test_two_videos_of_the_same_camera_are_refused(tmp_path: Path) -> None:
    files = take(tmp_path)
    with pytest.raises(RecapError, match="two films are of the camera 'front'"):
        run(
            files["film"], files["film"], "--camera", files["calibration"], "--view", "front", "--view",
            "front", "--task", "x", "--out", tmp_path / "out",
        )  # fmt: skip


def test_automatic_speed_uses_the_robots_demonstrations_or_its_limits(tmp_path: Path) -> None:
    files = take(tmp_path)
    robot = RobotSpec("arm", 10.0, arm_features("tool"), max_step={"tool.position": 0.01})
    save_file(tmp_path / "robot.yaml", robot)
    words = (
        files["film"], "--camera", files["calibration"], "--landmarks", files["front"], "--task", "lift it",
        "--robot", tmp_path / "robot.yaml",
    )  # fmt: skip
    text = run(*words, "--out", tmp_path / "a")
    assert "Too fast: " in text
    text = run(*words, "--speed", "auto", "--out", tmp_path / "b")
    assert "times the robot's by the largest step of 'tool.position'; times are stretched" in text
    assert "Too fast" not in text
    (own,) = open_source(tmp_path / "a")
    slow = replace(own, id="0", embodiment="arm", fps=10.0, timestamps=own.timestamps * 3)
    pool = Pool.create(tmp_path / "pool")
    pool.add([slow, replace(own, id="1")])  # the hand's own demonstration does not count for the robot
    text = run(*words, "--speed", "auto", "--paired", pool.uri, "--out", tmp_path / "c")
    assert "Speed: 3.00 times the robot's by 1 demonstrations of 'arm'" in text
    assert open_source(tmp_path / "c")[0].fps == pytest.approx(10, rel=0.01)
    for changed, message in (
        (("--task", "lift"), "is of the task 'lift'"),
        (("--speed", "2"), "--paired needs --speed auto"),
    ):
        with pytest.raises(RecapError, match=message):
            run(*words, "--speed", "auto", "--paired", pool.uri, *changed, "--out", tmp_path / "d")
    save_file(tmp_path / "robot.yaml", replace(robot, max_step={}))
    with pytest.raises(RecapError, match="the speed of 'arm' is unknown"):
        run(*words, "--speed", "auto", "--out", tmp_path / "d")
    assert not (tmp_path / "d").exists()


class Webcam:
    """A webcam that always shows a grey image."""

    def __init__(self, number: int) -> None:
        pass

    def isOpened(self) -> bool:  # noqa: N802
        return True

    def read(self) -> tuple[bool, object]:
        return True, np.full((48, 64, 3), 90, np.uint8)

    def release(self) -> None:
        pass


def test_a_webcam_recording_never_overwrites_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cv2.VideoCapture", Webcam)
    files = take(tmp_path)
    words = ("--camera", files["calibration"], "--task", "x", "--out", tmp_path / "out")
    (tmp_path / "out.mp4").write_bytes(b"dear to somebody")
    with pytest.raises(RecapError, match=r"out\.mp4 is there already"):
        run("webcam:0", *words)
    assert (tmp_path / "out.mp4").read_bytes() == b"dear to somebody"
    for films in (("webcam:0", "webcam:1"), ("webcam:0", "--landmarks", files["front"])):
        with pytest.raises(RecapError, match="only one webcam at a time"):
            run(*films, *words)
    (tmp_path / "out.mp4").unlink()
    for wrong in (("--camera", tmp_path / "none.yaml"), ("--speed", "fast")):  # refused before recording
        with pytest.raises(RecapError):
            run("webcam:0", *words, *wrong)
    assert not list(tmp_path.glob("*out*"))


def test_the_webcam_preview_needs_a_display_and_ends_on_esc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCV's window functions are replaced; the images given to them are recorded."""
    shown: list[tuple[int, ...]] = []
    pressed = iter([255, 255, 27])
    marks = Found("right", 1.0, np.tile([[32.0, 24.0]], (21, 1)), np.zeros((21, 3)))

    class Finder:
        def __init__(self, n_hands: int, model: str) -> None:
            assert (n_hands, model) == (1, "lite")

        def __call__(self, image: U8) -> list[Found]:
            return [marks]

        def close(self) -> None:
            shown.append(())

    def imshow(title: str, image: U8) -> None:
        shown.append(tuple(image[24, 32].tolist()))

    monkeypatch.setattr("cv2.VideoCapture", Webcam)
    for name in ("namedWindow", "destroyWindow"):
        monkeypatch.setattr(f"cv2.{name}", lambda title: None)
    monkeypatch.setattr("cv2.imshow", imshow)
    monkeypatch.setattr("cv2.waitKey", lambda wait: next(pressed))
    monkeypatch.setattr("recap_hands.live.Landmarker", Finder)
    files = take(tmp_path)
    words = (
        "webcam:0",
        "--camera",
        files["calibration"],
        "--task",
        "x",
        "--out",
        tmp_path / "out",
        "--preview",
    )
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(RecapError, match="no display to show the webcam on") as error:
        run(*words)
    assert error.value.code == "hands.display"
    assert not list(tmp_path.glob("*out*"))
    monkeypatch.setattr("recap_hands.live.PROBE", "")
    with live_view(1) as show:
        film = record_webcam(0, tmp_path / "seen.mp4", 60.0, show)  # ended by Esc
    assert shown == [COLOUR[::-1]] * 3 + [()]
    assert [image[24, 32].max() < 120 for _, image in film_frames(film)] == [
        True
    ] * 3  # the recording has no drawing in it


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
def test_an_invalid_option_value_is_named(tmp_path: Path, option: str, value: str, message: str) -> None:
    files = take(tmp_path)
    words = [files["film"], "--camera", files["calibration"], "--landmarks", files["front"], "--task", "x"]
    with pytest.raises(RecapError, match=message):
        run(*words, option, value, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
