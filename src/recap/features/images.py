"""Prepares images for encoders: resizing and normalisation in numpy, without an image library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from recap.errors import InputError
from recap.types import F32, U8

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@lru_cache(maxsize=64)
def _axis_weights(old: int, new: int) -> F32:
    """Resampling matrix (new, old), rows of sum 1: area average to shrink, bilinear to enlarge."""
    if new <= old:
        edges = np.arange(new + 1) * (old / new)
        pixels = np.arange(old)
        covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
        weights = np.maximum(covered, 0.0) * (new / old)
    else:
        # Pixel centres are at half integers. Beyond the outermost centres the edge is repeated.
        centres = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
        weights = np.maximum(1.0 - np.abs(centres[:, None] - np.arange(old)), 0.0)
    found: F32 = weights.astype(np.float32)
    found.flags.writeable = False
    return found


def check_frames(images: U8) -> U8:
    """Return `images` if they are uint8 frames (n, h, w, 3), else raise an InputError."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise InputError(f"images are {kind}, not uint8: give bytes 0..255")
    if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        raise InputError(f"images have shape {images.shape}: give (n, height, width, 3)")
    return images


def resize(images: U8, size: int) -> F32:
    """Frames (n, h, w, 3) -> (n, size, size, 3) in 0..1; the aspect ratio is not kept."""
    if size < 1:
        raise InputError(f"image size {size} is too small: give 1 or more pixels")
    n, height, width, _ = check_frames(images).shape
    pixels: F32 = images.astype(np.float32)
    if height != size:
        pixels = (_axis_weights(height, size) @ pixels.reshape(n, height, -1)).reshape(n, size, width, 3)
    if width != size:  # transposed: one large product per frame is faster than one per row
        turned = np.ascontiguousarray(pixels.swapaxes(1, 2)).reshape(n, width, -1)
        pixels = (_axis_weights(width, size) @ turned).reshape(n, size, size, 3).swapaxes(1, 2)
    np.multiply(pixels, np.float32(1 / 255), out=pixels)
    return pixels


def resample(plane: F32, height: int, width: int) -> F32:
    """One channel (h, w) -> (height, width), as in `resize`."""
    rows: F32 = _axis_weights(plane.shape[0], height) @ plane
    columns: F32 = rows @ _axis_weights(plane.shape[1], width).T
    return columns


def normalise(images: F32, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> F32:
    """(value - mean) / std for each channel of the last axis."""
    return np.asarray((images - np.asarray(mean, np.float32)) / np.asarray(std, np.float32), np.float32)


def in_batches(images: Sequence[U8] | U8, batch_size: int) -> Iterator[U8]:
    """Batches (m, h, w, 3) in order, m <= batch_size; a lazy sequence is decoded batch by batch."""
    if isinstance(images, np.ndarray):
        check_frames(images)
        for start in range(0, len(images), batch_size):
            yield images[start : start + batch_size]
        return
    waiting: list[U8] = []
    for image in images:
        frame = check_frames(np.asarray(image)[None])
        # A batch holds frames of one size.
        if waiting and (len(waiting) == batch_size or frame.shape != waiting[0].shape):
            yield np.concatenate(waiting)
            waiting = []
        waiting.append(frame)
    if waiting:
        yield np.concatenate(waiting)


def unit_rows(rows: F32) -> F32:
    """Normalise rows to length 1, so that the cosine distance is half the squared L2; zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
