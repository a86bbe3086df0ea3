"""Resizing and normalising images, compared with cases calculated by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.errors import InputError
from recap.features.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    in_batches,
    normalise,
    resample,
    resize,
    unit_rows,
)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@given(h=st.integers(1, 40), w=st.integers(1, 40), size=st.integers(1, 40), value=st.integers(0, 255))
def test_resizing_keeps_a_constant_image_constant(h: int, w: int, size: int, value: int) -> None:
    resized = resize(np.full((2, h, w, 3), value, np.uint8), size)
    assert resized.shape == (2, size, size, 3)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, value / 255, atol=1e-6)


@given(h=st.integers(1, 30), w=st.integers(1, 30), size=st.integers(1, 12), seed=st.integers(0, 99))
def test_shrinking_keeps_the_mean_and_resizing_stays_within_the_range(
    h: int, w: int, size: int, seed: int
) -> None:
    image = noise(1, h, w, 3, seed=seed)
    resized = resize(image, size)
    if size <= min(h, w):  # every pixel counts by its area
        np.testing.assert_allclose(resized.mean((1, 2)), image.mean((1, 2)) / 255, atol=1e-5)
    assert resized.min() >= image.min() / 255 - 1e-6
    assert resized.max() <= image.max() / 255 + 1e-6


def test_resizing_to_the_same_size_only_scales_values() -> None:
    image = noise(3, 7, 7, 3)
    np.testing.assert_array_equal(resize(image, 7), image.astype(np.float32) * np.float32(1 / 255))


def test_halving_averages_blocks_of_four() -> None:
    image = noise(2, 8, 8, 3)
    blocks = image.reshape(2, 4, 2, 4, 2, 3).mean((2, 4)) / 255
    np.testing.assert_allclose(resize(image, 4), blocks, atol=1e-6)


def test_a_pixel_across_two_target_pixels_is_shared_by_area() -> None:
    image = np.array([0, 90, 240], np.uint8).reshape(1, 1, 3, 1).repeat(3, axis=1).repeat(3, axis=3)
    # Each target pixel covers one and a half source pixels.
    expected = np.array([90 / 2, 90 / 2 + 240]) / 1.5 / 255
    np.testing.assert_allclose(resize(image, 2)[0, 0, :, 0], expected, atol=1e-6)


def test_enlarging_is_bilinear_between_pixel_centres() -> None:
    image = np.array([0, 100], np.uint8).reshape(1, 1, 2, 1).repeat(2, axis=1).repeat(3, axis=3)
    np.testing.assert_allclose(resize(image, 4)[0, 1, :, 2] * 255, [0, 25, 75, 100], atol=1e-4)


def test_resizing_keeps_a_linear_ramp_linear() -> None:
    ramp = np.broadcast_to((np.arange(32, dtype=np.uint8) * 8)[:, None, None], (32, 32, 3))[None]
    np.testing.assert_allclose(np.diff(resize(ramp, 8)[0, :, 0, 0]), 32 / 255, atol=1e-6)
    np.testing.assert_allclose(np.diff(resize(ramp, 64)[0, 1:-1, 0, 0]), 4 / 255, atol=1e-6)


def test_height_and_width_are_not_confused() -> None:
    image = np.zeros((1, 4, 10, 3), np.uint8)
    image[:, :2] = 255
    np.testing.assert_allclose(resize(image, 2)[0, :, :, 0], [[1, 1], [0, 0]], atol=1e-6)
    plane = np.zeros((4, 10), np.float32)
    plane[:2] = 1
    np.testing.assert_allclose(resample(plane, 2, 5), np.repeat([[1.0], [0.0]], 5, axis=1), atol=1e-6)


def test_resizing_equals_torch() -> None:
    import torch

    torch.set_num_threads(1)
    image = noise(2, 12, 9, 3)
    given = torch.from_numpy(image).permute(0, 3, 1, 2).double() / 255
    grown = torch.nn.functional.interpolate(given, (24, 24), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(resize(image, 24), grown.permute(0, 2, 3, 1).numpy(), atol=1e-6)
    shrunk = torch.nn.functional.adaptive_avg_pool2d(given, 3)
    np.testing.assert_allclose(resize(image, 3), shrunk.permute(0, 2, 3, 1).numpy(), atol=1e-6)


def test_normalising_subtracts_the_mean_and_divides_by_the_deviation() -> None:
    pixels = np.broadcast_to(np.array(IMAGENET_MEAN, np.float32), (1, 2, 2, 3))
    np.testing.assert_allclose(normalise(pixels), 0, atol=1e-6)
    np.testing.assert_allclose(normalise(pixels + np.array(IMAGENET_STD, np.float32)), 1, atol=1e-5)
    assert normalise(pixels, (0.5,) * 3, (0.5,) * 3).dtype == np.float32


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (np.zeros((2, 2, 3), np.uint8), "shape"),
        (np.zeros((1, 2, 2, 4), np.uint8), "shape"),
        (np.zeros((1, 0, 2, 3), np.uint8), "shape"),
        (np.zeros((1, 2, 2, 3), np.float32), "uint8"),
    ],
)
def test_resizing_an_array_that_is_no_uint8_rgb_batch_is_an_error(image: np.ndarray, says: str) -> None:
    with pytest.raises(InputError, match=says):
        resize(image, 4)


def test_resizing_to_size_zero_is_an_error() -> None:
    with pytest.raises(InputError, match="size 0"):
        resize(noise(1, 4, 4, 3), 0)


class Lazy:
    """Frames that count how many were decoded."""

    def __init__(self, frames: np.ndarray) -> None:
        self.frames, self.decoded = frames, 0

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> np.ndarray:
        frame = self.frames[index]
        self.decoded += 1
        return frame


def test_batches_keep_order_and_decode_lazily() -> None:
    frames = noise(7, 4, 5, 3)
    lazy = Lazy(frames)
    batches = in_batches(lazy, 3)  # type: ignore[arg-type]
    next(batches)
    assert lazy.decoded <= 4
    for given_frames in (frames, list(frames), Lazy(frames)):
        found = list(in_batches(given_frames, 3))  # type: ignore[arg-type]
        assert [len(batch) for batch in found] == [3, 3, 1]
        np.testing.assert_array_equal(np.concatenate(found), frames)


def test_frames_of_different_sizes_are_in_different_batches() -> None:
    frames = [noise(4, 4, 3), noise(4, 4, 3), noise(6, 4, 3), noise(4, 4, 3)]
    assert [batch.shape[:2] for batch in in_batches(frames, 8)] == [(2, 4), (1, 6), (1, 4)]


def test_unit_rows_normalises_rows_and_keeps_zeros() -> None:
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 0]], atol=1e-7)
