"""Images: PNG files, film strips, resizing."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recap.errors import InputError
from recap.types import U8


def write_png(path: Path, image: U8) -> None:
    """Write an RGB image (h, w, 3) as a PNG file."""
    try:
        data = encode_png(image)
    except InputError as error:
        raise InputError(f"cannot write {path.name}: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def encode_png(image: U8) -> bytes:
    """Encode an RGB image (h, w, 3) as PNG."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise InputError(f"an image is u8 (h, w, 3), not {image.dtype} {image.shape}")
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(data, "PNG", compress_level=9)
    return data.getvalue()


def filmstrip(frames: Sequence[U8], n: int) -> U8:
    """Up to n frames, evenly spaced from the first to the last, side by side."""
    if not frames or n < 1:
        raise InputError("a film strip needs at least one frame")
    picks = np.unique(np.linspace(0, len(frames) - 1, n).round().astype(int))
    return np.concatenate([frames[i] for i in picks], axis=1)


def halved(image: U8) -> U8:
    """The image at half its size: (h // 2, w // 2, 3)."""
    height, width, _ = image.shape
    even = image[: height // 2 * 2, : width // 2 * 2]
    blocks = even.reshape(height // 2, 2, width // 2, 2, 3)
    return np.asarray(blocks.mean(axis=(1, 3)).round(), np.uint8)


def resize_image(image: U8, size: tuple[int, int]) -> U8:
    """The whole image resized to (height, width); the aspect ratio may change, nothing is cropped."""
    if image.shape[:2] == size:
        return image
    import cv2

    smaller = size[0] * size[1] < image.shape[0] * image.shape[1]
    how = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size[::-1], interpolation=how), np.uint8)
