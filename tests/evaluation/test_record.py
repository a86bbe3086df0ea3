from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recap.errors import InputError
from recap.evaluation.record import parse_choice, record
from recap.evaluation.rollouts import EvalSpec
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.types import EpisodeResult

SPEC = EvalSpec("toy_agents:Wanderer", angles=(45.0, -30.0), seeds=(501, 503), max_steps=8)
RESULTS = [
    EpisodeResult("-30", 501, "success", 3, 0.96, {"0.85": 1, "0.95": 3}),
    EpisodeResult("-30", 503, "failure", 8, 0.5, {"0.85": None, "0.95": None}),
    EpisodeResult("+45", 501, "error", 8, 0.5, {"0.85": None, "0.95": None}, "…"),
    EpisodeResult("+45", 503, "failure", 8, 0.5, {"0.85": None, "0.95": None}),
]


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("1", [0]),
        ("3", [0, 1, 2]),
        ("99", [0, 1, 2, 3]),
        ("all", [0, 1, 2, 3]),
        ("failures", [1, 3]),
        ("+45:503", [3]),
        ("45:501,-30:503", [1, 2]),
    ],
)
def test_choice(text: str, picked: list[int]) -> None:
    choice = parse_choice(text, SPEC)
    assert [i for i, result in enumerate(RESULTS) if choice(result)] == picked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "unknown episodes to record '0'"),
        ("some", "give a number, failures, all, or angle:seed"),
        ("", "unknown episodes"),
        ("45:7", r"cannot record \+45:7"),
    ],
)
def test_bad_choices(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_choice(text, SPEC)


def test_episodes_are_run_again_on_camera(tmp_path: Path) -> None:
    from recap.video import video_length

    evaluate(SPEC, tmp_path / "run", batch_size=2)
    results = read_info(tmp_path / "run")[1]
    recordings = list(record(SPEC, results[:2], tmp_path / "videos"))
    assert [r.differs for r in recordings] == [False, False]
    names = sorted(p.name for p in (tmp_path / "videos").iterdir())
    stems = ["-30_501_failure", "-30_503_failure"]
    assert names == sorted(f"{stem}.{end}" for stem in stems for end in ("mp4", "png"))
    assert recordings[0].video is not None
    assert video_length(recordings[0].video, 10.0) == 9  # the start and eight steps
    (other,) = record(SPEC, [replace(results[0], steps=5)], tmp_path / "videos")
    assert other.differs


def test_an_episode_that_cannot_begin_has_no_video(tmp_path: Path) -> None:
    spec = replace(SPEC, agent="toy_agents:FragileAtReset", seeds=(503,), angles=(45.0,))
    evaluate(spec, tmp_path / "run")
    (recording,) = record(spec, read_info(tmp_path / "run")[1], tmp_path / "videos")
    assert (recording.video, recording.differs) == (None, False)
