"""The camera image in the canonical frame, by warping its pixels."""

from __future__ import annotations

import math

import numpy as np

from recap.errors import InputError
from recap.pictures import resize_image
from recap.policies.config import ImageConfig
from recap.robot import Fit
from recap.types import F64, U8

BEYOND = 255  # pixels outside the camera's view are white


def make_square(image: U8, fit: Fit) -> U8:
    """Make an image square by black borders (letterbox) or cropping (crop); unchanged for resize."""
    height, width = image.shape[:2]
    if fit == "resize" or height == width:
        return image
    side = max(height, width) if fit == "letterbox" else min(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    if fit == "crop":
        return image[-top : side - top, -left : side - left]
    out = np.zeros((side, side, 3), np.uint8)
    out[top : top + height, left : left + width] = image
    return out


def canonical_image(image: U8, frame: F64, config: ImageConfig, aligned: bool, fit: Fit = "resize") -> U8:
    """The image around `frame`, rotated with it: (size, size, 3); the whole image if not aligned.

    Args:
        fit: how an image becomes square.
    """
    import cv2

    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise InputError(f"a camera image has shape {image.shape} of {image.dtype}: give (h, w, 3) of bytes")
    if config.view == "top-down" and image.shape[0] != image.shape[1]:
        raise InputError(f"a top-down image is {image.shape[1]}×{image.shape[0]} px: send a square one")
    size = (config.size, config.size)
    if config.view == "camera" or not aligned:
        square = make_square(image, fit)
        return np.asarray(cv2.resize(square, size, interpolation=cv2.INTER_AREA), np.uint8)
    if image.shape[0] > config.camera_size:  # a warp samples single pixels: a larger image would be jagged
        image = resize_image(image, (config.camera_size, config.camera_size))
    warped = cv2.warpAffine(
        image,
        _to_camera(frame, config, image.shape[0]),
        size,
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(BEYOND, BEYOND, BEYOND),
    )
    return np.asarray(warped, np.uint8)


def camera_image(image: U8, frame: F64, config: ImageConfig, aligned: bool, around: U8) -> U8:
    """The inverse of `canonical_image`: draws the picture onto a camera image of any size."""
    import cv2

    size = (around.shape[1], around.shape[0])
    if config.view == "camera" or not aligned:
        return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    matrix = _to_camera(frame, config, around.shape[0])
    picture = cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR)
    inside = cv2.warpAffine(np.full(image.shape[:2], 255, np.uint8), matrix, size, flags=cv2.INTER_NEAREST)
    return np.where(inside[..., None] > 0, picture, around).astype(np.uint8)


def _to_camera(frame: F64, config: ImageConfig, camera_size: int) -> F64:
    """The (2, 3) matrix from canonical to camera pixels, with pixel centres at half integers."""
    per_unit = camera_size / config.world
    zoom = config.span / config.size * per_unit
    c, s = math.cos(float(frame[2])) * zoom, math.sin(float(frame[2])) * zoom
    turn = np.array([[c, -s], [s, c]])
    half = (config.size - 1) / 2
    center = np.asarray(frame[:2], np.float64) * per_unit - 0.5
    return np.concatenate([turn, (center - turn @ np.array([half, half]))[:, None]], axis=1)
