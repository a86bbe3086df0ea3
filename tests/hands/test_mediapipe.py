"""MediaPipe on a real video; `make test-long` installs it and skips nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hand_films import film

from recap.cli import cli
from recap.errors import InputError
from recap.pool.importers import open_source
from recap.types import U8
from recap_hands.film import film_frames
from recap_hands.landmarks import one_hand
from recap_hands.mediapipe import Landmarker, find_hands

pytestmark = pytest.mark.long
if "mediapipe" not in os.environ.get("RECAP_NEEDS", ""):
    pytest.importorskip("mediapipe", reason="no mediapipe: make hands installs it")

DATA = Path(__file__).parent / "data"
FILM = DATA / "hand.mp4"


def test_a_real_video_becomes_a_demonstration(tmp_path: Path) -> None:
    words = [
        "lift",
        FILM,
        "--camera",
        DATA / "calibration.yaml",
        "--task",
        "show a hand",
        "--out",
        tmp_path / "0",
    ]
    result = CliRunner().invoke(cli, [*map(str, words), "--model", "lite", "--preview"])
    assert result.exception is None, result.output
    print(result.output)
    found = json.loads((tmp_path / "0/quality.json").read_text())
    (quality,) = found["hands"].values()
    assert quality["n_frames"] == 621
    assert quality["coverage"] > 0.99
    assert quality["jitter_mm"] < 6
    assert quality["error_px"] < 12
    assert 80 < quality["palm_mm"] < 115
    assert set(found["hands"]) == {"right"}
    episode = open_source(tmp_path / "0")[0]
    assert len(episode) == 621
    assert (tmp_path / "0/preview.mp4").stat().st_size > 100_000


def test_hand_detection_is_faster_than_real_time() -> None:
    """Measured in CPU time, which other processes do not change."""
    find_hands(some(5), 1, "lite")  # warm-up
    begun = time.process_time()
    find_hands(some(120), 1, "lite")
    took = (time.process_time() - begun) / 120
    print(f"{1000 * took:.1f} ms of the CPU a frame, decoding included")
    assert took < 1 / 30


def some(n: int, change: object = None) -> Iterator[tuple[float, U8]]:
    for number, (now, image) in enumerate(film_frames(FILM, 640)):
        if number == n:
            return
        yield now, image if change is None else change(image)  # type: ignore[operator]


def test_two_hands_are_refused_for_one_and_labelled_left_and_right() -> None:
    def beside(image: U8) -> U8:
        """The hand beside its mirror image, which is of the other side."""
        return np.ascontiguousarray(np.concatenate([image, image[:, ::-1]], axis=1))

    with pytest.raises(InputError) as error:
        find_hands(some(40, beside), 1)
    assert error.value.code == "hands.two"
    both = find_hands(some(40, beside), 2)
    assert {side: hand.seen.mean() > 0.8 for side, hand in both.hands.items()} == {
        "left": True,
        "right": True,
    }
    mirrored = find_hands(some(20, lambda image: np.ascontiguousarray(image[:, ::-1])), 1)
    assert set(one_hand(mirrored, "one").hands) == {"left"}


def test_a_video_without_a_hand_is_refused() -> None:
    with pytest.raises(InputError) as error:
        find_hands(some(10, np.zeros_like), 1)
    assert error.value.code == "hands.none"


def test_an_error_is_the_only_line_on_stderr(tmp_path: Path) -> None:
    """MediaPipe's own messages from any thread are suppressed."""
    grey = film(tmp_path / "grey.mp4", np.arange(20) / 30, (180, 320))
    program = "from recap.cli import main; main()"
    words = ["lift", grey, "--camera", DATA / "calibration.yaml", "--task", "x", "--out", tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, timeout=120
    )
    (line,) = done.stderr.splitlines()
    assert line == (f"recap: {grey}: no hand is seen: film it closer, whole and in better light [hands.none]")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "out").exists()


def test_a_rotated_hand_is_found_at_the_right_place() -> None:
    (_, image), *_ = some(1)
    landmarker = Landmarker(1, follow=False)
    (upright,), (turned,) = landmarker(image), landmarker(np.ascontiguousarray(np.rot90(image, -1)))
    landmarker.close()
    height = image.shape[0]
    back = np.column_stack([turned.pixels[:, 1], height - 1 - turned.pixels[:, 0]])
    assert np.abs(back - upright.pixels).max() < 20
