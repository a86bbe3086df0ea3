from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from recap.errors import InputError
from recap.pictures import filmstrip, halved, resize_image, write_png


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (64, 200)])
def test_a_png_is_read_back_bit_for_bit(tmp_path: Path, size: tuple[int, int]) -> None:
    image = np.random.default_rng(3).integers(0, 256, (*size, 3), np.uint8)
    write_png(tmp_path / "new" / "image.png", image)
    with av.open(str(tmp_path / "new" / "image.png")) as file:
        (frame,) = file.decode(video=0)
        assert np.array_equal(frame.to_ndarray(format="rgb24"), image)


@pytest.mark.parametrize(("shape", "kind"), [((4, 4), "u1"), ((4, 4, 3), "f8"), ((0, 4, 3), "u1")])
def test_an_array_that_is_not_a_uint8_rgb_image_is_refused(
    tmp_path: Path, shape: tuple[int, ...], kind: str
) -> None:
    with pytest.raises(InputError, match="u8"):
        write_png(tmp_path / "image.png", np.zeros(shape, kind))


def test_filmstrip_runs_from_the_first_frame_to_the_last() -> None:
    frames = [np.full((2, 3, 3), i, np.uint8) for i in range(11)]
    strip = filmstrip(frames, 3)
    assert strip.shape == (2, 9, 3)
    assert strip[0, ::3, 0].tolist() == [0, 5, 10]
    assert filmstrip(frames[:2], 8).shape == (2, 6, 3)
    with pytest.raises(InputError, match="at least one frame"):
        filmstrip([], 3)


def test_halved_averages_blocks_of_2x2_pixels() -> None:
    image = np.array([[[0], [2], [9]], [[4], [6], [9]]], np.uint8).repeat(3, axis=2)
    assert halved(image).tolist() == [[[3, 3, 3]]]


def test_resize_image_stretches_without_cropping() -> None:
    image = np.zeros((20, 40, 3), np.uint8)
    image[:, 20:] = 200
    small = resize_image(image, (10, 10))
    assert small.shape == (10, 10, 3)
    assert (small[:, :5] == 0).all()
    assert (small[:, 5:] == 200).all()
    assert resize_image(image, (20, 40)) is image
