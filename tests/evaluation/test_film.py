from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.errors import InputError
from recap.evaluation.film import CAPTION, N_HOLD, TILE, parse_choice, record
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.types import U8, EpisodeResult
from recap.video import VideoFrames, video_length, video_size
from specs import pusht_spec
from toy_policy import toy_policy

SPEC = pusht_spec("toy_agents:Wanderer", angles=(45.0, -30.0), seeds=(501, 503), max_steps=8)
HALF = {"coverage": 0.5}
RESULTS = [
    EpisodeResult("-30", 501, "success", 3, {"coverage": 0.96}, {"0.85": 1, "0.95": 3}),
    EpisodeResult("-30", 503, "failure", 8, HALF, {"0.85": None, "0.95": None}),
    EpisodeResult("+45", 501, "error", 8, HALF, {"0.85": None, "0.95": None}, "…"),
    EpisodeResult("+45", 503, "failure", 8, HALF, {"0.85": None, "0.95": None}),
]


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("0", []),
        ("1", [0]),
        ("3", [0, 1, 2]),
        ("99", [0, 1, 2, 3]),
        ("all", [0, 1, 2, 3]),
        ("failures", [1, 3]),
        ("+45:503", [3]),
        ("45:501,-30:503", [1, 2]),
        ("failures,1", [0, 1, 3]),
    ],
)
def test_parse_choice_selects_episodes(text: str, picked: list[int]) -> None:
    choice = parse_choice(text, SPEC)
    assert [i for i, result in enumerate(RESULTS) if choice(result)] == picked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("some", r"give a number, failures, all, or task:seed such as \+45:501"),
        ("", "unknown episodes"),
        ("45:7", r"cannot record \+45:7"),
    ],
)
def test_invalid_choices_are_errors(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_choice(text, SPEC)


def test_recorded_episodes_are_run_again_and_written_as_videos(tmp_path: Path) -> None:
    evaluate(SPEC, tmp_path / "run", batch_size=2)
    results = read_info(tmp_path / "run")[1]
    recordings = list(record(SPEC, results[:2], tmp_path / "videos"))
    assert [r.differs for r in recordings] == [False, False]
    names = sorted(p.name for p in (tmp_path / "videos").iterdir())
    stems = ["-30_501_failure", "-30_503_failure"]
    assert names == sorted(f"{stem}.{end}" for stem in stems for end in ("mp4", "png"))
    assert recordings[0].video is not None
    assert video_length(recordings[0].video, 10.0) == 9 + N_HOLD  # start, eight steps, held last frame
    assert video_size(recordings[0].video) == (2 * TILE, 2 * TILE + 2 * CAPTION)  # only the world
    (other,) = record(SPEC, [replace(results[0], steps=5)], tmp_path / "videos")
    assert other.differs


def pane(path: Path, number: int, t: int) -> U8:
    """One panel of a video frame."""
    frame = VideoFrames(path, 0, video_length(path, 10.0), 10.0)[t]
    return frame[2 * CAPTION :, number * TILE : (number + 1) * TILE]


def colours(picture: U8) -> set[str]:
    """The pushers visible in an image: the disc is blue, the triangle orange."""
    r, g, b = (picture[..., i].astype(int) for i in range(3))
    found = {"disc": (b > r + 80) & (b > g + 40), "triangle": (r > b + 120) & (g > b + 60)}
    return {name for name, there in found.items() if there.sum() > 20}


@pytest.mark.parametrize("objects", ["truth", "pixels"])
def test_the_video_shows_the_world_next_to_the_retrieved_demonstration(tmp_path: Path, objects: str) -> None:
    spec = pusht_spec(pusher="triangle", angles=(30.0,), seeds=(501,), max_steps=4, objects=objects)
    result = EpisodeResult("+30", 501, "failure", 4, {}, {})
    (recording,) = record(spec, [result], tmp_path)
    assert recording.video is not None
    assert video_size(recording.video) == (2 * TILE, TILE + 2 * CAPTION)
    assert colours(pane(recording.video, 0, 2)) == {"triangle"}
    assert colours(pane(recording.video, 1, 2)) == {"disc"}, "a demonstration of the pool"


def test_the_video_of_a_policy_with_images_shows_its_predicted_future(tmp_path: Path) -> None:
    from recap.policies.checkpoint import save_pretrained

    save_pretrained(toy_policy(), tmp_path / "policy")
    spec = pusht_spec(str(tmp_path / "policy"), pusher="triangle", angles=(30.0,), seeds=(501,), max_steps=4)
    (recording,) = record(spec, [EpisodeResult("+30", 501, "failure", 4, {}, {})], tmp_path)
    assert recording.video is not None
    assert video_size(recording.video) == (3 * TILE, TILE + 2 * CAPTION)
    assert colours(pane(recording.video, 2, 2)) == {"disc"}
    world, predicted = (pane(recording.video, i, 2).astype(int) for i in range(2))
    assert np.abs(world - predicted).mean() > 5  # untrained: noise at the block


def test_an_episode_that_fails_at_reset_has_no_video(tmp_path: Path) -> None:
    spec = replace(SPEC.with_agent(policy="toy_agents:FragileAtReset"), seeds=(503,), tasks=("+45",))
    evaluate(spec, tmp_path / "run")
    (recording,) = record(spec, read_info(tmp_path / "run")[1], tmp_path / "videos")
    assert (recording.video, recording.differs) == (None, False)
