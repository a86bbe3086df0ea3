"""Decoding of single images from PNG or JPEG bytes."""

import io

import numpy as np
import pytest
from PIL import Image

from recap.errors import DatasetError
from recap.pool.importers.encoded import decode_image
from recap.types import U8


def encoded(picture: Image.Image, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    picture.save(data, kind)
    return data.getvalue()


def pixels(*shape: int) -> U8:
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def test_decoded_images_are_rgb_without_alpha() -> None:
    image = pixels(9, 7, 4)
    assert np.array_equal(decode_image(encoded(Image.fromarray(image)), "x"), image[..., :3])


def test_grey_becomes_rgb_and_16_bit_images_keep_the_upper_8_bits() -> None:
    grey = pixels(9, 7)
    deep = grey.astype(np.uint16) * 256 + 255
    for picture in (Image.fromarray(grey), Image.fromarray(deep)):
        assert np.array_equal(decode_image(encoded(picture), "x"), np.repeat(grey[..., None], 3, axis=2))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_truncated_image_is_an_error(kind: str) -> None:
    data = encoded(Image.fromarray(pixels(64, 64, 3)), kind)
    assert decode_image(data, "x").shape == (64, 64, 3)
    with pytest.raises(DatasetError, match="x is a damaged picture"):
        decode_image(data[: len(data) // 2], "x")
