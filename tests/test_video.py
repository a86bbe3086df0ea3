"""Videos: frames are read back at the right index, and no half-written files remain."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recap.errors import DatasetError, InputError
from recap.types import U8
from recap.video import VideoFrames, concatenate_videos, video_length, write_video


def brightness(number: int) -> int:
    """A brightness that distinguishes a frame from its neighbours."""
    return 10 + (number * 7) % 230


def numbered(n: int, first: int = 0, size: tuple[int, int] = (32, 48)) -> list[U8]:
    return [np.full((*size, 3), brightness(first + i), np.uint8) for i in range(n)]


def assert_is(frame: U8, number: int) -> None:
    assert frame.dtype == np.uint8
    assert abs(float(frame.mean()) - brightness(number)) < 2.5


@pytest.mark.parametrize("fps", [10, 30, 16.7, 1 / 0.06, 29.97])
def test_every_frame_is_read_at_its_index_after_concatenation(tmp_path: Path, fps: float) -> None:
    lengths = [7, 40, 1, 23]
    paths = [tmp_path / f"{i}.mp4" for i in range(len(lengths))]
    for i, (path, n) in enumerate(zip(paths, lengths, strict=True)):
        assert write_video(path, numbered(n, 11 * i), fps) == n
    spans = concatenate_videos(paths, tmp_path / "all.mp4", fps)
    assert video_length(tmp_path / "all.mp4", fps) == sum(lengths)
    for i, ((start_s, end_s), n) in enumerate(zip(spans, lengths, strict=True)):
        assert round((end_s - start_s) * fps) == n
        frames = VideoFrames(tmp_path / "all.mp4", round(start_s * fps), n, fps)
        order = np.random.default_rng(0).permutation(n).tolist()
        for k in [*range(n), *order]:
            assert_is(frames[k], 11 * i + k)
        assert len(list(frames)) == n
        for k, frame in enumerate(frames):
            assert_is(frame, 11 * i + k)


def test_video_frames_behave_as_a_sequence(tmp_path: Path) -> None:
    write_video(tmp_path / "v.mp4", numbered(20), 10)
    frames = VideoFrames(tmp_path / "v.mp4", 5, 10, 10)
    assert len(frames) == 10
    assert_is(frames[-1], 14)
    for frame, k in zip(frames[2:8:2], (7, 9, 11), strict=True):
        assert_is(frame, k)
    with pytest.raises(IndexError):
        frames[10]
    assert_is(pickle.loads(pickle.dumps(frames))[3], 8)


def test_decoded_frames_are_close_to_the_originals(tmp_path: Path) -> None:
    y, x = np.mgrid[0:64, 0:64]
    frames = [
        np.stack([x * 4 % 256, y * 4 % 256, (x + y + t) * 2 % 256], -1).astype(np.uint8) for t in range(12)
    ]
    write_video(tmp_path / "v.mp4", frames, 10)
    read = np.stack(list(VideoFrames(tmp_path / "v.mp4", 0, 12, 10)))
    assert np.abs(read.astype(float) - np.stack(frames)).mean() < 5


def test_equal_frames_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_video(tmp_path / f"{name}.mp4", numbered(15), 10)
        concatenate_videos([tmp_path / "a.mp4"] * 2, tmp_path / f"{name}2.mp4", 10)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert (tmp_path / "a2.mp4").read_bytes() == (tmp_path / "b2.mp4").read_bytes()


@pytest.mark.parametrize(
    ("frames", "fps", "says"),
    [
        ([], 10, "no frames"),
        (numbered(2, size=(31, 48)), 10, "odd side"),
        ([*numbered(2), *numbered(1, size=(34, 48))], 10, "differ in size"),
        ([np.zeros((32, 48), np.uint8)], 10, "not u8 (h, w, 3)"),
        ([np.zeros((32, 48, 3), np.float32)], 10, "not u8 (h, w, 3)"),
        (numbered(2), 0, "positive rate"),
        (numbered(2), float("nan"), "positive rate"),
    ],
)
def test_unusable_frames_are_refused(tmp_path: Path, frames: list[U8], fps: float, says: str) -> None:
    with pytest.raises(InputError) as caught:
        write_video(tmp_path / "v.mp4", frames, fps)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[U8]:
        yield from numbered(5)
        raise RuntimeError("the simulator died")

    with pytest.raises(RuntimeError):
        write_video(tmp_path / "v.mp4", failing(), 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_os_error_and_leaves_no_file(tmp_path: Path) -> None:
    write_video(tmp_path / "v.mp4", numbered(5), 10)
    (tmp_path / ".full.mp4.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="space"):
        write_video(tmp_path / "full.mp4", numbered(5), 10)
    (tmp_path / ".full.mp4.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="space"):
        concatenate_videos([tmp_path / "v.mp4"] * 3, tmp_path / "full.mp4", 10)
    assert [path.name for path in tmp_path.iterdir()] == ["v.mp4"]


def test_videos_of_different_size_or_rate_are_not_concatenated(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", numbered(5), 10)
    write_video(tmp_path / "b.mp4", numbered(5, size=(64, 64)), 10)
    with pytest.raises(DatasetError, match="differ"):
        concatenate_videos([tmp_path / "a.mp4", tmp_path / "b.mp4"], tmp_path / "c.mp4", 10)
    with pytest.raises(DatasetError, match="not written at"):
        concatenate_videos([tmp_path / "a.mp4"], tmp_path / "c.mp4", 7)
    with pytest.raises(InputError):
        concatenate_videos([], tmp_path / "c.mp4", 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]


def test_damaged_files_are_named_in_one_line(tmp_path: Path) -> None:
    write_video(tmp_path / "good.mp4", numbered(20), 10)
    whole = (tmp_path / "good.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "other.mp4").write_bytes(b"not a video " * 100)
    cases = [("cut", 1), ("empty", 1), ("other", 1), ("absent", 1), ("good", 21)]
    for name, length in cases:
        with pytest.raises(DatasetError) as caught:
            list(VideoFrames(tmp_path / f"{name}.mp4", 0, length, 10))
        assert f"{name}.mp4" in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(DatasetError):
        VideoFrames(tmp_path / "good.mp4", 30, 5, 10)[2]
